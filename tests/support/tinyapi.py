"""An HTTP server that answers as a test says: for hung, cut and nonsensical answers no proper server would give."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import cyaml

from koordlite.kube.client import access


@dataclasses.dataclass(frozen=True)
class Request:
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any = None


@dataclasses.dataclass
class Reply:
    """What is answered: JSON, bytes as they are, or lines of a watch."""

    status: int = 200
    body: Any = dataclasses.field(default_factory=dict)
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    lines: Iterable[Any] | None = None
    cut: bool = False
    """Whether the stream ends in the middle instead of in order."""


class TinyApi:
    """Serves on a free port until closed. `answer` may block; `requests` grows by each request."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.requests: list[Request] = []
        self.answer = answer
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.socket.shutdown(socket.SHUT_RDWR)  # Wakes the loop.
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def asked(self, method: str) -> list[Request]:
        """Requests of one method."""
        return [request for request in self.requests if request.method == method]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: TinyApi

    def _serve(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): text for name, text in self.headers.items()}
        body = json.loads(raw) if "json" in headers.get("content-type", "") and raw else raw.decode() or None
        request = Request(self.command, url.path, dict(urllib.parse.parse_qsl(url.query)), headers, body)
        self.owner.requests.append(request)
        with contextlib.suppress(ConnectionError):
            self._reply(self.owner.answer(request))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _reply(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, text in reply.headers.items():
            self.send_header(name, text)
        if reply.lines is not None:
            self._stream(reply)
            return
        raw = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, reply: Reply) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in reply.lines or ():
            raw = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        if reply.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def kubeconfig(path: Path, url: str, *, token: str = "secret") -> Path:
    """A kubeconfig for the server at `url`."""
    path.write_text(
        cyaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )
    )
    return path


def client(path: Path, url: str) -> access.Api:
    """Access to the server at `url`."""
    return access.connect(str(kubeconfig(path, url)), None, user_agent="test/1")


@contextlib.contextmanager
def serving(answer: Callable[[Request], Reply]) -> Iterator[TinyApi]:
    """A server for the length of a block."""
    server = TinyApi(answer)
    try:
        yield server
    finally:
        server.close()


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> Reply:
    """A refusal as an API server words it."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body |= {"message": message, "code": code, "details": details} | ({"reason": reason} if reason else {})
    return Reply(code, body)
