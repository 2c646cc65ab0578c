"""Which NUMA nodes of a node would do for a pod, resource by resource.

Source: Koordinator v1.9 `GetTopologyHints`, `generateResourceHints` (resource_manager.go).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from koordlite.model.quantity import Quantity
from koordlite.numa.koordinator import amounts, score
from koordlite.numa.koordinator.allocate import Request
from koordlite.numa.koordinator.ask import Settings
from koordlite.numa.koordinator.values import RESTRICTED, Allocation, Amounts, Hint, Refusal, Zones, bits, mask_of

Attempt = Callable[[int], Allocation | Refusal]
"""What the pod would get inside the NUMA nodes of a mask."""


def hints(
    zones: Zones, available: Zones, request: Request, attempt: Attempt, *, policy: str, settings: Settings | None
) -> dict[str, Sequence[Hint]]:
    """Hints for each requested resource that NUMA nodes have; an empty list where no set of them would do.

    A set of NUMA nodes is a hint when the whole pod can be allocated inside it and each of them has some of the
    resource. The smallest sets are preferred; under Restricted all are. Without `settings` nothing is scored.
    """
    known = {name for part in zones.values() for name in part}
    lacking = {
        name: mask_of(zone for zone, part in available.items() if not part.get(name, amounts.ZERO).nano)
        for name in known
    }
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in request.requests if name in known}
    for mask in masks(zones):
        wanted = [name for name in found if not mask & lacking[name]]
        if not wanted or isinstance(attempt(mask), Refusal):
            continue
        points = _score(zones, available, request, mask, settings) if settings else 0
        for name in wanted:
            found[name].append((mask, points))
    return {name: _preferred(pairs, len(zones), policy) for name, pairs in found.items()}


def masks(nodes: Iterable[int]) -> Iterator[int]:
    """All sets of NUMA nodes, small ones first, then in the order of their numbers."""
    listed = list(nodes)
    for size in range(1, len(listed) + 1):
        yield from (mask_of(chosen) for chosen in itertools.combinations(listed, size))


def _preferred(pairs: Sequence[tuple[int, int]], most: int, policy: str) -> list[Hint]:
    smallest = min([most, *(mask.bit_count() for mask, _ in pairs)])
    return [Hint(mask, mask.bit_count() == smallest or policy == RESTRICTED, points) for mask, points in pairs]


def _score(zones: Zones, available: Zones, request: Request, mask: int, settings: Settings) -> int:
    total, free = _sum(zones, mask), _sum(available, mask)
    requested = amounts.left(total, free)
    return score.score(
        settings.numa_scoring, settings.weights, allocatable=total, requested=requested, asked=request.requests
    )


def _sum(zones: Zones, mask: int) -> Amounts:
    total: Mapping[str, Quantity] = {}
    for zone in bits(mask):
        total = amounts.added(total, zones.get(zone, {}))
    return total
