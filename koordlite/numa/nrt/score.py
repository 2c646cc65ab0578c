"""Fit of a pod to a node: the scores of scheduler-plugins' NodeResourceTopologyMatch, 0 to 100.

Source: score.go, least_allocated.go, most_allocated.go, balanced_allocation.go and least_numa.go of scheduler-plugins.
Amounts are nano-units. Ours: zones are known by id and may have gaps, and a balance of one resource is 100 (upstream
divides by zero).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

from koordlite.numa.machine import nodes_of
from koordlite.numa.nrt.filter import NANO, AlignedRequest, Amounts, Part, Zones, without

FULL = 100
LEAST_NUMA_NODES = "LeastNUMANodes"
FAR = 255
"""Distance between NUMA nodes that nobody gives."""
Costs = Mapping[int, Mapping[int, int]]
"""Distance from one NUMA node to another: 10 on the node itself."""
Weights = Mapping[str, int]
Requests = Sequence[tuple[str, int, int]]
"""Resource, whole units, weight."""
Formula = Callable[[Requests, Amounts], int]
"""Requests and the amounts of a zone, in whole units → score."""


def score(
    pod: AlignedRequest,
    *,
    zones: Zones,
    costs: Costs,
    scope: str,
    strategy: str = "LeastAllocated",
    weights: Weights | None = None,
    max_numa_nodes: int = 8,
) -> int:
    """The score of a Guaranteed pod on a node; of others it is always `FULL`, and 0 without a report of its zones."""
    parts = pod.of_scope(scope)
    if strategy == LEAST_NUMA_NODES:
        return _least_numa_nodes(parts, zones, costs, max_numa_nodes)
    return mean_score(weighted(parts, weights or {}), whole_units(zones), strategy)


def weighted(parts: Sequence[Part], weights: Weights) -> tuple[Requests, ...]:
    """Requests of the parts, in whole units and with its weight: 1 where none, or none above 0, is given."""
    return tuple(
        tuple((name, -(-amount // NANO), max(1, weights.get(name, 1))) for name, amount, _ in part.requests)
        for part in parts
    )


def mean_score(parts: Sequence[Requests], units: Zones, strategy: str) -> int:
    """The mean over the parts of the smallest score of a zone that is not 0. `units`: the zones in whole units."""
    formula, zones, total = _FORMULAS[strategy], units.values(), 0
    for requests in parts:
        lowest = 0
        for zone in zones:
            points = formula(requests, zone)
            if points and (not lowest or points < lowest):
                lowest = points
        total += lowest
    return total // len(parts) if parts else 0


def whole_units(zones: Zones) -> dict[int, dict[str, int]]:
    """Amounts as `Quantity.Value` gives them: whole units, rounded up, so that CPUs count whole."""
    return {node: {name: -(-amount // NANO) for name, amount in zone.items()} for node, zone in zones.items()}


def least_allocated(requests: Requests, zone: Amounts) -> int:
    """Much is left: (capacity − request) · 100 / capacity, the weighted mean over resources."""
    total = weights = 0
    for name, amount, weight in requests:
        weights += weight
        capacity = zone.get(name, 0)
        if 0 < capacity >= amount:
            total += (capacity - amount) * FULL // capacity * weight
    return total // weights if weights else 0


def most_allocated(requests: Requests, zone: Amounts) -> int:
    """Little is left: request · 100 / capacity, the weighted mean over resources."""
    total = weights = 0
    for name, amount, weight in requests:
        weights += weight
        capacity = zone.get(name, 0)
        if 0 < capacity >= amount:
            total += amount * FULL // capacity * weight
    return total // weights if weights else 0


def balanced_allocation(requests: Requests, zone: Amounts) -> int:
    """Evenly used: (1 − sample variance of request / capacity) · 100; 0 when a resource does not fit."""
    fractions = [amount / zone[name] if zone.get(name) else 1.0 for name, amount, _ in requests]
    if any(fraction > 1 for fraction in fractions):
        return 0
    if len(fractions) < 2:
        return FULL
    mean = sum(fractions) / len(fractions)
    variance = sum((fraction - mean) ** 2 for fraction in fractions) / (len(fractions) - 1)
    return int((1 - variance) * FULL)


_FORMULAS: Mapping[str, Formula] = {
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
    "BalancedAllocation": balanced_allocation,
}


def _least_numa_nodes(parts: Sequence[Part], zones: Zones, costs: Costs, most: int) -> int:
    """The score of the part that needs most NUMA nodes, as near together as the worst of them; each takes from its own
    before the next is asked."""
    used, all_nearest = 0, True
    for part in parts:
        amounts = {name: amount for name, amount, _ in part.requests}
        if only_elsewhere(zones, amounts):
            continue
        smallest = nodes_required(part, zones, costs)
        if smallest is None:
            return 0
        used, all_nearest = max(used, len(smallest[0])), all_nearest and smallest[1]
        zones = without(zones, smallest[0], amounts)
    return least_numa_score(used, is_nearest=all_nearest, max_numa_nodes=most) if used else FULL


def least_numa_score(used: int, *, is_nearest: bool, max_numa_nodes: int = 8) -> int:
    """100 − used · step, and half a step more when no set of so many NUMA nodes is nearer together."""
    step = FULL // max_numa_nodes
    return FULL - used * step + (step // 2 if is_nearest else 0)


def only_elsewhere(zones: Zones, names: Amounts) -> bool:
    """No NUMA node lists any of these resources: alignment has nothing to say about them."""
    return not any(name in zone for zone in zones.values() for name in names)


def nodes_required(part: Part, zones: Zones, costs: Costs) -> tuple[tuple[int, ...], bool] | None:
    """The smallest set of NUMA nodes that together hold the part, nearest first, and whether no set of that size is
    nearer together; None when all of them are too few."""
    ids = sorted(zones)
    for size in range(1, len(ids) + 1):
        sets = list(itertools.combinations(ids, size))
        holding = [nodes for nodes in sets if _holds(part, [zones[node] for node in nodes])]
        if holding:
            best = min(holding, key=lambda nodes: distance(nodes, costs))
            return best, distance(best, costs) == min(distance(nodes, costs) for nodes in sets)
    return None


def _holds(part: Part, zones: Sequence[Amounts]) -> bool:
    """Each zone lists every resource, and together they have enough."""
    listed = functools.reduce(lambda names, zone: names & zone.keys(), zones[1:], set(zones[0]))
    return all(
        name in listed and (not by_amount or sum(zone[name] for zone in zones) >= amount)
        for name, amount, by_amount in part.requests
    )


def distance(nodes: Sequence[int], costs: Costs) -> int:
    """Sum of the distances over all ordered pairs, a node to itself included. Divided by the number of pairs it is the
    mean, which sets of one size share."""
    return sum(costs.get(a, {}).get(b, FAR) for a in nodes for b in nodes)


def mean_distance(mask: int, costs: Costs) -> float:
    """Mean distance over all ordered pairs of the mask's nodes, also of each to itself; 0 for an empty mask."""
    nodes = nodes_of(mask)
    return distance(nodes, costs) / len(nodes) ** 2 if nodes else 0.0


NEAREST = 100
_LOCAL = 10
"""The distance of a NUMA node to itself, as firmware writes it."""


def nearness(nodes: Sequence[int], costs: Costs) -> int:
    """100 for one NUMA node; else 100 × 10 / mean distance over all ordered pairs, so 64 for two nodes 21 apart. A
    distance that is not reported counts 255."""
    return NEAREST * _LOCAL * len(nodes) ** 2 // max(1, distance(nodes, costs)) if len(nodes) > 1 else NEAREST


def nearness_of_parts(parts: Sequence[Part], zones: Zones, costs: Costs) -> int:
    """Nearness of the part that is worst off, by the fewest NUMA nodes that have enough, the nearest of them; 0 where
    all of them together have too little."""
    worst = NEAREST
    for part in parts:
        if only_elsewhere(zones, {name: amount for name, amount, _ in part.requests}):
            continue
        smallest = nodes_required(part, zones, costs)
        if smallest is None:
            return 0
        worst = min(worst, nearness(smallest[0], costs))
        if part.kind != "init":
            zones = without(zones, smallest[0], part.usage)
    return worst


def blended(total: int, near: int) -> int:
    """The score of a node by its amounts and by the distance of the NUMA nodes, each half."""
    return (total + near) // 2
