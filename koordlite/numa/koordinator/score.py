"""How well a pod goes with a node or a set of NUMA nodes, 0 to 100.

Source: Koordinator v1.9 scoring.go, least_allocated.go, most_allocated.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model.quantity import Quantity
from koordlite.numa.koordinator.amounts import ZERO
from koordlite.numa.koordinator.values import MOST_ALLOCATED, Amounts

MOST = 100
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def score(
    strategy: str, weights: Mapping[str, int], *, allocatable: Amounts, requested: Amounts, asked: Amounts
) -> int:
    """The weighted mean over resources of how empty (or, under MostAllocated, how full) they would be with the pod.

    Resources of which there is nothing do not count, nor do extended ones the pod does not ask for.
    """
    total = weight_sum = 0
    for name, weight in weights.items():
        more, most = whole(name, asked.get(name, ZERO)), whole(name, allocatable.get(name, ZERO))
        if not most or (not more and name not in _NATIVE):
            continue
        total += weight * _one(strategy, whole(name, requested.get(name, ZERO)) + more, most)
        weight_sum += weight
    return total // weight_sum if weight_sum else 0


def whole(name: str, amount: Quantity) -> int:
    """Thousandths of a CPU, whole units of anything else."""
    return amount.milli if name == "cpu" else amount.value


def _one(strategy: str, used: int, most: int) -> int:
    if strategy == MOST_ALLOCATED:
        return min(used, most) * MOST // most
    return 0 if used > most else (most - used) * MOST // most
