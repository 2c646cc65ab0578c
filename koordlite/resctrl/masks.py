"""Cache masks: a range in percent as ways of this machine, and what makes a mask one that the hardware takes.

A mask has one bit for each way of the cache. Rules: Linux resctrl document, "Cache Bit Masks"; percentages: Koordinator
`calculateCatL3MaskValue`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from koordlite.resctrl.values import PERCENT, CacheCapability


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """A value this machine takes, and in words how it follows from the request. None: nothing is to be written."""

    value: int | None
    why: str


def runs(mask: int) -> tuple[tuple[int, int], ...]:
    """First and last way of each run of ones, from bit 0 up: 0b1011 has the runs 0-1 and 3-3."""
    intervals: list[tuple[int, int]] = []
    for way in range(mask.bit_length()):
        if mask >> way & 1:
            first = intervals.pop()[0] if intervals and intervals[-1][1] == way - 1 else way
            intervals.append((first, way))
    return tuple(intervals)


def format_ways(mask: int) -> str:
    """The ways of a mask as a list of ranges, `0-3,8`; `none` for 0."""
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs(mask)) or "none"


def overlap(masks: Iterable[int]) -> int:
    """The ways that more than one of the masks has."""
    union = twice = 0
    for mask in masks:
        twice |= union & mask
        union |= mask
    return twice


def cache_mask(*, start_percent: int, end_percent: int, cap: CacheCapability) -> int:
    """2^⌈ways × end %⌉ − 2^⌈ways × start %⌉, widened to at least `min_cbm_bits` contiguous bits inside `cbm_mask`.

    ValueError unless 0 ≤ start < end ≤ 100 and `cbm_mask` is a run of ones from bit 0. Never 0, which Intel's kernels
    refuse: Koordinator (`calculateCatL3MaskValue`) gives 0 for narrow ranges.
    """
    first, end = _way_range(start_percent, end_percent, cap)
    least = min(max(1, cap.min_cbm_bits), cap.ways)
    end = min(max(end, first + least), cap.ways)
    first = min(first, end - least)
    return (1 << end) - (1 << first)


def cache_fit(*, start_percent: int, end_percent: int, cap: CacheCapability) -> Fit:
    """`cache_mask` with the hardware's rules in words: `30 % of 11 ways is 4 ways: mask f`."""
    mask = cache_mask(start_percent=start_percent, end_percent=end_percent, cap=cap)
    first, end = _way_range(start_percent, end_percent, cap)
    span = f"{start_percent}-{end_percent} %" if start_percent else f"{end_percent} %"
    count = mask.bit_count()
    ways = f"way{'s' * (count != 1)}"
    part = f"{count} {ways}" if not start_percent else f"{ways} {format_ways(mask)}"
    widened = f", not less than {max(1, cap.min_cbm_bits)}" if mask != (1 << end) - (1 << first) else ""
    shared = f", {format_ways(mask & cap.shareable_bits)} shared with I/O" if mask & cap.shareable_bits else ""
    return Fit(mask, f"{span} of {cap.ways} ways is {part}{widened}{shared}: mask {mask:x}")


def _way_range(start_percent: int, end_percent: int, cap: CacheCapability) -> tuple[int, int]:
    """The first way of the range and the one after its last, as Koordinator rounds them."""
    if not 0 <= start_percent < end_percent <= PERCENT:
        raise ValueError(f"cache range {start_percent}-{end_percent} % is not within 0 ≤ start < end ≤ 100")
    if cap.cbm_mask <= 0 or cap.cbm_mask != (1 << cap.ways) - 1:
        raise ValueError(f"cbm_mask {cap.cbm_mask:x} is not a run of ones from bit 0")
    return _way(cap.ways, start_percent), _way(cap.ways, end_percent)


def _way(ways: int, percent: int) -> int:
    # In doubles, as Koordinator computes it.
    return math.ceil(float(ways) * float(percent) / 100.0)
