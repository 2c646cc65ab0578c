"""A part of a part: what a class holds of a run of ways that was set aside, as goresctrl counts it.

containerd and CRI-O place containers into groups by goresctrl. This says which ways such a group has, so that two
programs on one machine can be planned together. Source: goresctrl `l3PctRangeAllocation.Overlay` and
`l3AbsoluteAllocation.Overlay`.
"""

from __future__ import annotations

from koordlite.resctrl import masks
from koordlite.resctrl.values import PERCENT


def percent_part(*, base: int, low: int, high: int, min_bits: int) -> int:
    """Ways ⌊(low − 1) × n / 100⌋ to ⌊(high − 1) × n / 100⌋ of the n in `base`, counted from its lowest.

    A part with fewer than `min_bits` grows downwards first. ValueError for a range that is none, and for a base that is
    not one run or too small itself.
    """
    first, last = _run(base, min_bits)
    low = max(low, 1)
    if low > high or high > PERCENT:
        raise ValueError(f"{low}-{high} % is no range within 1 to 100")
    count = last - first + 1
    lowest, highest = (low - 1) * count // PERCENT, (high - 1) * count // PERCENT
    missing = max(0, max(min_bits, 1) - (highest - lowest + 1))
    down = min(missing, lowest)
    return _mask(first + lowest - down, first + highest + missing - down)


def absolute_part(*, base: int, mask: int, min_bits: int) -> int:
    """`mask` moved to the lowest way of `base`; ValueError when it does not lie within.

    Whether the mask itself has `min_bits` is asked elsewhere: only the base is looked at here.
    """
    first, _ = _run(base, min_bits)
    moved = mask << first
    if moved & ~base:
        raise ValueError(f"ways {masks.format_ways(moved)} are not all among {masks.format_ways(base)}")
    return moved


def _run(mask: int, min_bits: int) -> tuple[int, int]:
    """First and last way of a mask that has to be one run."""
    found = masks.runs(mask)
    if len(found) != 1:
        raise ValueError(f"ways {masks.format_ways(mask)} are not one run")
    first, last = found[0]
    if last - first + 1 < min_bits:
        raise ValueError(f"ways {masks.format_ways(mask)} are fewer than {min_bits}")
    return first, last


def _mask(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)
