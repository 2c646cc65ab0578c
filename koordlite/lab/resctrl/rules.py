"""The kernel's parser of writes to `schemata`, value by value, and its words when it refuses.

Follows the resctrl driver (`ctrlmondata.c` of Linux 6.1 and 6.12): the order of the checks and the texts of
`last_cmd_status` are the kernel's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from koordlite.lab.machine.rdt import Bandwidth, Cache

BLANKS = " \t\n\v\f\r"
"""What the kernel strips around names and values."""

NO_LIMIT_MBPS = 2**32 - 1

_DECIMAL = re.compile(r"\+?[0-9]+\Z", re.ASCII)
_HEX = re.compile(r"\+?(?:0[xX])?([0-9a-fA-F]+)\Z", re.ASCII)
_LONG = 1 << 64


class Rejected(Exception):
    """The kernel answers EINVAL; the message goes to `last_cmd_status` (empty: it says nothing)."""


Values = dict[int, int]


class Target(msgspec.Struct, frozen=True):
    """One resource as a group may write it: its cache ids, and how a value is read and checked."""

    ids: tuple[int, ...]
    read: Callable[[int, str], int]
    """(cache id, text) → the value; Rejected for one that cannot be."""
    at_once: Callable[[int, int], None] | None = None
    """Takes each value as soon as it is read, duplicates too: how the software controller of mba_MBps does it."""


def staged(text: str, targets: Mapping[str, Target]) -> dict[str, Values]:
    """Every value a write asks for, by resource and cache id; nothing of it may be applied when it raises Rejected."""
    wanted: dict[str, Values] = {}
    for line in text.split("\n"):
        name, colon, rest = line.partition(":")
        name = name.strip(BLANKS)
        if not colon:
            raise Rejected("Missing ':'")
        if not rest:
            raise Rejected(f"Missing '{name}' value")
        if name not in targets:
            raise Rejected(f"Unknown or unsupported resource name '{name}'")
        _stage_line(rest, targets[name], wanted.setdefault(name, {}))
    return wanted


def _stage_line(text: str, target: Target, into: Values) -> None:
    for cache_id, value in _pieces(text):
        if cache_id not in target.ids:
            raise Rejected("")
        if target.at_once:
            target.at_once(cache_id, target.read(cache_id, value))
            continue
        if cache_id in into:
            raise Rejected(f"Duplicate domain {cache_id}")
        into[cache_id] = target.read(cache_id, value)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """`ID=VALUE;ID=VALUE`; one `;` at the end is fine, an empty piece elsewhere is not."""
    pieces = text.split(";")
    if len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    for piece in pieces:
        number, equals, value = piece.partition("=")
        if not equals or not _DECIMAL.match(number) or int(number) >= _LONG:
            raise Rejected("Missing '=' or non-numeric domain")
        yield int(number), value.strip(BLANKS)


def mask(text: str, cache: Cache) -> int:
    """A cache bit mask that this hardware takes."""
    match = _HEX.match(text)
    value = int(match[1], 16) if match else _LONG
    if value >= _LONG:
        raise Rejected(f"Non-hex character in the mask {text}")
    if value > cache.full or (value == 0 and cache.min_bits > 0):
        raise Rejected("Mask out of range")
    run = lowest_run(value)
    if value != run and not cache.sparse:
        raise Rejected(f"The mask {value:x} has non-consecutive 1-bits")
    if run.bit_count() < cache.min_bits:
        raise Rejected(f"Need at least {cache.min_bits} bits in the mask")
    return value


def bandwidth(text: str, limit: Bandwidth) -> int:
    """A bandwidth within the hardware's range, rounded up to its granularity."""
    value = _u32(text)
    if not limit.minimum <= value <= limit.full:
        raise Rejected(f"MB value {value} out of range [{limit.minimum},{limit.full}]")
    return -(-value // limit.granularity) * limit.granularity


def megabytes(text: str) -> int:
    """A bandwidth in MB/s for the software controller: any 32-bit number."""
    return _u32(text)


def _u32(text: str) -> int:
    value = int(text) if _DECIMAL.match(text) else 1 << 32
    if value >= 1 << 32:
        raise Rejected(f"Invalid MB value {text}")
    return value


def lowest_run(bits: int) -> int:
    """The lowest contiguous run of ones: what a new group is given of the free bits."""
    if not bits:
        return 0
    lowest = bits & -bits
    return bits & ~(bits + lowest)
