"""The API server on a port: HTTP/1.1, chunked watches, faults on the wire."""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from apiserver import negotiation
from apiserver.api import TEXT, Answer, Api, Settings, Stream
from apiserver.clocks import Clock, RealClock
from apiserver.cluster import Cluster
from apiserver.faults import REASONS, Fault, Faults, poisoned
from apiserver.objects import Objects
from apiserver.requests import Request, target
from apiserver.store import Store
from apiserver.users import User

LOG = logging.getLogger(__name__)
_REMEMBERED = 100_000
_EXPIRED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410}


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One request that came in."""

    verb: str
    group: str
    resource: str
    """With its subresource: pods/eviction."""
    namespace: str
    name: str
    user: str
    at: float
    """Monotonic seconds of the server's clock."""
    status: int


class ApiServer:
    """Listens from `start` (or on entering the context) to `stop`. Port 0 takes a free one.

    `tokens` switches authentication and RBAC on; without them everybody may do everything. `seed` makes uids and
    generated names the same in every run. `history` is how many events of a kind are kept for watches. What is stored
    outlives `stop`: a later `start` serves the same objects, as an API server does after a restart. Without `streams`
    it refuses lists as streams, as a server without WatchList.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tokens: Mapping[str, User] | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        history: int = 4000,
        controllers: bool = False,
        enforce_owners: bool = False,
        streams: bool = True,
    ) -> None:
        self._host, self._port = host, port
        self._tokens = dict(tokens or {})
        self._cluster = Cluster(Store(history=history), clock or RealClock(), seed=seed, streams=streams)
        self._controllers, self._enforce_owners = controllers, enforce_owners
        self.objects = Objects(self._cluster)
        self.faults = Faults()
        self.requests: collections.deque[Asked] = collections.deque(maxlen=_REMEMBERED)
        """Every request, oldest first; `clear` it between the parts of a test."""
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens; valid after `start`."""
        return f"http://{self._host}:{self._port}"

    @property
    def revision(self) -> int:
        """The newest resourceVersion."""
        return self._cluster.store.revision

    def start(self) -> str:
        """Serve in threads of its own; the url."""
        self._listener = _Listener((self._host, self._port), _Connection)
        self._port = int(self._listener.server_address[1])
        settings = Settings(
            self._tokens,
            controllers=self._controllers,
            enforce_owners=self._enforce_owners,
            address=f"{self._host}:{self._port}",
        )
        self._listener.api = Api(self._cluster, settings, self._listener.stopped)
        self._listener.faults, self._listener.note = self.faults, self._note
        self._thread = threading.Thread(target=self._listener.serve_forever, name="apiserver", daemon=True)
        self._thread.start()
        return self.url

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._listener is None or self._thread is None:
            return
        self._listener.stopped.set()
        # A port that is shut wakes the loop, which else looks twice a second whether it is to end.
        self._listener.socket.shutdown(socket.SHUT_RDWR)
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        self._listener.close_connections()
        self._listener = None

    def cut_connections(self) -> None:
        """Cut every connection, as a load balancer that restarts; clients come back at once."""
        if self._listener is not None:
            self._listener.close_connections()

    def compact(self) -> None:
        """Forget earlier states: continue tokens and exact lists of the past get 410."""
        self._cluster.store.compact()

    def forget_events(self) -> None:
        """Every watch from an earlier resourceVersion gets 410."""
        self._cluster.store.forget_events()

    def kubeconfig(self, token: str = "") -> str:
        """A kubeconfig for this server, as JSON, which is YAML too."""
        user: dict[str, Any] = {"token": token} if token else {}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": self.url}}],
            "users": [{"name": "tests", "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "current-context": "tests",
        }
        return json.dumps(document, indent=1) + "\n"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _note(self, request: Request, status: int) -> None:
        at = target(request)
        user = self._tokens.get(request.bearer)
        moment = self._cluster.clock.monotonic()
        name = user.name if user else ""
        self.requests.append(Asked(at.verb, at.group, at.full, at.namespace, at.name, name, moment, status))


class _Listener(ThreadingHTTPServer):
    """One thread a connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    api: Api
    faults: Faults
    note: Callable[[Request, int], None]

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.stopped = threading.Event()
        self._open: set[socket.socket] = set()

    def server_bind(self) -> None:
        """Bind without asking DNS for this machine's name."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, so that a stop can close it."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget it."""
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Cut what is still open."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # The client was first.
                LOG.debug("connection was closed already")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Into the log; a client that went away is no error of ours."""
        gone = isinstance(sys.exception(), ConnectionError | TimeoutError | ValueError)
        LOG.log(logging.DEBUG if gone else logging.ERROR, "request of %s failed", client_address, exc_info=not gone)


class _Connection(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server_version = "koordlite-tests"
    sys_version = ""
    disable_nagle_algorithm = True
    server: _Listener

    def __getattr__(self, name: str) -> Any:
        """Every method is answered, unknown ones too."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:
        """Into the log at debug level."""
        LOG.debug(format, *args)

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            self.close_connection = True
            self._send(Answer(400, b"400 Bad Request", TEXT))
            return
        request = Request.of(self.command, self.path, dict(self.headers.items()), body)
        fault = self.server.faults.strike(target(request))
        if fault is not None and self._struck(fault, request):
            return
        answer = self._too_large() if len(body) > negotiation.BODY_LIMIT else self.server.api.answer(request)
        self.server.note(request, 200 if isinstance(answer, Stream) else answer.status)
        if fault is not None and fault.drop:
            self.close_connection = True
        elif isinstance(answer, Stream):
            self._stream(answer, fault or Fault(), request)
        else:
            self._send(_with_poison(answer) if fault is not None and fault.poison else answer)

    def _body(self) -> bytes | None:
        """What the client sends; None when it does not say how long that is in a way that can be read."""
        length = self.headers.get("Content-Length") or "0"
        return self.rfile.read(int(length)) if length.isascii() and length.isdecimal() else None

    def _too_large(self) -> Answer:
        refused = negotiation.too_large()
        return Answer(refused.code, negotiation.encoded(refused.body))

    def _struck(self, fault: Fault, request: Request) -> bool:
        """Whether the fault is the whole answer."""
        if fault.delay_seconds:
            self.server.stopped.wait(fault.delay_seconds)
        if fault.hang or fault.status:
            # Noted before the client can know: whoever has the answer finds the request in the list.
            self.server.note(request, fault.status)
        if fault.hang:
            self.server.stopped.wait()
            self.close_connection = True
            return True
        if fault.status:
            self._send(_failing(fault))
        return bool(fault.status)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.media)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _stream(self, stream: Stream, fault: Fault, request: Request) -> None:
        self.send_response(200)
        self.send_header("Content-Type", negotiation.JSON)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if fault.gone:
            self._chunk(_line("ERROR", _EXPIRED | {"message": "too old resource version: 1 (2)"}))
            self._chunk(b"")
            return
        if fault.poison:
            self._chunk(_line("ADDED", poisoned("Pod", "v1")))
        if self._lines(stream, fault):
            self._chunk(b"")
        else:
            self.close_connection = True

    def _lines(self, stream: Stream, fault: Fault) -> bool:
        """Write lines until the end; False when the fault cut them."""
        sent = 0
        for line in stream.lines:
            if fault.cut_after_lines is not None and sent >= fault.cut_after_lines:
                if fault.half_line and line:
                    self._chunk(line[: len(line) // 2])
                if line or not fault.half_line:
                    return False
            if line is None:
                self._check_client()
                continue
            self._chunk(line)
            sent += 1
        return not self.server.stopped.is_set()

    def _check_client(self) -> None:
        """End the watch of a client that has gone."""
        self.connection.setblocking(False)
        try:
            if self.connection.recv(1, socket.MSG_PEEK) == b"":
                raise ConnectionResetError
        except BlockingIOError:
            return
        finally:
            self.connection.setblocking(True)

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()


def _line(word: str, item: dict[str, Any]) -> bytes:
    return negotiation.encoded({"type": word, "object": item}) + b"\n"


def _failing(fault: Fault) -> Answer:
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body |= {"message": "injected by the test", "reason": REASONS.get(fault.status, ""), "code": fault.status}
    if fault.retry_after_seconds is not None:
        body["details"] = {"retryAfterSeconds": fault.retry_after_seconds}
    headers = {} if fault.retry_after_seconds is None else {"Retry-After": str(fault.retry_after_seconds)}
    return Answer(fault.status, negotiation.encoded(body), headers=headers)


def _with_poison(answer: Answer) -> Answer:
    """A list with one object more, that cannot be decoded; other answers as they are."""
    body = json.loads(answer.body) if answer.media == negotiation.JSON else {}
    if not isinstance(body.get("items"), list):
        return answer
    body["items"].append(poisoned(str(body["kind"]).removesuffix("List"), str(body["apiVersion"])))
    return dataclasses.replace(answer, body=negotiation.encoded(body))
