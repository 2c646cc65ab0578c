"""A large list in a file or pipe, object by object, without holding it: a list of 150,000 pods is a gigabyte or more.

Between two objects of a list stand the same bytes as at its beginning: the closing brace, a comma, white space, and the
first key. Such bytes may stand inside of an object too, so each piece is read as JSON, and where it is none it is read
again together with what follows. A list whose objects begin with different keys, which people and other programs write,
has no such mark: from where it is missing, objects are read one after the other, which takes longer.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from koordlite.model.errors import UNREADABLE, InputError, Problem

T = TypeVar("T")

LARGE_BYTES = 32 << 20
"""Smaller files are read at once."""
_HEAD_BYTES = 1 << 20
"""Size of the part of the file in which the list has to begin."""
_OBJECT_BYTES = 4 << 20
"""No API server takes an object that large: so much without the end of one means that the marks differ."""
_CHUNK_BYTES = 256 << 10
"""Size of a chunk, so that what is split and read next is still in the processor's cache."""
_HEAD = re.compile(rb'"items"\s*:\s*\[(\s*)(\{\s*"[^"\\]*"\s*:)')
_NEXT = re.compile(r"\s*([,\]])\s*")
_SHOWN_CHARACTERS = 40
_scan = json.JSONDecoder().raw_decode
_KIND = re.compile(rb'"kind"\s*:\s*"(\w*List)"')


class Piece(NamedTuple, Generic[T]):
    """An object of the list."""

    kind: str
    """The kind of the list; empty when that comes after the objects."""
    text: bytes
    """Its JSON."""
    made: T
    """Value made of it."""


class Readable(Protocol):
    """The part of a binary file that is needed."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes: so many, unless it ends before; without a size all that are left."""


class Rereadable:
    """A file that can be read from its beginning once more, as a pipe cannot."""

    def __init__(self, file: Readable) -> None:
        self._file, self._copy, self._ahead, self._keeps = file, b"", b"", True

    def goes_on(self) -> bool:
        """More comes than the beginning of it."""
        self._ahead = self._file.read(_HEAD_BYTES)
        return len(self._ahead) == _HEAD_BYTES

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        data, self._ahead = self._ahead or self._file.read(size), b""
        self._copy += data if self._keeps else b""
        return data

    def forget(self) -> None:
        """Keep nothing of what was read, and of what will be."""
        self._copy, self._keeps = b"", False

    def whole(self) -> bytes:
        """Everything, also what was read before."""
        return self._copy + self._ahead + self._file.read()


def items(file: Readable, path: str, make: Callable[[bytes], T]) -> Iterator[Piece[T]]:
    """The objects of a file that holds one list, whose items come first or last.

    `make` is asked for each piece and raises msgspec.DecodeError where that is no JSON, and so no whole object; it may
    be anything else that is wrong with it, as long as `make` returns. InputError when the file ends inside of an
    object. Nothing comes when there is no `items` in the first MiB: such a file has to be read at once.
    """
    data = file.read(_HEAD_BYTES)
    head = _HEAD.search(data)
    if head is None:
        return
    named = _KIND.search(data, 0, head.start())
    name = named[1].decode() if named else ""
    # What may stand between two objects, and how much of it belongs to the next one.
    space, lead = head[1], head[2]
    between = b"|".join(map(re.escape, dict.fromkeys((space, b" ", b""))))
    separator = re.compile(rb"\},(?:" + between + rb")" + re.escape(lead)), len(lead)
    data = data[head.start(2) :]
    while True:
        pieces, data = _pieces(data, separator, make)
        for text, value in pieces:
            yield Piece(name, text, value)
        more = file.read(_CHUNK_BYTES)
        data += more
        if not more or len(data) > _OBJECT_BYTES:
            yield from (Piece(name, text, value) for text, value in _one_by_one(data, file, path, make))
            return


def _pieces(
    data: bytes, separator: tuple[re.Pattern[bytes], int], make: Callable[[bytes], T]
) -> tuple[list[tuple[bytes, T]], bytes]:
    """The objects that are whole, each with what was made of it, and the rest."""
    pattern, lead = separator
    pieces: list[tuple[bytes, T]] = []
    start = 0
    for hit in pattern.finditer(data):
        piece = data[start : hit.start() + 1]
        try:
            pieces.append((piece, make(piece)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # The separator stands inside of an object.
        start = hit.end() - lead
    return pieces, data[start:]


def _one_by_one(data: bytes, file: Readable, path: str, make: Callable[[bytes], T]) -> Iterator[tuple[bytes, T]]:
    """The objects up to the end of the list; InputError for one that is no JSON or that the file ends in."""
    text, is_last = _Text(data, file), False
    while not is_last:
        try:
            document, is_last = text.next()
            value = make(document)
        except UNREADABLE as error:
            why = f"the object that begins {text.beginning!r} cannot be read: {getattr(error, 'msg', None) or error}"
            do = "the file was cut off or changed by hand: create it again"
            raise InputError(Problem(path, "$.items", "", why, do)) from error
        yield document, value


class _Text:
    """A file from some place on, read further as it is needed."""

    def __init__(self, data: bytes, file: Readable) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder("utf-8")()
        self._bytes, self._text, self._at = data, "", 0

    @property
    def beginning(self) -> str:
        """The next characters, for a message."""
        return self._text[self._at : self._at + _SHOWN_CHARACTERS]

    def next(self) -> tuple[bytes, bool]:
        """The next object, and whether the list ends after it; ValueError when it cannot be known where it ends."""
        while True:
            try:
                end = _scan(self._text, self._at)[1]
                after = _NEXT.match(self._text, end)
                if after is None:
                    raise ValueError("neither another object nor the end of the list comes after it")
                document, self._at = self._text[self._at : end].encode(), after.end()
                return document, after[1] == "]"
            except ValueError:
                if not self._reads_on():
                    raise

    def _reads_on(self) -> bool:
        """Read more; False at the end of the file, and when so much was read that more would not help."""
        more = self._bytes or self._file.read(_CHUNK_BYTES)
        if not more or len(self._text) - self._at > LARGE_BYTES:
            return False
        unread = self._text[self._at :] + self._decoder.decode(more)
        self._bytes, self._text, self._at = b"", unread.lstrip(), 0
        return True
