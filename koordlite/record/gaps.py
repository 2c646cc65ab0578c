"""Many whole numbers that each moved a little, in few bytes.

The first byte is how many bits all differences are shifted by (memory comes in pages), the second how many bytes a
difference takes. Signs go to the lowest bit (zigzag), and bytes of the same weight stand together: the high ones are
nearly all 0, which the compression that follows makes nothing of.
"""

from __future__ import annotations

import array
import functools
import operator
import sys
from collections.abc import Sequence

_LEAST_SHIFT = 8
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Array types by size in bytes, as CPython has them on every Linux machine."""


def gaps(new: Sequence[int], old: Sequence[int]) -> bytes | None:
    """By how much each number is more; None when nothing moved. Differences are below 2^62."""
    found = list(map(operator.sub, new, old))
    bits = functools.reduce(operator.or_, found, 0)
    if not bits:
        return None
    shift = (bits & -bits).bit_length() - 1
    shift = shift if shift >= _LEAST_SHIFT else 0
    if shift:
        found = [gap >> shift for gap in found]
    zigzag = [gap << 1 if gap >= 0 else ~(gap << 1) for gap in found]
    width = next(width for width in _CODES if max(zigzag) >> (8 * width) == 0)
    raw = _bytes(array.array(_CODES[width], zigzag))
    return bytes((shift, width)) + b"".join(raw[at::width] for at in range(width))


def plus(old: Sequence[int], moved: bytes | None) -> list[int]:
    """The numbers that `gaps` was given first. ValueError when `moved` was not made for `old`."""
    if moved is None:
        return list(old)
    shift, width, planes = moved[0], moved[1], moved[2:]
    if width not in _CODES or shift > 64 or len(planes) != len(old) * width:
        raise ValueError(f"{len(planes)} bytes are no differences of {len(old)} numbers")
    raw = bytearray(len(planes))
    for at in range(width):
        raw[at::width] = planes[at * len(old) : (at + 1) * len(old)]
    zigzag = array.array(_CODES[width], bytes(raw))
    if sys.byteorder == "big":
        zigzag.byteswap()
    return [number + (((code >> 1) ^ -(code & 1)) << shift) for number, code in zip(old, zigzag, strict=True)]


def _bytes(numbers: array.array[int]) -> bytes:
    """The least significant byte first, on every machine."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
