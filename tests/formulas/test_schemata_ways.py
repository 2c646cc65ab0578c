"""Masks: runs, overlaps, and why a part came to the ways it did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.resctrl import bandwidth, overlay
from koordlite.resctrl import masks as schemata_ways
from koordlite.resctrl.values import BandwidthCapability, CacheCapability

masks = st.integers(0, 2**20 - 1)


@pytest.mark.parametrize(
    ("mask", "runs", "shown"),
    [
        (0, (), "none"),
        (0b1, ((0, 0),), "0"),
        (0b1110, ((1, 3),), "1-3"),
        (0b1011, ((0, 1), (3, 3)), "0-1,3"),
    ],
)
def test_runs(mask: int, runs: tuple[tuple[int, int], ...], shown: str) -> None:
    assert (schemata_ways.runs(mask), schemata_ways.shown(mask)) == (runs, shown)


@given(masks)
def test_runs_hold_the_bits_of_the_mask_and_nothing_else(mask: int) -> None:
    ways = [way for first, last in schemata_ways.runs(mask) for way in range(first, last + 1)]
    assert sum(1 << way for way in ways) == mask
    assert all(b[0] - a[1] > 1 for a, b in zip(schemata_ways.runs(mask), schemata_ways.runs(mask)[1:], strict=False))


@given(st.lists(masks, max_size=5))
def test_ways_held_twice(held: list[int]) -> None:
    twice = [way for way in range(20) if sum(mask >> way & 1 for mask in held) > 1]
    assert schemata_ways.held_twice(held) == sum(1 << way for way in twice)


def refused(mask: int, cap: CacheCapability) -> bool:
    """Whether a kernel on such hardware would not take the mask, or the group would have no cache."""
    bits = f"{mask:b}".strip("0")
    return not bits or "0" in bits or len(bits) < cap.min_cbm_bits or mask & ~cap.cbm_mask != 0


@given(st.integers(1, 20), st.integers(0, 3), st.integers(0, 99), st.integers(1, 100))
def test_no_part_is_refused_by_its_machine(ways: int, least: int, start: int, length: int) -> None:
    cap = CacheCapability((1 << ways) - 1, min(least, ways))
    end = min(100, start + length)
    fit = schemata_ways.cache_fit(start_percent=start, end_percent=end, cap=cap)
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
    assert schemata_ways.cache_fit(start_percent=start, end_percent=end, cap=cap).why == why


AMD = BandwidthCapability(0, 1, 2048, delay_linear=False)


@pytest.mark.parametrize(
    ("percent", "cap", "reach", "value", "why"),
    [
        (50, BandwidthCapability(10, 10, 100), 0, 50, "50 % of the bandwidth"),
        (85, BandwidthCapability(10, 10, 100), 0, 90, "85 % of the bandwidth is 90 %, in steps of 10"),
        (1, BandwidthCapability(10, 10, 100), 0, 10, "1 % of the bandwidth is 10 %, never less than 10"),
        (100, AMD, 0, 2048, "no limit on bandwidth is 2048"),
        (50, AMD, 0, 80, "50 % of 20 GB/s a cache is 80 eighths of a GB/s"),
        (50, AMD, 1_000_000, 2048, "50 % of 1000 GB/s a cache is 2048 eighths of a GB/s"),
        (1, AMD, 1, 1, "1 % of 0.001 GB/s a cache is 1 eighths of a GB/s"),
        (50, BandwidthCapability(10, 10, 2**32 - 1, mbps=True), 9000, 4500, "50 % of 9000 MB/s a cache is 4500 MB/s"),
        (100, BandwidthCapability(10, 10, 2**32 - 1, mbps=True), 0, 2**32 - 1, "no limit on bandwidth is 4294967295"),
        (None, AMD, 0, None, "bandwidth is left alone"),
    ],
)
def test_why_a_bandwidth_is_what_it_is(
    percent: int | None, cap: BandwidthCapability, reach: int, value: int | None, why: str
) -> None:
    fit = bandwidth.bandwidth_fit(percent=percent, cap=cap, reach_mbps=reach)
    assert (fit.value, fit.why) == (value, why)


@pytest.mark.parametrize(
    ("base", "low", "high", "least", "part"),
    [
        pytest.param(0xFFF, 0, 50, 1, 0x3F, id="half"),
        pytest.param(0xFF0, 0, 50, 1, 0xF0, id="of a part that does not begin at way 0"),
        pytest.param(0xFFF, 1, 1, 2, 0x3, id="widened upwards where there is nothing below"),
        pytest.param(0xFFF, 99, 100, 3, 0xE00, id="widened downwards first"),
    ],
)
def test_a_part_of_a_part(base: int, low: int, high: int, least: int, part: int) -> None:
    assert overlay.percent_part(base=base, low=low, high=high, min_bits=least) == part


@pytest.mark.parametrize(
    ("base", "low", "high", "least"),
    [(0xFFF, 0, 0, 1), (0xFFF, 60, 50, 1), (0xFFF, 1, 101, 1), (0b101, 1, 50, 1), (0, 1, 50, 1), (0b1, 1, 50, 2)],
    ids=["nothing", "backwards", "beyond", "a base with holes", "no base", "a base too small"],
)
def test_no_part_of_a_part(base: int, low: int, high: int, least: int) -> None:
    with pytest.raises(ValueError):
        overlay.percent_part(base=base, low=low, high=high, min_bits=least)


def test_a_mask_within_a_part_begins_at_the_parts_first_way() -> None:
    assert overlay.absolute_part(base=0xFF0, mask=0x6, min_bits=1) == 0x60
    with pytest.raises(ValueError, match="not all among"):
        overlay.absolute_part(base=0xFF0, mask=0x1FF, min_bits=1)
