"""Slow, many and misled clients of the HTTP server, over real sockets on loopback."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import socket
import time
import types
from collections.abc import Callable, Iterator, Mapping

import pytest
from self_signed import certificate

from koordlite.http import connections as limits
from koordlite.http.answers import Answer, plain
from koordlite.http.certificate import Certificate
from koordlite.http.connections import ADDRESS_CONNECTIONS, CONNECTIONS, PROBES, Connections, Limits
from koordlite.http.guard import Guard
from koordlite.http.server import Server

SECRET = "the pods of this node"
Start = Callable[..., Server]
Listening = Server | types.SimpleNamespace
"""Whatever has a port."""


def ask(path: str, _query: Mapping[str, str], _accept: str) -> Answer:
    return plain(200, "ok" if path == "/healthz" else SECRET)


@pytest.fixture
def start() -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def started(**settings: object) -> Server:
            server = Server("127.0.0.1", 0, ask, **settings)  # type: ignore[arg-type]
            server.start()
            stack.callback(server.close)
            return server

        yield started


def request(server: Listening, path: str, host: str = "localhost", source: str = "127.0.0.1", **headers: str) -> bytes:
    """What is answered, over a connection of its own; empty: it was closed unheard."""
    lines = [f"GET {path} HTTP/1.1", *([f"Host: {host}"] if host else []), "Connection: close"]
    lines += [f"{name}: {text}" for name, text in headers.items()]
    to = ("127.0.0.1", server.port)
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(to, timeout=5, source_address=(source, 0)) as made,
    ):
        made.sendall("\r\n".join([*lines, "", ""]).encode())
        return b"".join(iter(lambda: made.recv(65536), b""))
    return b""


@contextlib.contextmanager
def slow(server: Listening, count: int, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Connections that have said half a request line."""
    with contextlib.ExitStack() as stack:
        to = ("127.0.0.1", server.port)
        made = [
            stack.enter_context(socket.create_connection(to, timeout=5, source_address=(source, 0)))
            for _ in range(count)
        ]
        for each in made:
            with contextlib.suppress(ConnectionError):
                each.sendall(b"GET /sta")
        yield made


@pytest.mark.parametrize("count", [ADDRESS_CONNECTIONS, CONNECTIONS, CONNECTIONS + PROBES, 2 * CONNECTIONS])
def test_slow_connections_of_the_probes_own_address_do_not_silence_health(start: Start, count: int) -> None:
    server = start()
    with slow(server, count):
        for _ in range(3):
            assert request(server, "/healthz").endswith(b"ok\n")
        refused = request(server, "/state")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"only health is answered" in refused


def test_slow_connections_of_one_address_leave_everything_to_others(start: Start) -> None:
    server = start()
    with slow(server, 2 * CONNECTIONS, source="127.0.0.2"):
        assert SECRET.encode() in request(server, "/state", source="127.0.0.3")


def test_slow_connections_of_many_addresses_leave_health(start: Start) -> None:
    server = start()
    with contextlib.ExitStack() as stack:
        for number in range(2, 8):
            stack.enter_context(slow(server, ADDRESS_CONNECTIONS, source=f"127.0.0.{number}"))
        assert request(server, "/healthz", source="127.0.0.9").endswith(b"ok\n")
        assert request(server, "/state", source="127.0.0.9").startswith(b"HTTP/1.1 503 ")


def test_a_request_that_comes_byte_by_byte_has_a_deadline(start: Start) -> None:
    """Each byte comes well before any timeout of a single read."""
    server = start(limits=Limits(request_seconds=0.5))
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as made:
        made.settimeout(0.02)
        assert _seconds_until_closed(made) < 4


def test_so_has_a_handshake(start: Start, tmp_path: pathlib.Path) -> None:
    made_for = Certificate(*certificate(tmp_path, "a"))
    server = start(certificate=made_for, limits=Limits(request_seconds=0.5))
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as made:
        made.sendall(b"\x16\x03\x01\x10\x00")  # A handshake record of 4 KiB, which then comes byte by byte.
        made.settimeout(0.02)
        assert _seconds_until_closed(made) < 4


def _seconds_until_closed(made: socket.socket) -> float:
    begun = time.monotonic()
    while time.monotonic() - begun < 5:
        try:
            made.sendall(b"G")
            if not made.recv(1):
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - begun


def test_who_asks_in_time_is_not_ended_by_the_clock_of_the_request_before() -> None:
    clock = [0.0]
    kept = Connections(now=lambda: clock[0])
    one, other = socket.socketpair()
    with one, other:
        made = kept.admit(one, "a")
        clock[0] = limits.REQUEST_SECONDS - 1
        kept.answers(made)
        clock[0] += limits.ANSWER_SECONDS - 1
        kept.awaits_request(made)
        clock[0] += limits.REQUEST_SECONDS - 1
        kept.end_late()
        other.sendall(b"x")
        assert one.recv(1) == b"x"
        clock[0] += 1
        kept.end_late()
        assert one.recv(1) == b""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9316", "127.0.0.1.evil.example", "10.0.0.1", "[::", ""])
@pytest.mark.parametrize("path", ["/state", "/explain/pod/x", "/", "/metrics", "/loglevel"])
def test_a_page_elsewhere_cannot_read_by_a_name_that_it_resolves_to_loopback(
    start: Start, host: str, path: str
) -> None:
    found = request(start(), path, host=host or " ")
    assert found.startswith(b"HTTP/1.1 421 ")
    assert SECRET.encode() not in found


def test_two_hosts_are_not_one_good_one(start: Start) -> None:
    assert SECRET.encode() not in request(start(), "/state", host="localhost\r\nHost: evil.example")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9316", "[::1]:9316", "localhost.", None])
def test_who_names_this_machine_is_answered(start: Start, host: str | None) -> None:
    assert SECRET.encode() in request(start(), "/state", host=host or "")


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_deschedulers_server_is_guarded_alike(address: str, caplog: pytest.LogCaptureFixture) -> None:
    from descheduler import cli
    from descheduler.cli import service
    from descheduler.policy.watched_file import PolicyFile

    args = cli.parser().parse_args(["run", "--listen", f"{address}:0"])
    with caplog.at_level(logging.INFO), service._served(args, service._addresses(args, PolicyFile(None)), 60.0, None):
        port = int(caplog.messages[-1].rpartition(":")[2])
        server = types.SimpleNamespace(port=port)
        if address == "127.0.0.1":
            assert request(server, "/report", host="evil.example").startswith(b"HTTP/1.1 421 ")
        else:
            assert request(server, "/report").startswith(b"HTTP/1.1 401 ")
        with slow(server, CONNECTIONS + PROBES):
            assert request(server, "/healthz").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/state", "/explain", "/", "/status", "/recent", "/pods", "/metrics", "/loglevel"])
def test_reading_on_loopback_can_be_made_to_want_the_token(start: Start, path: str) -> None:
    server = start(guard=Guard(exposed=False, local_token="root", token_to_read=True))
    assert request(server, path).startswith(b"HTTP/1.1 401 ")
    assert SECRET.encode() in request(server, path, Authorization="Bearer root")
    assert request(server, "/healthz").endswith(b"ok\n")
