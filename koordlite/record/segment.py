"""One piece of a record: a mark, and frames. Whole up to the last complete frame, wherever writing it was cut off.

    piece   MARK, version (one byte), then frames
    frame   length (4 bytes), CRC-32 of the rest (4 bytes), so many bytes of one Zstandard stream (RFC 8878)

Each frame ends at a flush of the stream. Decompressed, the first frame is the head: what wrote it. Each further one is
a moment, as its difference from the one before it in the piece; so every piece can be read alone, and pieces one after
the other are a record.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec
import zstandard

from koordlite.model.errors import UNREADABLE
from koordlite.record import difference
from koordlite.record.round_record import Damage, RecordError, RoundRecord

MARK = b"koordlite-record"
VERSION = 3
"""1 was a format of our own, deflated."""
_NUMBER_BYTES = 4
FRAME_HEAD_BYTES = 2 * _NUMBER_BYTES
LONGEST_FRAME = 1 << 24
"""A length beyond it is no length: the text of MARK, read as one, is far beyond."""
LONGEST_CONTENT = 1 << 28
_WINDOW_LOG = 19
"""Window of the compression: 512 KiB, some fourteen rounds of 110 pods. Writing takes 1.6 MiB of memory; with
a window of 2 MiB it is 3.1, for 6 % fewer bytes."""
_WIDEST_LOG = 21
"""Window that a reader accepts: earlier records look back 2 MiB."""
_LEVEL = 6
_HASH_LOG, _CHAIN_LOG = 17, 16
"""Tables of a quarter of the level's own size: 1.9 MiB and a third of the time less, for 2 % more bytes."""
_SLICE_BYTES = 1024
"""Bytes that are decompressed before the length is looked at: at most 45 MiB come out of them."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a piece."""

    koordlite: str
    """The version that wrote it."""
    node: str = ""
    machine: str = ""
    masked: bool = False
    """Names and labels are pseudonyms."""


class PieceWriter:
    """Turns rounds into the bytes of one piece."""

    def __init__(self, head: Head) -> None:
        terms = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL, window_log=_WINDOW_LOG, hash_log=_HASH_LOG, chain_log=_CHAIN_LOG
        )
        self._compress = zstandard.ZstdCompressor(compression_params=terms).compressobj()
        self._differences = difference.DifferenceWriter()
        self.start = MARK + bytes([VERSION]) + self._frame(msgspec.msgpack.encode(head))
        """Beginning of the piece."""

    def frame(self, record: RoundRecord) -> bytes:
        """The bytes that add `record`."""
        return self._frame(self._differences.frame(record))

    def _frame(self, content: bytes) -> bytes:
        body = self._compress.compress(content) + self._compress.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        return _number(len(body)) + _number(zlib.crc32(body)) + body


class Parser:
    """Takes one piece apart, frame by frame. `head` is there once the first frame was read."""

    def __init__(self) -> None:
        limit = zstandard.ZstdDecompressor(max_window_size=1 << _WIDEST_LOG)
        self._decompress = limit.decompressobj()
        self._differences = difference.DifferenceReader()
        self.head: Head | None = None

    def take(self, body: bytes) -> RoundRecord | None:
        """The round in a frame; None for the head. Damage when it is neither, RecordError when this koordlite has
        other classes or fields than the one that wrote it."""
        content = bytearray()
        try:
            for at in range(0, len(body), _SLICE_BYTES):
                content += self._decompress.decompress(body[at : at + _SLICE_BYTES])
                if len(content) > LONGEST_CONTENT:
                    raise Damage("a frame is longer than any can be")
        except (zstandard.ZstdError, EOFError) as error:
            raise Damage(f"a frame cannot be decompressed: {error}") from error
        if self.head is not None:
            return self._differences.read(bytes(content))
        try:
            self.head = msgspec.msgpack.decode(content, type=Head)
        except UNREADABLE as error:
            raise Damage(f"a frame does not hold what it should: {error}") from error
        return None


def bodies(raw: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """End and contents of each frame from `at` on, up to the first that is cut off or wrong."""
    while True:
        length = int.from_bytes(raw[at : at + _NUMBER_BYTES], "little")
        begin, end = at + FRAME_HEAD_BYTES, at + FRAME_HEAD_BYTES + length
        body = raw[begin:end]
        if not 0 < length <= LONGEST_FRAME or len(body) < length:
            return
        if raw[at + _NUMBER_BYTES : begin] != _number(zlib.crc32(body)):
            return
        yield end, body
        at = end


def check_start(raw: bytes, at: int, source: str) -> int:
    """Offset at which the frames of the piece at `at` begin. RecordError when it is none, or of another version."""
    if raw[at : at + len(MARK)] != MARK:
        raise RecordError(f"{source}: this is no record: it does not begin with {MARK.decode()}; name another file")
    version = raw[at + len(MARK) : at + len(MARK) + 1]
    if version != bytes([VERSION]):
        it = f"{version[0]}, {'an older' if version[0] < VERSION else 'a later'} one" if version else "nothing"
        raise RecordError(
            f"{source}: the record has the format {it}; this koordlite reads format {VERSION}: "
            "read it with the version that wrote it, or remove it"
        )
    return at + len(MARK) + 1


def _number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_BYTES, "little")
