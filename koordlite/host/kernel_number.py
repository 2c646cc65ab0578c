"""Whole numbers as the kernel prints them: none has more than 64 bits, so whatever has is no number of the kernel's.

Longer ones would pass every formula of whole numbers and end the first that divides.
"""

from __future__ import annotations

_LEAST, _END = -(1 << 63), 1 << 64


def parse(raw: bytes) -> int:
    """The number in `raw`; ValueError when there is none, or one that no kernel prints."""
    return checked(int(raw), raw)


def checked(value: int, raw: bytes) -> int:
    """`value`, read from `raw`; ValueError when it has more than 64 bits."""
    if not _LEAST <= value < _END:
        raise ValueError(f"a number of more than 64 bits: {raw[:80]!r}")
    return value
