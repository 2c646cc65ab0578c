"""One large list in a file, object by object, without holding the file: a list of 150,000 pods is a gigabyte or more.

Between two objects of a list stand the same bytes as at its beginning: the closing brace, a comma, white space, and the
first key. Such bytes may stand inside of an object too, so each piece is read as JSON, and where it is none it is read
again together with what follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Generic, NamedTuple, TypeVar

import msgspec

from koordlite.model.errors import InputError, Problem

T = TypeVar("T")

LARGE_BYTES = 32 << 20
"""Smaller files are read at once."""
_HEAD_BYTES = 1 << 20
"""In so much of the file the list has to begin."""
_CHUNK_BYTES = 256 << 10
"""So that what is split and read next is still in the processor's cache."""
_HEAD = re.compile(rb'"items"\s*:\s*\[(\s*)(\{\s*"[^"\\]*"\s*:)')
_KIND = re.compile(rb'"kind"\s*:\s*"(\w*List)"')


class Piece(NamedTuple, Generic[T]):
    """One object of the list."""

    kind: str
    """The kind of the list; empty when that comes after the objects."""
    text: bytes
    """Its JSON."""
    made: T
    """What was made of it."""


def items(file: BinaryIO, path: str, make: Callable[[bytes], T]) -> Iterator[Piece[T]]:
    """The objects of a file that holds one list, whose items come first or last.

    `make` is asked for each piece and raises msgspec.DecodeError where that is no JSON, and so no whole object; it may
    be anything else that is wrong with it, as long as `make` returns. InputError when the file ends inside of an
    object. Nothing comes when there is no `items` in the first MiB: such a file has to be read at once.
    """
    held = file.read(_HEAD_BYTES)
    head = _HEAD.search(held)
    if head is None:
        return
    said = _KIND.search(held, 0, head.start())
    name = said[1].decode() if said else ""
    separator = _separators(head)
    held = held[head.start(2) :]
    while True:
        pieces, held = _pieces(held, separator, make)
        for text, made in pieces:
            yield Piece(name, text, made)
        more = file.read(_CHUNK_BYTES)
        if not more:
            last = _last(held, path)
            yield Piece(name, last, make(last))
            return
        held += more


def _separators(head: re.Match[bytes]) -> tuple[re.Pattern[bytes], int]:
    """What may stand between two objects, and how much of it belongs to the next one."""
    space, lead = head[1], head[2]
    between = b"|".join(map(re.escape, dict.fromkeys((space, b" ", b""))))
    return re.compile(rb"\},(?:" + between + rb")" + re.escape(lead)), len(lead)


def _pieces(
    held: bytes, separator: tuple[re.Pattern[bytes], int], make: Callable[[bytes], T]
) -> tuple[list[tuple[bytes, T]], bytes]:
    """The objects that are whole, each with what was made of it, and the rest."""
    pattern, lead = separator
    found: list[tuple[bytes, T]] = []
    start = 0
    for hit in pattern.finditer(held):
        piece = held[start : hit.start() + 1]
        try:
            found.append((piece, make(piece)))
        except msgspec.DecodeError:
            continue  # The separator stands inside of an object.
        start = hit.end() - lead
    return found, held[start:]


def _last(held: bytes, path: str) -> bytes:
    """The last object, without the end of the list."""
    try:
        text = held.decode()
        _, end = json.JSONDecoder().raw_decode(text)
        if not text[end:].lstrip().startswith("]"):
            raise ValueError("the list does not end after it")
    except ValueError as error:
        do = "the file was cut off or changed by hand: make it anew"
        raise InputError(Problem(path, "$.items", "", f"the last object cannot be read: {error}", do)) from error
    return text[:end].encode()
