"""The listener: GET and HEAD for answers, PUT for changes, bounded connections, bad requests in words; opened at an
address that people wrote, over TLS or not, for those who may ask there."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import socketserver
import ssl
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from koordlite.http.answers import HEALTH, Answer, plain
from koordlite.http.certificate import Certificate, SelfSigned
from koordlite.http.connections import CONNECTIONS, STRANGERS, Connection, Connections, Limits
from koordlite.http.guard import Guard
from koordlite.http.local_token import is_loopback
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.threads import Worker

LOG = logging.getLogger(__name__)
LAST_PORT = 65535
QUERY_FIELDS = 20
_IDLE_SECONDS = 10.0
_POLL_SECONDS = 0.1
"""Time until late connections are noticed."""

Ask = Callable[[str, Mapping[str, str], str], Answer]
"""Path, query parameters and Accept header to an answer; called from many threads."""
Change = Callable[[str, bytes], Answer]
"""Path and body of a PUT, or of a POST, to an answer."""


class Server(ThreadingHTTPServer):
    """Listens from construction, serves from `start` to `close`. Port 0 takes a free one; `port` says which.

    A thread for each connection; none of them outlives the process or holds up a stop.
    """

    request_queue_size = CONNECTIONS + STRANGERS

    def __init__(
        self,
        address: str,
        port: int,
        answer: Ask,
        *,
        change: Change | None = None,
        post: Change | None = None,
        guard: Guard | None = None,
        certificate: Certificate | SelfSigned | None = None,
        in_clear: Problem | str = "",
        limits: Limits | None = None,
        setting: tuple[str, str] = ("command line", "--listen"),
    ) -> None:
        """ConfigError when the address or the port is taken: `setting` is where they were named. Without `guard`
        everyone may read, no one may change. `post` answers POST, which is refused without it.

        `in_clear`: where other machines can connect and there is no certificate, nor, for POST, one of each client, the
        problem that is raised as InputError, or the setting that a warning names.
        """
        self.address, self.ask, self.change, self.post = address, answer, change, post
        self.guard = guard or Guard(exposed=not is_loopback(address), all_read=True)
        is_secure = certificate is not None and (post is None or self.guard.clients is not None)
        if in_clear and self.guard.exposed and not is_secure:
            if isinstance(in_clear, Problem):
                raise InputError(in_clear)
            LOG.warning("tokens are sent to %s in the clear: name a certificate with %s", address, in_clear)
        self.connections = Connections(limits)
        self._certificate, self._of_thread = certificate, threading.local()
        self._thread = Worker("http", lambda: self.serve_forever(_POLL_SECONDS))
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            super().__init__((address, port), _Request)
        except (OSError, OverflowError) as error:
            in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "another process listens there" if in_use else getattr(error, "strerror", "") or str(error)
            do = "choose another port, or 0 for any free one"
            raise ConfigError(Problem(*setting, f"{address}:{port}", why, do)) from error
        self.port = int(self.server_address[1])

    @property
    def url(self) -> str:
        """Address for a browser."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http{'s' if self._certificate else ''}://{host}:{self.port}"

    @property
    def methods(self) -> str:
        """The methods that are answered."""
        return ", ".join(["GET", "HEAD", *(["PUT"] if self.change else []), *(["POST"] if self.post else [])])

    @property
    def connection(self) -> Connection:
        """The one that the present thread serves."""
        connection: Connection = self._of_thread.connection
        return connection

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread.start()

    @contextlib.contextmanager
    def serving(self, log: logging.Logger, words: str = "listening on %s") -> Iterator[None]:
        """Serve while the block runs; `log` says where, in these words."""
        self.start()
        log.info(words, self.url)
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._thread.end()
        if self._thread.is_alive():
            # A port that is shut wakes the loop, which then ends at once.
            self.socket.shutdown(socket.SHUT_RDWR)
            self.shutdown()
            self._thread.join()
        self.server_close()

    def service_actions(self) -> None:
        """Called after each wait for connections."""
        self._thread.beat()
        self.connections.end_late()

    def server_bind(self) -> None:
        """Bind without asking DNS for this machine's name, which can take seconds and is used for nothing."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request in a thread of its own."""
        connection = self.connections.admit(request, client_address[0])
        thread = threading.Thread(target=self._serve, args=(request, client_address, connection), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # There can be no more threads; the caller logs it and closes the connection.
            self.connections.release(connection)
            raise

    def _serve(self, request: Any, client_address: Any, connection: Connection) -> None:
        """Serve the connection and make room for the next."""
        self._of_thread.connection = connection
        try:
            self.process_request_thread(request, client_address)
        finally:
            self.connections.release(connection)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve; the handshake is here, where it holds up no other request."""
        limits = self.connections.limits
        idle_seconds = max(_IDLE_SECONDS, limits.request_seconds, limits.idle_seconds or 0.0)
        if self._certificate is None:
            request.settimeout(idle_seconds)
            super().finish_request(request, client_address)
            return
        request.settimeout(_IDLE_SECONDS)
        context = self._certificate.context()
        with context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secure:
            self.connection.socket = secure
            secure.do_handshake()
            if limits.certified and not self.connections.certify(self.connection):
                return
            secure.settimeout(idle_seconds)
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Into the log; a client that went away, or speaks no TLS, is no error of ours."""
        quiet = isinstance(sys.exception(), ConnectionError | TimeoutError | ssl.SSLError)
        LOG.log(logging.DEBUG if quiet else logging.ERROR, "request of %s failed", client_address, exc_info=not quiet)


class _Request(BaseHTTPRequestHandler):
    """Requests of a connection."""

    protocol_version = "HTTP/1.1"
    server_version = "koordlite"
    sys_version = ""
    # An answer leaves in one piece: head and body apart would wait for the client's delayed acknowledgement.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        """Answer with content, or HEAD without."""
        if self.headers.get("Content-Length", "0").strip() != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # What follows is not the next request.
        self._send(self._answer())

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        """Change something."""
        self._send(self._changed("put", self.server.change))

    def do_POST(self) -> None:
        """Ask something that needs a body."""
        if self.server.post is None:
            self.do_DELETE()
        else:
            self._send(self._changed("post", self.server.post))

    def do_DELETE(self) -> None:
        """Nothing is removed here; the same for every other word that is HTTP's."""
        self.close_connection = True
        allowed = self.server.methods
        self._send(plain(405, f"{self.command} is not done here, only {allowed}", {"Allow": allowed}))

    do_PATCH = do_OPTIONS = do_DELETE

    def parse_request(self) -> bool:
        """Read the rest of the head; its first line came just now."""
        self.server.connections.receives(self.server.connection)
        return super().parse_request()

    def handle_expect_100(self) -> bool:
        """The client waits to be told to send its body; it is told once it is known that it may."""
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Into the log at debug level: scrapes are no news. What a client sent cannot begin a line of the log."""
        LOG.debug("%s %s", self.address_string(), ascii(format % args))

    def _answer(self) -> Answer:
        try:
            url = urllib.parse.urlsplit(self.path)
            fields = urllib.parse.parse_qsl(url.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS)
        except ValueError as error:
            return plain(400, f"this is no address: {error}")
        accept = self.headers.get("Accept", "")
        return self._refusal("get", url.path) or self._safely(lambda: self.server.ask(url.path, dict(fields), accept))

    def _changed(self, verb: str, carry_out: Change | None) -> Answer:
        """Check the caller before the body is read."""
        path = self.path.partition("?")[0]
        if carry_out is None:
            return self._unread(plain(405, "nothing can be changed here", {"Allow": self.server.methods}))
        if refused := self._refusal(verb, path):
            return self._unread(refused)
        body = self._body()
        if isinstance(body, Answer):
            return self._unread(body)
        return self._safely(lambda: carry_out(path, body))

    def _unread(self, answer: Answer) -> Answer:
        """An answer without having read the body. A short one is taken off the line, or its client, which is still
        sending, would not get to read the answer."""
        self.close_connection = True
        text = self.headers.get("Content-Length", "")
        if text.isascii() and text.isdigit() and len(text) <= 5 and "Expect" not in self.headers:
            with contextlib.suppress(OSError):
                self.rfile.read(int(text))
        return answer

    def _safely(self, answer: Callable[[], Answer]) -> Answer:
        """A fault of ours costs one request, and says so."""
        try:
            return answer()
        except Exception as error:
            LOG.error("%s %s failed", self.command, ascii(self.path[:200]), exc_info=error)
            return plain(500, f"a fault of the program itself: {type(error).__name__}; its log says more")

    def _refusal(self, verb: str, path: str) -> Answer | None:
        if self.server.connection.only_health and not (verb == "get" and path in HEALTH):
            self.close_connection = True
            return plain(503, "too many connections: only health is answered now; close some, or ask again later")
        hosts = self.headers.get_all("Host", [])
        token = self.headers.get("Authorization", "")
        address = self.server.connection.address
        return self.server.guard.refusal(verb, path, token, hosts=hosts, client=self._client(), address=address)

    def _client(self) -> str | None:
        """Common name of the client's certificate; None without one. The handshake has verified it."""
        certificate: Any = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
        if not certificate:
            return None
        fields = (field for part in certificate.get("subject", ()) for field in part)
        return next((str(value) for name, value in fields if name == "commonName"), "")

    def _body(self) -> bytes | Answer:
        """The content, or why it is not read. Two lengths could be read in two ways by two programs: neither holds."""
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or len(lengths) != 1:
            return plain(411, "say once how long the content is, with Content-Length")
        text = lengths[0].strip()
        if not (text.isascii() and text.isdigit()):
            return plain(400, "Content-Length is no number")
        most = self.server.connections.limits.body_bytes
        if len(text) > len(str(most)) or int(text) > most:
            return plain(413, f"more than {most} bytes")
        if not self.server.connections.count_body(self.server.connection, int(text)):
            return plain(503, "too many requests with a body at one time; ask again", {"Retry-After": "1"})
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
        body = self.rfile.read(int(text))
        return body if len(body) == int(text) else plain(400, "the content is shorter than Content-Length says")

    def _send(self, answer: Answer) -> None:
        self.server.connections.answers(self.server.connection)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, text in answer.headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
            self.wfile.flush()
        self.server.connections.forget_body(self.server.connection)
        self.server.connections.awaits_request(self.server.connection)


def address_of(text: str, setting: tuple[str, str], *, why: str, do: str, everywhere: bool = True) -> tuple[str, int]:
    """Address and port in `ADDRESS:PORT`; InputError with these words where there is no port, or no address either
    unless that may mean `everywhere`."""
    address, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= LAST_PORT and (address or everywhere)):
        raise InputError(Problem(*setting, text, why, do))
    return address.strip("[]"), int(port)
