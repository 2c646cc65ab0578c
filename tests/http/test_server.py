"""The listener on a real loopback socket: changes, tokens, TLS, too many connections, and requests that are none."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import pathlib
import socket
import ssl
import time
from collections.abc import Iterator, Mapping

import pytest
import slices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from self_signed import certificate

from koordlite.http.answers import Answer, plain
from koordlite.http.certificate import CHECK_SECONDS, Certificate
from koordlite.http.connections import BODY_BYTES
from koordlite.http.guard import Guard
from koordlite.http.server import CONNECTIONS, Server, address_of
from koordlite.model.errors import ConfigError, InputError


@dataclasses.dataclass
class Echo:
    """Answers with what it was asked, and remembers changes."""

    changes: list[tuple[str, bytes]] = dataclasses.field(default_factory=list)

    def ask(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        return plain(200, f"{path} {dict(query)} {accept}")

    def change(self, path: str, body: bytes) -> Answer:
        self.changes.append((path, body))
        return plain(200, "done")


@pytest.fixture(scope="module")
def echo() -> Echo:
    return Echo()


@pytest.fixture(scope="module")
def server(echo: Echo) -> Iterator[Server]:
    made = Server("127.0.0.1", 0, echo.ask, change=echo.change, guard=Guard(exposed=False, local_token="root"))
    made.start()
    yield made
    made.close()


def put(server: Server, path: str = "/x", body: bytes = b"{}", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    with contextlib.closing(connection):
        connection.request("PUT", path, body, {"Authorization": "Bearer root", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def raw(server: Server, sent: bytes) -> bytes:
    """What comes back for bytes of any kind, until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        parts = []
        with contextlib.suppress(OSError):  # It may hang up before all was said.
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                parts.append(part)
    return b"".join(parts)


def test_a_change_with_the_token_is_made(server: Server, echo: Echo) -> None:
    assert put(server, "/loglevel?x=1", b'{"a":1}') == (200, "done\n")
    assert echo.changes[-1] == ("/loglevel", b'{"a":1}')


def test_a_change_without_it_is_not(server: Server, echo: Echo) -> None:
    before = len(echo.changes)
    assert put(server, Authorization="Bearer wrong")[0] == 401
    assert len(echo.changes) == before


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"Content-Length: %d" % (BODY_BYTES + 1), 413, id="too long"),
        pytest.param(b"Content-Length: 99999999999999999999", 413, id="a number no machine has"),
        pytest.param(b"Content-Length: -1", 400, id="a negative length"),
        pytest.param("Content-Length: ²".encode("latin-1"), 400, id="a digit that is none"),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 3", 411, id="two lengths"),
        pytest.param(b"Transfer-Encoding: chunked\r\nContent-Length: 2", 411, id="a length and chunks"),
        pytest.param(b"X: y", 411, id="no length"),
        pytest.param(b"Content-Length: 50", 400, id="a body that ends early"),
    ],
)
def test_a_body_that_could_be_read_in_two_ways_is_not_read(
    server: Server, echo: Echo, head: bytes, status: int
) -> None:
    before = len(echo.changes)
    found = raw(server, b"PUT /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer root\r\n" + head + b"\r\n\r\n{}")
    assert found.startswith(b"HTTP/1.1 %d " % status)
    assert found.count(b"HTTP/1.1 ") == 1, "what follows is not the next request"
    assert len(echo.changes) == before


def test_the_body_of_a_get_is_not_the_next_request(server: Server, echo: Echo) -> None:
    before = len(echo.changes)
    smuggled = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer root\r\nContent-Length: 0\r\n\r\n"
    found = raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(smuggled) + smuggled)
    assert found.count(b"HTTP/1.1 ") == 1
    assert len(echo.changes) == before


@pytest.mark.parametrize("target", [b"http://[", b"http://[::1/x", b"/?" + b"a=1&" * 50])
def test_an_address_that_is_none_is_said_to_be(server: Server, target: bytes) -> None:
    assert raw(server, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_several_requests_on_one_connection(server: Server) -> None:
    found = raw(server, b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    assert found.count(b"/a {}") == 3


@settings(
    max_examples=slices.amount(120, 40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.tuples(
            st.sampled_from([b"GET", b"PUT", b"HEAD", b"POST", b"\x16\x03\x01", b"get", b""]),
            st.binary(max_size=60),
            st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9", b"", b"HTTP/2.0"]),
            st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=4),
            st.binary(max_size=40),
        ).map(
            lambda p: b" ".join(p[:3]) + b"\r\n" + b"".join(k + b": " + v + b"\r\n" for k, v in p[3]) + b"\r\n" + p[4]
        ),
    )
)
def test_no_bytes_bring_it_down_or_change_anything(
    server: Server, echo: Echo, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    before = len(echo.changes)
    found = raw(server, sent)
    # HTTP/0.9 has no status line: the answer to it is the content alone.
    assert not found.startswith(b"HTTP/1.1 5") or found.startswith((b"HTTP/1.1 501", b"HTTP/1.1 505"))
    assert len(echo.changes) == before
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", "/alive")
        assert connection.getresponse().status == 200


def test_more_connections_than_allowed_are_refused_and_slots_come_back(echo: Echo) -> None:
    made = Server("127.0.0.1", 0, echo.ask)
    made.start()
    with contextlib.closing(made):
        with contextlib.ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(socket.create_connection(("127.0.0.1", made.port), timeout=5))
            assert raw_or_nothing(made).startswith(b"HTTP/1.1 503 ")
        end = time.monotonic() + 5
        while not raw_or_nothing(made).startswith(b"HTTP/1.1 200") and time.monotonic() < end:
            pass
        assert raw(made, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("address", "status"),
    [pytest.param("0.0.0.0", b"200", id="for all"), pytest.param("127.0.0.1", b"421", id="local")],
)
def test_without_a_guard_a_server_for_others_is_read_by_any_of_its_names(
    echo: Echo, address: str, status: bytes
) -> None:
    """Prometheus and the pages of the cluster ask a pod by its IP."""
    made = Server(address, 0, echo.ask, change=echo.change)
    made.start()
    with contextlib.closing(made):
        assert raw(made, b"GET /x HTTP/1.1\r\nHost: 10.1.2.3:9201\r\n\r\n").startswith(b"HTTP/1.1 " + status)
        changed = raw(made, b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        assert changed.startswith(b"HTTP/1.1 401 ")


def raw_or_nothing(server: Server) -> bytes:
    with contextlib.suppress(OSError):
        return raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return b""


def secured(server: Server, trusted: str) -> int:
    context = ssl.create_default_context(cafile=trusted)
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=5, context=context)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().status


def test_tls_and_a_certificate_that_is_replaced_while_it_runs(
    tmp_path: pathlib.Path, echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate(tmp_path, "first")
    clock = [0.0]
    made = Server("127.0.0.1", 0, echo.ask, certificate=Certificate(cert, key, now=lambda: clock[0]))
    first = tmp_path / "ca"
    first.write_bytes(pathlib.Path(cert).read_bytes())
    made.start()
    with contextlib.closing(made):
        assert made.url.startswith("https://")
        assert secured(made, str(first)) == 200
        assert raw(made, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b"", "plain HTTP is not answered"
        pathlib.Path(cert).write_text("half written")
        clock[0] += CHECK_SECONDS
        assert secured(made, str(first)) == 200, "the last good one stays"
        assert "cannot be used" in caplog.text
        for old, new in zip((cert, key), certificate(tmp_path, "second"), strict=True):
            pathlib.Path(new).replace(old)
        clock[0] += CHECK_SECONDS
        assert secured(made, cert) == 200
        with pytest.raises(ssl.SSLError):
            secured(made, str(first))


def test_a_client_that_never_shakes_hands_holds_up_nobody(tmp_path: pathlib.Path, echo: Echo) -> None:
    cert, key = certificate(tmp_path, "slow")
    made = Server("127.0.0.1", 0, echo.ask, certificate=Certificate(cert, key))
    made.start()
    with contextlib.closing(made), socket.create_connection(("127.0.0.1", made.port)):
        assert secured(made, cert) == 200


@pytest.mark.parametrize(
    ("cert", "why"), [("absent.crt", "No such file"), ("empty.crt", "PEM|SSL")], ids=["no file", "no certificate"]
)
def test_a_certificate_that_cannot_be_used_is_a_clear_error(tmp_path: pathlib.Path, cert: str, why: str) -> None:
    (tmp_path / "empty.crt").write_text("")
    with pytest.raises(ConfigError, match=f"tlsCertFile.*({why})"):
        Certificate(str(tmp_path / cert), "")


@pytest.mark.parametrize("text", ["127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1", "9318", "[::1]", ""])
def test_an_address_without_a_port_that_there_can_be_is_refused_with_the_words_of_its_option(text: str) -> None:
    with pytest.raises(InputError, match="no port; write one"):
        address_of(text, ("command line", "--listen"), why="no port", do="write one", everywhere=False)
