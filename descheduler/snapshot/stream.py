"""One large list in a file, object by object, without holding the file: a list of 150,000 pods is a gigabyte or more.

Between two objects of a list stand the same bytes as at its beginning: the closing brace, a comma, white space, and the
first key. Such bytes may stand inside of an object too, so each piece is read as JSON, and where it is none it is read
again together with what follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from koordlite.model.errors import InputError, Problem

LARGE_BYTES = 32 << 20
"""Smaller files are read at once."""
_CHUNK_BYTES = 4 << 20
_HEAD = re.compile(rb'"items"\s*:\s*\[(\s*)(\{\s*"[^"\\]*"\s*:)')
_KIND = re.compile(rb'"kind"\s*:\s*"(\w*List)"')


def items(file: BinaryIO, path: str) -> Iterator[tuple[str, bytes]]:
    """(kind of the object, else of the list, else empty; JSON of one object) of a file that holds one list, whose items
    come first or last.

    InputError when the file ends inside of an object. Nothing comes when there is no `items` in the first MiB: such a
    file has to be read at once.
    """
    held = file.read(_CHUNK_BYTES)
    head = _HEAD.search(held, 0, 1 << 20)
    if head is None:
        return
    said = _KIND.search(held, 0, head.start())
    name = said[1].decode() if said else ""
    separator = _separators(head)
    held = held[head.start(2) :]
    while True:
        pieces, held = _pieces(held, separator)
        for kind, piece in pieces:
            yield kind or name, piece
        more = file.read(_CHUNK_BYTES)
        if not more:
            yield name, _last(held, path)
            return
        held += more


def _separators(head: re.Match[bytes]) -> tuple[re.Pattern[bytes], int]:
    """What may stand between two objects, and how much of it belongs to the next one."""
    space, lead = head[1], head[2]
    between = b"|".join(map(re.escape, dict.fromkeys((space, b" ", b""))))
    return re.compile(rb"\},(?:" + between + rb")" + re.escape(lead)), len(lead)


def _pieces(held: bytes, separator: tuple[re.Pattern[bytes], int]) -> tuple[list[tuple[str, bytes]], bytes]:
    """The objects that are whole, each with its kind if it says one, and the rest."""
    pattern, lead = separator
    found: list[tuple[str, bytes]] = []
    start = 0
    for hit in pattern.finditer(held):
        piece = held[start : hit.start() + 1]
        kind = _kind(piece)
        if kind is not None:
            found.append((kind, piece))
            start = hit.end() - lead
    return found, held[start:]


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


_decode = msgspec.json.Decoder(_Kind).decode


def _kind(piece: bytes) -> str | None:
    """The kind that an object says, or empty; None when the piece is no JSON."""
    try:
        return _decode(piece).kind
    except msgspec.ValidationError:
        return ""  # JSON, but no object of Kubernetes: whoever reads it says so.
    except msgspec.DecodeError:
        return None


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
