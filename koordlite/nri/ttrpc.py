"""ttrpc over NRI's multiplexed socket: frames in, frames out.

Two byte streams share one unix socket. Each mux frame says to which stream its bytes belong; a message of ttrpc may
span several. Stream 1 carries the runtime's calls of the plugin, stream 2 the plugin's calls of the runtime.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import threading
from collections.abc import Iterator

PLUGIN, RUNTIME = 1, 2
"""Server of a stream."""
REQUEST, RESPONSE = 1, 2
LONGEST_MESSAGE = 4 << 20
"""The runtime's own bound. A longer one ends the connection."""
_MUX, _HEADER = struct.Struct(">II"), struct.Struct(">IIBB")
_FIRST_FRAME = 4096
"""A frame that begins with a message's header may hold no more: containerd drops the link at the next byte."""


class ProtocolError(ConnectionError):
    """The peer does not speak the protocol, or says more than we are willing to hear."""


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One message of ttrpc."""

    connection: int
    stream: int
    type: int
    body: bytes


class Streams:
    """Puts the messages of ttrpc together from mux frames, in any pieces."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._parts = {PLUGIN: bytearray(), RUNTIME: bytearray()}

    def feed(self, raw: bytes) -> Iterator[Frame]:
        """The messages that are whole with these bytes. ProtocolError when a length is beyond all bounds."""
        self._raw += raw
        while len(self._raw) >= _MUX.size:
            connection, length = _MUX.unpack_from(self._raw)
            if length > LONGEST_MESSAGE + _HEADER.size:
                raise ProtocolError(f"a mux frame of {length} bytes")
            if len(self._raw) < _MUX.size + length:
                return
            body = bytes(self._raw[_MUX.size : _MUX.size + length])
            del self._raw[: _MUX.size + length]
            part = self._parts.get(connection)
            if part is None:
                continue  # The runtime drops those of other streams as well.
            part += body
            yield from self._whole(connection, part)

    def _whole(self, connection: int, part: bytearray) -> Iterator[Frame]:
        while len(part) >= _HEADER.size:
            length, stream, type_, _flags = _HEADER.unpack_from(part)
            if length > LONGEST_MESSAGE:
                raise ProtocolError(f"a message of {length} bytes")
            if len(part) < _HEADER.size + length:
                return
            body = bytes(part[_HEADER.size : _HEADER.size + length])
            del part[: _HEADER.size + length]
            yield Frame(connection, stream, type_, body)


def framed(frame: Frame) -> bytes:
    """The message in mux frames of a size that every runtime accepts."""
    raw = _HEADER.pack(len(frame.body), frame.stream, frame.type, 0) + frame.body
    if len(frame.body) > LONGEST_MESSAGE:
        raise ValueError(f"a message of {len(frame.body)} bytes")
    pieces = (raw[:_FIRST_FRAME], raw[_FIRST_FRAME:])
    return b"".join(_MUX.pack(frame.connection, len(piece)) + piece for piece in pieces if piece)


class Link:
    """One connection to a runtime. One thread receives; any may send."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._streams, self._sending = connected, Streams(), threading.Lock()
        self._closed = False

    def receive(self, seconds: float) -> tuple[Frame, ...]:
        """Messages that came within so many seconds, most often nothing or one. ConnectionError when the peer has
        gone."""
        self._socket.settimeout(seconds)
        try:
            raw = self._socket.recv(1 << 16)
        except TimeoutError:
            return ()
        if not raw:
            raise ConnectionResetError("the runtime has closed the connection")
        return tuple(self._streams.feed(raw))

    def send(self, frame: Frame) -> None:
        """Send one message whole; OSError when it cannot be."""
        with self._sending:
            self._socket.sendall(framed(frame))

    def close(self) -> None:
        """Close it. A receiver in another thread gets ConnectionError."""
        if not self._closed:
            self._closed = True
            self._socket.close()
