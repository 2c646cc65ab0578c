"""Schemata lines of resctrl, and the cache masks and bandwidth values that go into them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from koordlite.model.snapshot import BandwidthCapability, CacheCapability

Values = Mapping[int, int]
"""A mask or a bandwidth by cache id."""

_BANDWIDTH = ("MB", "SMBA")
_FULL_PERCENT = 100
# 2048 × 5/64 = 160: 20 GB/s in units of 1/8 GB/s, 80 % of what one Milan core complex reaches.
_USEFUL_SHARE_OF_MAXIMUM = 0.078125


def parse(text: str) -> dict[str, dict[int, int]]:
    """Values by resource and cache id from the text of a schemata file; ValueError names the line it cannot read.

    Masks (L3, L2, L3CODE …) are hexadecimal, bandwidths (MB, SMBA) decimal. Padding is free, as kernels differ.
    """
    return dict(_parse_line(line) for line in text.splitlines() if line.strip())


def line(resource: str, values: Values) -> str:
    """`L3:0=f;1=f`: what to write for one resource, ids ascending, without the newline."""
    base = "d" if resource in _BANDWIDTH else "x"
    return f"{resource}:" + ";".join(f"{cache}={values[cache]:{base}}" for cache in sorted(values))


def changed(present: Values, wanted: Values) -> dict[int, int]:
    """The part of `wanted` that differs from `present`; ids that `present` lacks are left out.

    The kernel refuses a whole write for one id it does not know, and ids go away with their last CPU.
    """
    return {cache: value for cache, value in wanted.items() if cache in present and present[cache] != value}


def cache_mask(*, start_percent: int, end_percent: int, cap: CacheCapability) -> int:
    """2^⌈ways × end %⌉ − 2^⌈ways × start %⌉, widened to at least `min_cbm_bits` contiguous bits inside `cbm_mask`.

    ValueError unless 0 ≤ start < end ≤ 100 and `cbm_mask` is a run of ones from bit 0. Never 0: Koordinator
    (`calculateCatL3MaskValue`) gives 0 for narrow ranges, which kernels refuse.
    """
    if not 0 <= start_percent < end_percent <= _FULL_PERCENT:
        raise ValueError(f"cache range {start_percent}-{end_percent} % is not within 0 ≤ start < end ≤ 100")
    ways = cap.cbm_mask.bit_length()
    if cap.cbm_mask <= 0 or cap.cbm_mask != (1 << ways) - 1:
        raise ValueError(f"cbm_mask {cap.cbm_mask:x} is not a run of ones from bit 0")
    first, end = _way(ways, start_percent), _way(ways, end_percent)
    least = min(max(1, cap.min_cbm_bits), ways)
    end = min(max(end, first + least), ways)
    first = min(first, end - least)
    return (1 << end) - (1 << first)


def bandwidth(*, percent: int | None, cap: BandwidthCapability) -> int | None:
    """⌈max(percent, minimum) / granularity⌉ × granularity, or on AMD 160 × percent / 100; None: leave alone.

    None without a percent between 1 and 100, and where values are MB/s (`mba_MBps`), in which a percent has no
    meaning. On AMD 100 is the machine's own maximum (no limit), other percents are of 20 GB/s per core complex, scaled
    where the machine counts further than 2048. Source: Koordinator `calculateMbaPercentForGroup`.
    """
    if percent is None or not 0 < percent <= _FULL_PERCENT or cap.mbps:
        return None
    if not cap.absolute:
        step = max(cap.bandwidth_gran, 1)
        return min(-(-max(percent, cap.min_bandwidth) // step) * step, cap.maximum)
    if percent == _FULL_PERCENT:
        return cap.maximum
    return max(1, int(cap.maximum * _USEFUL_SHARE_OF_MAXIMUM * percent / 100))


def _way(ways: int, percent: int) -> int:
    # In doubles, as Koordinator computes it.
    return math.ceil(float(ways) * float(percent) / 100.0)


def _parse_line(text: str) -> tuple[str, dict[int, int]]:
    resource, colon, domains = text.partition(":")
    resource = resource.strip()
    base = 10 if resource in _BANDWIDTH else 16
    try:
        if not colon or not resource:
            raise ValueError("no resource name before a colon")
        pairs = [domain.split("=") for domain in domains.strip().rstrip(";").split(";") if domain.strip()]
        return resource, {_number(cache, 10): _number(value, base) for cache, value in pairs}
    except ValueError as error:
        raise ValueError(f"schemata line {text.strip()!r} is not like L3:0=f;1=f: {error}") from error


def _number(text: str, base: int) -> int:
    number = int(text.strip(), base)
    if number < 0:
        raise ValueError(f"{text.strip()} is negative")
    return number
