"""The agent's small HTTP server: GET and HEAD only, answers made by whoever is given as `answer`."""

from __future__ import annotations

import errno
import logging
import socket
import socketserver
import sys
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from koordlite.model.errors import ConfigError, Problem

LOG = logging.getLogger(__name__)
_IDLE_SECONDS = 10.0
_POLL_SECONDS = 0.1
"""How soon `close` is noticed."""


class Answer(Protocol):
    """What a request gets."""

    @property
    def status(self) -> int:
        """HTTP status code."""

    @property
    def content_type(self) -> str:
        """Media type."""

    @property
    def body(self) -> bytes:
        """The whole content."""


Ask = Callable[[str, Mapping[str, str], str], Answer]
"""Path, query parameters and Accept header to an answer; called from many threads."""


class Server:
    """Listens from construction, serves from `start` to `close`. Port 0 takes a free one; `port` says which."""

    def __init__(self, address: str, port: int, answer: Ask) -> None:
        """ConfigError when the address or the port cannot be had."""
        self._server = _listen(address, port, answer)
        self.address, self.port = address, int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True
        )

    @property
    def url(self) -> str:
        """Where to point a browser."""
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Listener(ThreadingHTTPServer):
    """One thread a connection; none of them outlives the process or holds up a stop."""

    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        """Bind without asking DNS for this machine's name, which can take seconds and is used for nothing."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Into the log; a client that went away is no error of ours."""
        gone = isinstance(sys.exception(), ConnectionError | TimeoutError)
        LOG.log(logging.DEBUG if gone else logging.ERROR, "request of %s failed", client_address, exc_info=not gone)


class _Request(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "koordlite"
    sys_version = ""
    timeout = _IDLE_SECONDS
    ask: Ask

    def do_GET(self) -> None:
        """Answer with content."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer with headers only."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Into the log at debug level: scrapes are no news."""
        LOG.debug("%s %s", self.address_string(), format % args)

    def _answer(self, *, with_body: bool) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        answer = type(self).ask(url.path, query, self.headers.get("Accept", ""))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)


def _listen(address: str, port: int, answer: Ask) -> _Listener:
    class Listener(_Listener):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    handler = type("Request", (_Request,), {"ask": staticmethod(answer)})
    try:
        return Listener((address, port), handler)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "another process listens there" if taken else str(error)
        do = "choose another port, 0 for any free one, or set http.enable to false"
        raise ConfigError(Problem("koordlite.yaml", "http", f"{address}:{port}", why, do)) from error
