"""Rounds before their time: the use that calls for one, and how often to sample it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

CPU_MILLI = 1000
QUOTA_DEAD_BAND = 0.01
CONFIRM_SECONDS = 0.008
"""Least time over which a surge is measured."""
SUSPICION = 4
"""The part of the way to the edge that a sample must have seen is one in this many."""


def shrink_step_milli(*, by_quota: bool, capacity_milli: int) -> int:
    """Least fall of the budget below the limit for the limit to shrink: 1 % of the node, or one whole CPU.

    Source: the dead band of Koordinator `adjustByCfsQuota`, and the rounding up to whole CPUs of `adjustByCPUSet`.
    """
    return round(capacity_milli * QUOTA_DEAD_BAND) if by_quota else CPU_MILLI


def upper_edge_milli(
    *, others_milli: int, budget_milli: int, limit_milli: int, shrink_step_milli: int, band_milli: int
) -> int:
    """others + max(budget − limit + shrink step, band): the use of all others above which best-effort must shrink.

    `others_milli` is what the last decision assumed that everything but best effort uses, `budget_milli` what it
    concluded, `limit_milli` what best effort may use since. Use below the edge is left to the next tick: it can only
    make the limit grow, and growth is slow by intention. Each round before its time raises what is assumed, so the
    band bounds how many of them there can be.
    """
    return others_milli + max(budget_milli - limit_milli + shrink_step_milli, band_milli)


def suspect_milli(*, others_milli: int, edge_milli: int) -> int:
    """others + (edge − others) ÷ 4: mean use between two samples that is worth a measurement.

    A surge begins somewhere between two samples: with the edge itself, one that began in the second half of the time
    would wait for the next sample.
    """
    return others_milli + max(0, edge_milli - others_milli) // SUSPICION


def confirm_seconds(*, timer_period_seconds: float) -> float:
    """⌈8 ms ÷ period of the timer interrupt⌉ × that period: the time over which a surge is measured. 8 ms themselves
    where counters are exact at any moment (a period of 0)."""
    if not timer_period_seconds:
        return CONFIRM_SECONDS
    return math.ceil(round(CONFIRM_SECONDS / timer_period_seconds, 3)) * timer_period_seconds


def period_seconds(*, sample_cost_seconds: float, share: float, shortest_seconds: float) -> float:
    """max(shortest, cost of a sample ÷ share): the time between two samples that keeps them below `share` of a core."""
    return max(shortest_seconds, sample_cost_seconds / share)


def smoothed_cost_seconds(*, before: float, sample: float) -> float:
    """(7 × before + sample) ÷ 8: the cost of a sample, from the cost of the last one and the mean before it."""
    return (7 * before + sample) / 8


def milli(*, used_ns: int, seconds: float) -> int:
    """used ÷ time, in millicores, never negative: a counter that went back belongs to a group that was made again."""
    return max(0, round(used_ns / seconds / 1e6)) if seconds > 0 else 0


def shared_out(parts: Mapping[Key, int], *, total: int) -> dict[Key, int]:
    """`total` in the proportion of `parts`, in equal shares where they are all zero; the sum is exactly `total`."""
    weights = parts if any(parts.values()) else dict.fromkeys(parts, 1)
    remaining, of = total, sum(weights.values())
    shares: dict[Key, int] = {}
    for key, weight in weights.items():
        shares[key] = remaining * weight // of if of else 0
        remaining, of = remaining - shares[key], of - weight
    return shares
