"""Scores of a pod on a node or a set of NUMA nodes, 0 to 100.

Source: Koordinator v1.9 scoring.go, least_allocated.go, most_allocated.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlite.numa.koordinator.values import MOST_ALLOCATED, Amounts

MOST = 100
Whole = Mapping[str, int]
"""Thousandths of a CPU, whole units of anything else, by resource."""
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def score(strategy: str, weights: Mapping[str, int], *, allocatable: Whole, requested: Whole, asked: Whole) -> int:
    """The weighted mean over resources of how empty (or, under MostAllocated, how full) they would be with the pod.

    Resources of which there is nothing do not count, nor do extended ones the pod does not ask for.
    """
    total = weight_sum = 0
    for name, weight in weights.items():
        more, most = asked.get(name, 0), allocatable.get(name, 0)
        if not most or (not more and name not in _NATIVE):
            continue
        total += weight * _one(strategy, requested.get(name, 0) + more, most)
        weight_sum += weight
    return total // weight_sum if weight_sum else 0


def whole(amounts: Amounts, names: Iterable[str]) -> dict[str, int]:
    """The amounts of these resources as the scheduler counts them, rounded up."""
    return {name: amounts[name].milli if name == "cpu" else amounts[name].value for name in names if name in amounts}


def whole_nano(name: str, nano: int) -> int:
    """The same for one amount in nano-units."""
    return -(-nano // 10**6) if name == "cpu" else -(-nano // 10**9)


def _one(strategy: str, used: int, most: int) -> int:
    if strategy == MOST_ALLOCATED:
        return min(used, most) * MOST // most
    return 0 if used > most else (most - used) * MOST // most
