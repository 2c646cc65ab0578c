"""One piece of a record: a mark, and frames. Whole up to the last complete frame, wherever writing it was cut off.

    piece   MARK, version (one byte), then frames
    frame   length (4 bytes), CRC-32 of the rest (4 bytes), so many bytes of one deflate stream (RFC 1951)

Each frame ends at a flush of the stream, whose four constant bytes are left out (as RFC 7692 does). Inflated, the
first frame is the head: what wrote it, and the table of classes. Each further one is a moment, as the difference from
the one before it in the piece; so every piece can be read alone, and pieces one after the other are a record.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from koordlite.record import means, words
from koordlite.record.damage import Damage, RecordError
from koordlite.record.delta import difference
from koordlite.record.moment import Moment
from koordlite.record.patch import Patcher
from koordlite.record.plain import Builder

MARK = b"koordlite-record"
VERSION = 1
_NUMBER_BYTES = 4
FRAME_HEAD_BYTES = 2 * _NUMBER_BYTES
LONGEST_FRAME = 1 << 24
"""A length beyond it is no length: the text of MARK, read as one, is far beyond."""
LONGEST_INFLATED = 1 << 28
_FLUSH_END = b"\x00\x00\xff\xff"
_RAW = -zlib.MAX_WBITS
LEVEL = 6


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a piece says of itself."""

    koordlite: str
    """The version that wrote it."""
    node: str = ""
    machine: str = ""
    masked: bool = False
    """Names and labels are pseudonyms."""
    classes: list[list[Any]] = msgspec.field(default_factory=words.table)


class Writer:
    """Turns moments into the bytes of one piece."""

    def __init__(self, head: Head) -> None:
        self._deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)
        self._before: Moment | None = None
        self._means = means.Means()
        self.start = MARK + bytes([VERSION]) + self._frame(msgspec.msgpack.encode(head))
        """What the piece begins with."""

    def frame(self, moment: Moment) -> bytes:
        """The bytes that add `moment`."""
        slim = dataclasses.replace(moment, seen=means.lean(moment.seen))
        written = self._means.written(moment.seen, sample=not moment.woken)
        changed = difference(slim, self._before)
        self._before = slim
        return self._frame(msgspec.msgpack.encode([changed, written]))

    def _frame(self, content: bytes) -> bytes:
        body = self._deflate.compress(content) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        body = body.removesuffix(_FLUSH_END)
        return _number(len(body)) + _number(zlib.crc32(body)) + body


class Parser:
    """Takes one piece apart, frame by frame. `head` is there once the first frame was read."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_RAW)
        self._before: Moment | None = None
        self._means = means.Means()
        self._patcher: Patcher | None = None
        self.head: Head | None = None

    def take(self, body: bytes) -> Moment | None:
        """The moment in a frame; None for the head. Damage when it is neither."""
        content = self._inflated(body)
        try:
            if self._patcher is None:
                self.head = msgspec.msgpack.decode(content, type=Head)
                self._patcher = Patcher(Builder(self.head.classes))
                return None
            changed, written = msgspec.msgpack.decode(content, type=tuple[Any, list[Any]])
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise Damage(f"a frame does not hold what it should: {error}") from error
        found = self._patcher.patched(self._before, changed)
        if not isinstance(found, Moment):
            raise Damage("a frame holds something else than a moment")
        self._before = found
        return self._whole(found, written, self._patcher)

    def _whole(self, slim: Moment, written: list[Any], patcher: Patcher) -> Moment:
        try:
            seen = self._means.read(slim.seen, written, patcher, sample=not slim.woken)
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError) as error:
            raise Damage(f"the means of a moment do not follow from what stands before it: {error}") from error
        return dataclasses.replace(slim, seen=seen)

    def _inflated(self, body: bytes) -> bytes:
        try:
            content = self._inflate.decompress(body + _FLUSH_END, LONGEST_INFLATED)
        except zlib.error as error:
            raise Damage(f"a frame cannot be inflated: {error}") from error
        if self._inflate.unconsumed_tail:
            raise Damage("a frame is longer than any can be")
        return content


def bodies(raw: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Where each frame from `at` on ends, and what is in it, up to the first that is cut off or wrong."""
    while (body := body_at(raw, at)) is not None:
        at += FRAME_HEAD_BYTES + len(body)
        yield at, body


def body_at(raw: bytes, at: int) -> bytes | None:
    """What the frame at `at` holds; None when there is no whole and right one."""
    length = int.from_bytes(raw[at : at + _NUMBER_BYTES], "little")
    body = raw[at + FRAME_HEAD_BYTES : at + FRAME_HEAD_BYTES + length]
    sound = 0 < length <= LONGEST_FRAME and len(body) == length
    return body if sound and raw[at + _NUMBER_BYTES : at + FRAME_HEAD_BYTES] == _number(zlib.crc32(body)) else None


def check_start(raw: bytes, at: int, source: str) -> int:
    """Where the frames of the piece at `at` begin. RecordError when it is none, or of another version."""
    if raw[at : at + len(MARK)] != MARK:
        raise RecordError(f"{source}: this is no record: it does not begin with {MARK.decode()}; name another file")
    version = raw[at + len(MARK) : at + len(MARK) + 1]
    if version != bytes([VERSION]):
        found = str(version[0]) if version else "nothing"
        raise RecordError(
            f"{source}: the record has the format {found}, this koordlite reads format {VERSION}; "
            "use the version that wrote it"
        )
    return at + len(MARK) + 1


def _number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_BYTES, "little")
