"""A unary call of gRPC over a unix socket: one connection, one request, one answer.

Source of the protocol: gRPC, `doc/PROTOCOL-HTTP2.md`. HTTP/2 is spoken by h2.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
import urllib.parse

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

ANSWER_BYTES = 16 << 20
_STREAM = 1
"""The first that a client opens."""
_PREFIX = struct.Struct(">BI")
"""Head of a message: whether it is compressed, and its length."""
_STATUS = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_ERRNO = {"DEADLINE_EXCEEDED": errno.ETIMEDOUT, "UNIMPLEMENTED": errno.ENOSYS}
"""Status → errno; any other is a refusal."""


class Call:
    """A call without its socket: what is to be sent, and what became of it after the bytes received so far."""

    def __init__(self, path: str, request: bytes, *, seconds: float, answer_bytes: int = ANSWER_BYTES) -> None:
        """`path` is `/SERVICE/METHOD`; `seconds` is told to the server; `request` has less than 16 KiB."""
        self._method, self._answer_bytes = path.rpartition("/")[2], answer_bytes
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
        self.ended = False
        """True once the answer is whole."""
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._http.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self._http.initiate_connection()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            "grpc-timeout": f"{max(1, round(seconds * 1000))}m",
        }
        self._http.send_headers(_STREAM, list(headers.items()))
        self._http.send_data(_STREAM, _PREFIX.pack(0, len(request)) + request, end_stream=True)

    def to_send(self) -> bytes:
        """Take the bytes for the server: the request, later windows and what HTTP/2 asks to be answered."""
        return self._http.data_to_send()

    def receive(self, raw: bytes) -> None:
        """Take bytes of the server, in any pieces; none at all when it has closed the connection.
        ValueError when they are no answer of gRPC, OSError when the server ends the call in between (ECONNRESET) or
        its answer is longer than `answer_bytes` (EMSGSIZE)."""
        if not raw:
            raise self._broken("the server has closed the connection")
        try:
            events = self._http.receive_data(raw)
        except H2Error as error:
            raise self._no_answer(f"{type(error).__name__}: {error}") from error
        for event in events:
            match event:
                case ResponseReceived() | TrailersReceived():
                    self._headers |= dict(event.headers)
                case DataReceived():
                    self._take(event.data)
                    self._http.acknowledge_received_data(event.flow_controlled_length, _STREAM)
                case StreamEnded():
                    self.ended = True
                    return
                case StreamReset():
                    raise self._broken(f"the server has reset the stream: {_name(event.error_code)}")
                case ConnectionTerminated():
                    words = (event.additional_data or b"").decode(errors="replace")
                    raise self._broken(f"the server goes away: {_name(event.error_code)} {words}".rstrip())

    def _take(self, data: bytes) -> None:
        self._body += data
        if len(self._body) < _PREFIX.size:
            return
        compressed, length = _PREFIX.unpack_from(self._body)
        if compressed:
            raise self._no_answer("a compressed message, which was not asked for")
        if length > self._answer_bytes:
            many = f"{self._method}: the answer has {length} bytes, more than {self._answer_bytes}"
            raise OSError(errno.EMSGSIZE, many)
        if len(self._body) > _PREFIX.size + length:
            raise self._no_answer("more than one message")

    def answer(self) -> bytes:
        """The message of a call that has ended.
        OSError with the server's own words when it says that the call failed: ENOSYS when it does not know the method,
        ETIMEDOUT when its time was over, else ECONNREFUSED. ValueError when it gave no status, or no whole message."""
        status = self._headers.get(b"grpc-status", b"").decode(errors="replace")
        if not status.isdecimal():
            http = self._headers.get(b":status", b"").decode(errors="replace")
            raise self._no_answer(f"HTTP status {http} without one of gRPC")
        if int(status):
            name = _STATUS[int(status)] if int(status) < len(_STATUS) else f"status {status}"
            words = urllib.parse.unquote(self._headers.get(b"grpc-message", b"").decode(errors="replace"))
            raise OSError(_ERRNO.get(name, errno.ECONNREFUSED), f"{self._method}: {name}: {words}")
        if len(self._body) < _PREFIX.size or len(self._body) < _PREFIX.size + _PREFIX.unpack_from(self._body)[1]:
            raise self._no_answer("the message is cut off")
        return bytes(self._body[_PREFIX.size :])

    def _no_answer(self, why: str) -> ValueError:
        return ValueError(f"{self._method}: no answer of gRPC: {why}")

    def _broken(self, why: str) -> OSError:
        return OSError(errno.ECONNRESET, f"{self._method}: {why}")


def _name(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else str(code)


def call(address: str, path: str, request: bytes = b"", *, seconds: float, answer_bytes: int = ANSWER_BYTES) -> bytes:
    """The answer of the server at the unix socket `address` to `request`, after `seconds` at most. Errors as of
    `Call`, and those of the kernel, all with the address; ETIMEDOUT when the time is over."""
    end = time.monotonic() + seconds
    exchange = Call(path, request, seconds=seconds, answer_bytes=answer_bytes)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(seconds)
            link.connect(address)
            while not exchange.ended:
                link.settimeout(max(0.001, end - time.monotonic()))
                # What a server said before it closed the connection is still to be read.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    link.sendall(exchange.to_send())
                exchange.receive(link.recv(1 << 16))
        return exchange.answer()
    except TimeoutError as error:
        # Without words it is the socket's.
        raise OSError(errno.ETIMEDOUT, error.strerror or f"no answer within {seconds:g} s", address) from error
    except OSError as error:
        # Python refuses an address that is too long without an errno.
        raise OSError(error.errno or errno.ENAMETOOLONG, error.strerror or str(error), address) from error
