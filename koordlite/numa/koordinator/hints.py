"""Hints: NUMA nodes of a node that would do for a pod, resource by resource.

Source: Koordinator v1.9 `GetTopologyHints`, `generateResourceHints` (resource_manager.go).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from koordlite.numa.koordinator import score
from koordlite.numa.koordinator.allocate import Request
from koordlite.numa.koordinator.ask import Settings
from koordlite.numa.koordinator.values import RESTRICTED, Hint, Zones, bits, mask_of

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
    for mask in masks(zones):
        wanted = [name for name in found if not mask & lacking[name]]
        if wanted and fits(mask):
            score_of_mask = points.of(mask) if points else 0
            for name in wanted:
                found[name].append((mask, score_of_mask))
    return {name: _preferred(pairs, len(zones), policy) for name, pairs in found.items()}


def masks(nodes: Iterable[int]) -> Iterator[int]:
    """All sets of NUMA nodes, small ones first, then in the order of their numbers."""
    listed = [1 << node for node in nodes]
    for size in range(1, len(listed) + 1):
        yield from map(sum, itertools.combinations(listed, size))


def _without(name: str, available: Zones) -> Iterator[int]:
    return (zone for zone, part in available.items() if name not in part or not part[name].nano)


def _preferred(pairs: Sequence[tuple[int, int]], most: int, policy: str) -> list[Hint]:
    smallest = min([most, *(mask.bit_count() for mask, _ in pairs)])
    return [Hint(mask, mask.bit_count() == smallest or policy == RESTRICTED, points) for mask, points in pairs]


class _Points:
    """The score of a set of NUMA nodes: what is used of them now, and the pod."""

    def __init__(self, zones: Zones, available: Zones, request: Request, settings: Settings) -> None:
        self.settings = settings
        self.asked = score.whole(request.requests, settings.weights)
        self.total = {name: _nano(name, zones) for name in settings.weights}
        self.free = {name: _nano(name, available) for name in settings.weights}

    def of(self, mask: int) -> int:
        """The score of these NUMA nodes."""
        here, total, used = bits(mask), dict[str, int](), dict[str, int]()
        for name in self.settings.weights:
            most = sum(self.total[name].get(zone, 0) for zone in here)
            free = sum(self.free[name].get(zone, 0) for zone in here)
            total[name] = score.whole_nano(name, most)
            used[name] = score.whole_nano(name, max(most - free, 0))
        return score.score(
            self.settings.numa_scoring, self.settings.weights, allocatable=total, requested=used, asked=self.asked
        )


def _nano(name: str, zones: Zones) -> Mapping[int, int]:
    return {zone: amounts[name].nano for zone, amounts in zones.items() if name in amounts}
