"""Quantities from samples and limits: percentiles, throttling, the CPU best-effort work may use.

Worked examples: docs/formulas.md, "Usage". Source: Koordinator `metriccache` aggregation and the throttled collector.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

COLD_START_RATIO = 0.5
"""Least part of a window that samples have to cover."""


def percentile(samples: Sequence[float], part: float) -> float:
    """The sample at place ⌊n × part⌋ - 1 of the sorted samples, at least the first.

    The product is one of single precision, as in Koordinator's `fieldPercentileOfMetricList`. ValueError without
    samples, or when `part` is not above 0 and at most 1.
    """
    if not samples:
        raise ValueError("a percentile needs at least one sample")
    if not 0 < part <= 1:
        raise ValueError(f"{part} is no percentile: above 0 and at most 1 is")
    product = _single(_single(len(samples)) * _single(part))
    return sorted(samples)[max(0, math.floor(product) - 1)]


def cold_start(*, window_seconds: float, span_seconds: float) -> bool:
    """Tell whether samples cover too little of a window to stand for it: first to last less than half of it.

    Source: Koordinator `metricsInColdStart`.
    """
    return span_seconds < window_seconds * COLD_START_RATIO


def system_cpu_by_numa(system: int, used: Mapping[int, int]) -> dict[int, int]:
    """CPU of the system by NUMA node, in proportion to the CPU in use there: pods have no counter by NUMA node.

    Source: Koordinator's system resource collector. Any unit; 0 everywhere where nothing is in use.
    """
    whole = sum(used.values())
    return {numa: system * each // whole if whole else 0 for numa, each in used.items()}


def system_memory_by_numa(used: Mapping[int, int], pods: Mapping[int, int]) -> dict[int, int]:
    """Memory in use by NUMA node less what pods have there, at least 0; that of host applications stays in it."""
    return {numa: max(0, each - pods.get(numa, 0)) for numa, each in used.items()}


def throttled_ratio(*, periods: int, throttled: int) -> float:
    """Throttled periods ÷ periods, 0 without a period."""
    return throttled / periods if periods > 0 else 0.0


def be_limit_milli(*, cpus: int, quota_us: int, period_us: int) -> int:
    """min(CPUs × 1000, quota × 1000 ÷ period): millicores the besteffort group may use; quota -1 is no limit.

    Source: Koordinator `getBECPURealMilliLimit`, which takes the smallest set of all containers instead of the group's:
    there, one container on two CPUs makes the whole node look as if it had two.
    """
    by_set = cpus * 1000
    return by_set if quota_us < 0 else min(by_set, quota_us * 1000 // period_us)


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])
