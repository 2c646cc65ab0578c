"""Calls of gRPC beside grpcio's server, and beside servers that say what none should."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc_server
import pytest
from grpc_server import DONE, HEADERS, STREAM, message
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import PingAckReceived

from koordlite.kube.kubelet.grpc_call import ANSWER_BYTES, Call, call

SERVICE = "v1.PodResourcesLister"
LIST = f"/{SERVICE}/List"


@pytest.fixture
def handlers() -> dict[str, grpc_server.Handler]:
    """By method; a test adds its own."""
    return {}


@pytest.fixture
def address(tmp_path: Path, handlers: dict[str, grpc_server.Handler]) -> Iterator[str]:
    """Where grpcio's server answers by `handlers`."""

    def listed(request: bytes, context: Any) -> bytes:
        return handlers["List"](request, context)

    path = str(tmp_path / "kubelet.sock")
    with grpc_server.serving(path, SERVICE, {"List": listed}):
        yield path


@pytest.mark.parametrize("size", [0, 1, 16_384, 100_000, ANSWER_BYTES])
def test_an_answer_of_any_size_arrives_whole(address: str, handlers: dict[str, grpc_server.Handler], size: int) -> None:
    whole = bytes(range(251)) * (size // 251 + 1)
    handlers["List"] = lambda request, context: request + whole[len(request) : size]
    assert call(address, LIST, whole[: min(size, 3)], seconds=30) == whole[:size]


def test_an_answer_beyond_the_bound_is_refused(address: str, handlers: dict[str, grpc_server.Handler]) -> None:
    handlers["List"] = lambda request, context: bytes(101)
    with pytest.raises(OSError, match="List: the answer has 101 bytes, more than 100") as refused:
        call(address, LIST, seconds=30, answer_bytes=100)
    assert (refused.value.errno, refused.value.filename) == (errno.EMSGSIZE, address)


@pytest.mark.parametrize(
    ("status", "number"),
    [
        ("UNIMPLEMENTED", errno.ENOSYS),
        ("DEADLINE_EXCEEDED", errno.ETIMEDOUT),
        ("RESOURCE_EXHAUSTED", errno.ECONNREFUSED),
        ("UNAUTHENTICATED", errno.ECONNREFUSED),
    ],
)
def test_a_failed_call_is_told_in_the_server_s_words(
    address: str, handlers: dict[str, grpc_server.Handler], status: str, number: int
) -> None:
    grpc = pytest.importorskip("grpc")
    handlers["List"] = lambda request, context: context.abort(getattr(grpc.StatusCode, status), "100 % of Gerät 1\nno")
    with pytest.raises(OSError, match=r".") as failed:
        call(address, LIST, seconds=30)
    assert (failed.value.errno, failed.value.strerror) == (number, f"List: {status}: 100 % of Gerät 1\nno")
    assert failed.value.filename == address


def test_a_method_the_server_does_not_have(address: str) -> None:
    with pytest.raises(OSError, match="Watch: UNIMPLEMENTED: Method not found!") as unknown:
        call(address, f"/{SERVICE}/Watch", seconds=30)
    assert unknown.value.errno == errno.ENOSYS


def test_the_time_is_bounded_and_the_server_knows_it(address: str, handlers: dict[str, grpc_server.Handler]) -> None:
    left, over = [], threading.Event()

    def late(request: bytes, context: Any) -> bytes:
        left.append(context.time_remaining())
        over.wait()
        return b""

    handlers["List"] = late
    try:
        with pytest.raises(TimeoutError) as timed:
            call(address, LIST, seconds=0.3)
    finally:
        over.set()
    # Either side may be the first to notice.
    assert timed.value.strerror in ("no answer within 0.3 s", "List: DEADLINE_EXCEEDED: Deadline Exceeded")
    assert (timed.value.errno, timed.value.filename) == (errno.ETIMEDOUT, address)
    assert 0 < left[0] <= 0.3


Script = Callable[[H2Connection], object]


def played(script: Script, *, pieces: int = 1 << 16) -> Call:
    """A call after what a server says by `script`, received in pieces of so many bytes."""
    asked, server = Call(LIST, b"", seconds=1), grpc_server.connection()
    server.initiate_connection()
    server.receive_data(asked.to_send())
    script(server)
    raw = server.data_to_send()
    for at in range(0, len(raw), pieces):
        asked.receive(raw[at : at + pieces])
    return asked


@pytest.mark.parametrize("pieces", [1, 7, 1 << 16])
def test_an_answer_may_come_in_any_pieces(pieces: int) -> None:
    asked = played(lambda server: grpc_server.answer(server, b"content"), pieces=pieces)
    assert (asked.ended, asked.answer()) == (True, b"content")


def test_frames_may_be_padded_and_a_ping_is_answered() -> None:
    server = grpc_server.connection()
    asked = Call(LIST, b"", seconds=1)
    server.receive_data(asked.to_send())
    server.send_headers(STREAM, HEADERS)
    server.send_data(STREAM, message(b"content"), pad_length=200)
    server.ping(b"12345678")
    asked.receive(server.data_to_send())
    assert not asked.ended
    assert any(isinstance(event, PingAckReceived) for event in server.receive_data(asked.to_send()))
    server.send_headers(STREAM, DONE, end_stream=True)
    asked.receive(server.data_to_send())
    assert asked.answer() == b"content"


def trailers_only(server: H2Connection) -> None:
    server.send_headers(STREAM, (*HEADERS, ("grpc-status", "14"), ("grpc-message", "not%20yet")), end_stream=True)


def unheard_of(server: H2Connection) -> None:
    server.send_headers(STREAM, (*HEADERS, ("grpc-status", "99")), end_stream=True)


def test_a_server_may_refuse_before_any_message() -> None:
    with pytest.raises(ConnectionRefusedError, match="List: UNAVAILABLE: not yet"):
        played(trailers_only).answer()
    with pytest.raises(ConnectionRefusedError, match="List: status 99: "):
        played(unheard_of).answer()


def test_what_comes_after_the_answer_does_not_matter() -> None:
    def goes(server: H2Connection) -> None:
        grpc_server.answer(server, b"content")
        server.close_connection()

    assert played(goes).answer() == b"content"


def reset(server: H2Connection) -> None:
    server.send_headers(STREAM, HEADERS)
    server.reset_stream(STREAM, ErrorCodes.REFUSED_STREAM)


def goes_away(server: H2Connection) -> None:
    server.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, b"too_many_pings", last_stream_id=0)


@pytest.mark.parametrize(
    ("script", "words"),
    [(reset, "has reset the stream: REFUSED_STREAM"), (goes_away, "goes away: ENHANCE_YOUR_CALM too_many_pings")],
)
def test_a_call_that_the_server_breaks_off_is_an_error_of_the_connection(script: Script, words: str) -> None:
    with pytest.raises(ConnectionResetError, match=f"List: the server {words}"):
        played(script)


def data(raw: bytes) -> Script:
    def script(server: H2Connection) -> None:
        server.send_headers(STREAM, HEADERS)
        server.send_data(STREAM, raw)
        server.send_headers(STREAM, DONE, end_stream=True)

    return script


def no_grpc(server: H2Connection) -> None:
    server.send_headers(STREAM, ((":status", "503"), ("content-type", "text/plain")))
    server.send_data(STREAM, b"no", end_stream=True)


def bad_header(server: H2Connection) -> None:
    server.send_headers(STREAM, ((":status", "200"), ("Upper", "case")))


def pushes(server: H2Connection) -> None:
    server.remote_settings[2] = 1
    server.remote_settings.acknowledge()
    server.push_stream(STREAM, 2, ((":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(data(message(b"content", length=8)), "the message is cut off", id="cut-off"),
        pytest.param(data(b"\0\0"), "the message is cut off", id="prefix"),
        pytest.param(data(b""), "the message is cut off", id="nothing"),
        pytest.param(data(message(b"content") * 2), "more than one message", id="two"),
        pytest.param(data(message(b"content", compressed=True)), "a compressed message", id="compressed"),
        pytest.param(no_grpc, "HTTP status 503 without one of gRPC", id="http"),
        pytest.param(bad_header, "ProtocolError: ", id="header"),
        pytest.param(pushes, "ProtocolError: ", id="push"),
    ],
)
def test_what_is_no_answer_of_grpc_is_refused(script: Script, words: str) -> None:
    with pytest.raises(ValueError, match=f"List: no answer of gRPC: {words}"):
        played(script).answer()


@contextlib.contextmanager
def saying(address: str, said: bytes) -> Iterator[None]:
    """A server that takes one connection, says this whatever it is asked, and closes it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()

        def speak() -> None:
            link, _ = listening.accept()
            with link:
                link.recv(1 << 16)
                link.sendall(said)

        speaking = threading.Thread(target=speak)
        speaking.start()
        yield
        speaking.join()


@pytest.mark.parametrize("said", [b"", b"\0\0\0\x04\0\0\0\0\0\0\0\x12", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_that_closes_before_it_has_answered(tmp_path: Path, said: bytes) -> None:
    address = str(tmp_path / "k.sock")
    with saying(address, said), pytest.raises(ConnectionResetError, match="List: the server has closed the connection"):
        call(address, LIST, seconds=30)


def test_an_answer_counts_whose_server_has_closed_the_connection_since(tmp_path: Path) -> None:
    address, server = str(tmp_path / "k.sock"), grpc_server.connection()
    server.initiate_connection()
    server.receive_data(Call(LIST, b"", seconds=1).to_send())
    grpc_server.answer(server, b"content" * 1000)
    with saying(address, server.data_to_send()):
        assert call(address, LIST, seconds=30) == b"content" * 1000


def test_the_kernel_s_own_refusals_name_the_socket(tmp_path: Path) -> None:
    address = str(tmp_path / "k.sock")
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*k\.sock'"):
        call(address, LIST, seconds=1)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(address)
        with pytest.raises(ConnectionRefusedError, match=r"Connection refused: '.*k\.sock'"):
            call(address, LIST, seconds=1)
    with pytest.raises(OSError, match="AF_UNIX path too long"):
        call("/" * 200, LIST, seconds=1)
