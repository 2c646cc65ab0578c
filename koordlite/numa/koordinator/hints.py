"""Hints: NUMA nodes of a node that would do for a pod, resource by resource; and scores, 0 to 100, of a pod on a node
or a set of NUMA nodes.

Source: Koordinator v1.9 `GetTopologyHints`, `generateResourceHints` (resource_manager.go), scoring.go,
least_allocated.go, most_allocated.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from koordlite.numa.koordinator.allocate import Request
from koordlite.numa.koordinator.ask import Settings
from koordlite.numa.koordinator.values import MOST_ALLOCATED, RESTRICTED, Amounts, Hint, Zones
from koordlite.numa.machine import mask_of, nodes_of, subsets

Fits = Callable[[int], bool]
"""Whether the pod can be allocated inside the NUMA nodes of a mask."""


def hints(
    zones: Zones, available: Zones, request: Request, fits: Fits, *, policy: str, settings: Settings | None
) -> dict[str, Sequence[Hint]]:
    """Hints for each requested resource that NUMA nodes have; an empty list where no set of them would do.

    A set of NUMA nodes is a hint when the whole pod can be allocated inside it and each of them has some of the
    resource. The smallest sets are preferred; under Restricted all are. Without `settings` nothing is scored.
    """
    known = {name for part in zones.values() for name in part}
    lacking = {name: mask_of(_without(name, available)) for name in request.requests if name in known}
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in lacking}
    points = _Points(zones, available, request, settings) if settings else None
    for _, mask in subsets(zones):
        wanted = [name for name in found if not mask & lacking[name]]
        if wanted and fits(mask):
            score_of_mask = points.of(mask) if points else 0
            for name in wanted:
                found[name].append((mask, score_of_mask))
    return {name: _preferred(pairs, len(zones), policy) for name, pairs in found.items()}


def _without(name: str, available: Zones) -> Iterator[int]:
    return (zone for zone, part in available.items() if name not in part or not part[name].nano)


def _preferred(pairs: Sequence[tuple[int, int]], most: int, policy: str) -> list[Hint]:
    smallest = min([most, *(mask.bit_count() for mask, _ in pairs)])
    return [Hint(mask, mask.bit_count() == smallest or policy == RESTRICTED, points) for mask, points in pairs]


class _Points:
    """The score of a set of NUMA nodes: what is used of them now, and the pod."""

    def __init__(self, zones: Zones, available: Zones, request: Request, settings: Settings) -> None:
        self.settings = settings
        self.asked = whole(request.requests, settings.weights)
        self.total = {name: _nano(name, zones) for name in settings.weights}
        self.free = {name: _nano(name, available) for name in settings.weights}

    def of(self, mask: int) -> int:
        """The score of these NUMA nodes."""
        here, total, used = nodes_of(mask), dict[str, int](), dict[str, int]()
        for name in self.settings.weights:
            most = sum(self.total[name].get(zone, 0) for zone in here)
            free = sum(self.free[name].get(zone, 0) for zone in here)
            total[name] = whole_nano(name, most)
            used[name] = whole_nano(name, max(most - free, 0))
        return score(
            self.settings.numa_scoring, self.settings.weights, allocatable=total, requested=used, asked=self.asked
        )


def _nano(name: str, zones: Zones) -> Mapping[int, int]:
    return {zone: amounts[name].nano for zone, amounts in zones.items() if name in amounts}


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
