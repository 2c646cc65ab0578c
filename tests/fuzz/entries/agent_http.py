"""The agent's HTTP server: whole connections, byte by byte, through its own request handler."""

from __future__ import annotations

import functools
import io
import re
import types
from typing import Any
from unittest import mock

from koordlite.http.guard import Guard
from koordlite.http.server import Server
from koordlite.report.history import NOTHING
from koordlite.report.metrics.collector import Metrics
from koordlite.report.terminal.decision_log import Levels
from koordlite.report.web.endpoints import Endpoints
from tests.fuzz.entries import node
from tests.fuzz.frame import Entry

TOKEN = "of-this-machine"
PAGES = [
    "/",
    "/healthz?verbose",
    "/readyz",
    "/metrics",
    "/internal-metrics",
    "/external-metrics?node=a",
    "/folders",
    "/loglevel",
    "/state?pod=ns/web&since=10s",
    "/recent?for=1m",
    "/pods?sort=cpu&limit=3",
    "/status?width=100&height=40",
    "/explain?subject=pod/ns/web",
    "/explain/pod/ns/web",
    "/explain/cpu/1",
    "/explain/file/cpu.shares?all",
    "/explain/numa/0",
]
HEADERS = (
    "Host: 127.0.0.1\r\nAccept: text/html, application/openmetrics-text;version=1.0.0;q=0.5\r\nAccept-Encoding: gzip",
    "Host: localhost:9316\r\nAccept: application/json\r\nConnection: keep-alive",
)
LEVEL = b'{"level":"debug","strategy":"cpuSuppress","for":"1m"}'


class Wire(io.BytesIO):
    """A connection on which everything that a client sends has come already, and the answers to it."""

    def __init__(self, sent: bytes) -> None:
        super().__init__()
        self._sent = sent

    def makefile(self, mode: str, _size: int = -1) -> io.BytesIO:
        """What is read from it, or what writes to it."""
        return io.BytesIO(self._sent) if "r" in mode else self

    def sendall(self, data: bytes) -> None:
        self.write(data)

    def settimeout(self, _seconds: float | None) -> None:
        pass

    def setsockopt(self, *_option: int) -> None:
        pass

    def shutdown(self, _how: int) -> None:
        pass

    def close(self) -> None:
        """What was answered is looked at afterwards."""


@functools.cache
def server() -> Server:
    """An agent's, which has told of some rounds; it is not started, since each connection is handed to it."""
    made = node.bench("small", "http")
    metrics = Metrics()
    endpoints = Endpoints(period_seconds=1e9, registry=metrics.registry, levels=Levels(made.node.settings().strategies))
    tick = made.tick(2)
    metrics.observe_tick(tick)
    endpoints.publish(tick, NOTHING)
    guard = Guard(exposed=False, local_token=TOKEN)
    return Server("127.0.0.1", 0, endpoints.answer, change=endpoints.put, guard=guard)


def connection(raw: bytes) -> str:
    """Everything one client sends; the statuses of what it is answered."""
    answered = _answers(raw)
    assert b"a fault of the program itself" not in answered, answered[:1000]
    health = _answers(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert health.startswith(b"HTTP/1.1 200 "), health
    return " ".join(status.decode() for status in re.findall(rb"^HTTP/1\.1 (\d{3}) ", answered, re.MULTILINE)[:3])


def _answers(raw: bytes) -> bytes:
    listener: Any = server()
    wire: Any = Wire(raw)

    def raised(_self: object, _request: object, _address: object) -> None:
        raise  # noqa: PLE0704 - in an except clause of socketserver

    held = listener.connections.admit(wire, "127.0.0.1")
    with mock.patch.object(listener, "handle_error", types.MethodType(raised, listener)):
        listener._serve(wire, ("127.0.0.1", 1), held)
    return bytes(wire.getvalue())


def _requests() -> list[bytes]:
    found = [f"GET {page} HTTP/1.1\r\n{HEADERS[n % 2]}\r\n\r\n".encode() for n, page in enumerate(PAGES)]
    put = f"PUT /loglevel HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(LEVEL)}\r\n"
    found.append(f"{put}Expect: 100-continue\r\n\r\n".encode() + LEVEL)
    found.append(b"HEAD /metrics HTTP/1.0\r\n\r\n")
    found.append(found[0] + found[5] + b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
    return found


ENTRIES = [Entry(name="agent-http", seeds=_requests(), run=connection, weight=2)]
