"""A server that answers instant queries over HTTP as Prometheus does, from a function."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Values = Mapping[tuple[str, str], float | str]
"""By namespace and pod."""


def vector(values: Values) -> bytes:
    """The answer of an instant query."""
    result = [
        {"metric": {"namespace": namespace, "pod": pod}, "value": [1767225600.1, str(value)]}
        for (namespace, pod), value in values.items()
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


class Server:
    """Answers `body()` with `status` to whatever is asked, and keeps the questions with their tokens."""

    def __init__(self, body: Callable[[], bytes]) -> None:
        self.body, self.status, self.headers = body, 200, dict[str, str]()
        self.asked: list[tuple[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("query", [""])[0]
                server.asked.append((query, self.headers.get("Authorization", "")))
                self.send_response(server.status)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(server.body())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, name="prometheus", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._http.socket.shutdown(socket.SHUT_RDWR)  # Wakes the loop.
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(body: Callable[[], bytes]) -> Iterator[Server]:
    """A server for a while."""
    server = Server(body)
    server.start()
    try:
        yield server
    finally:
        server.close()
