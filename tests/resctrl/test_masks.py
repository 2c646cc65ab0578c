"""Cache masks: percentages as ways, runs of ways, overlaps, and the reason in words."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from koordlite.resctrl import masks
from koordlite.resctrl.values import CacheCapability

MASKS = st.integers(0, 2**20 - 1)


def cap(cbm: int, least: int = 1) -> CacheCapability:
    return CacheCapability(cbm_mask=cbm, min_cbm_bits=least)


@pytest.mark.parametrize(
    ("start", "end", "mask"),
    [(0, 1, 0b11), (95, 100, 0b11 << 10), (50, 55, 0b11 << 6)],
    ids=["widened upwards", "widened downwards at the end", "widened in the middle"],
)
def test_mask_has_at_least_two_bits_where_the_machine_says_so(start: int, end: int, mask: int) -> None:
    assert masks.cache_mask(start_percent=start, end_percent=end, cap=cap(0xFFF, 2)) == mask


@pytest.mark.parametrize(("start", "end"), [(-1, 50), (0, 101), (30, 30), (40, 30)])
def test_a_bad_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"range {start}-{end} %"):
        masks.cache_mask(start_percent=start, end_percent=end, cap=cap(0xFFF))


@pytest.mark.parametrize("cbm", [0, 4, 0x101, -1])
def test_a_machine_mask_with_holes_is_refused(cbm: int) -> None:
    with pytest.raises(ValueError, match="cbm_mask"):
        masks.cache_mask(start_percent=0, end_percent=100, cap=cap(cbm))


@given(ways=st.integers(1, 32), least=st.integers(0, 4), start=st.integers(0, 99), end=st.integers(1, 100))
def test_a_mask_is_legal(ways: int, least: int, start: int, end: int) -> None:
    assume(start < end)
    whole = (1 << ways) - 1
    mask = masks.cache_mask(start_percent=start, end_percent=end, cap=cap(whole, least))
    run = mask // (mask & -mask)
    assert mask & ~whole == 0
    assert run & (run + 1) == 0, "contiguous"
    assert mask.bit_count() >= min(max(1, least), ways)


@given(MASKS)
def test_runs_hold_the_bits_of_the_mask_and_nothing_else(mask: int) -> None:
    ways = [way for first, last in masks.runs(mask) for way in range(first, last + 1)]
    assert sum(1 << way for way in ways) == mask
    assert all(b[0] - a[1] > 1 for a, b in zip(masks.runs(mask), masks.runs(mask)[1:], strict=False))


@given(st.lists(MASKS, max_size=5))
def test_ways_held_twice(held: list[int]) -> None:
    twice = [way for way in range(20) if sum(mask >> way & 1 for mask in held) > 1]
    assert masks.overlap(held) == sum(1 << way for way in twice)


def refused(mask: int, cap: CacheCapability) -> bool:
    """Whether a kernel on such hardware would not take the mask, or the group would have no cache."""
    bits = f"{mask:b}".strip("0")
    return not bits or "0" in bits or len(bits) < cap.min_cbm_bits or mask & ~cap.cbm_mask != 0


@given(st.integers(1, 20), st.integers(0, 3), st.integers(0, 99), st.integers(1, 100))
def test_no_part_is_refused_by_its_machine(ways: int, least: int, start: int, length: int) -> None:
    cap = CacheCapability((1 << ways) - 1, min(least, ways))
    end = min(100, start + length)
    fit = masks.cache_fit(start_percent=start, end_percent=end, cap=cap)
    assert fit.value is not None
    assert not refused(fit.value, cap)
    assert fit.why.endswith(f"mask {fit.value:x}")


@pytest.mark.parametrize(
    ("start", "end", "cap", "why"),
    [
        (0, 30, CacheCapability(0x7FF, 1), "30 % of 11 ways is 4 ways: mask f"),
        (0, 5, CacheCapability(0x7FF, 1), "5 % of 11 ways is 1 way: mask 1"),
        (50, 100, CacheCapability(0xFFF, 1), "50-100 % of 12 ways is ways 6-11: mask fc0"),
        (99, 100, CacheCapability(0xFFF, 1), "99-100 % of 12 ways is way 11, not less than 1: mask 800"),
        (0, 1, CacheCapability(0xFFF, 2), "1 % of 12 ways is 2 ways, not less than 2: mask 3"),
        (0, 100, CacheCapability(0xFFF, 1, 0xC00), "100 % of 12 ways is 12 ways, 10-11 shared with I/O: mask fff"),
    ],
)
def test_why_a_part_is_what_it_is(start: int, end: int, cap: CacheCapability, why: str) -> None:
    assert masks.cache_fit(start_percent=start, end_percent=end, cap=cap).why == why
