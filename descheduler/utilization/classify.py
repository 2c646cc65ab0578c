"""Which nodes are too full and which are underutilized, by percentages of what they have.

Source of the rules: upstream `nodeutilization` (classifier, normalizer). A resource that a node does not have is not
compared; a percentage is a float, an amount at a percentage is cut to whole units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

Percent = Mapping[str, float]
"""Percentages by resource."""

BASIC = ("cpu", "memory", "pods")
"""Resources that are always tracked when requests or the metrics API are the measure."""
WHOLE = 100.0


def percentages(*, used: Mapping[str, int], capacity: Mapping[str, int]) -> dict[str, float]:
    """used ÷ capacity × 100 for every resource the node has; 0 where it has none of it to give.

    >>> percentages(used={"cpu": 700}, capacity={"cpu": 4000, "memory": 1})
    {'cpu': 17.5}
    """
    return {
        name: amount * WHOLE / capacity[name] if capacity[name] else 0.0
        for name, amount in used.items()
        if name in capacity
    }


def averages(nodes: Iterable[Percent]) -> dict[str, float]:
    """The mean of each resource over the nodes that have it."""
    total: dict[str, float] = {}
    count: Counter[str] = Counter()
    for node in nodes:
        count.update(node.keys())
        for name, value in node.items():
            total[name] = total.get(name, 0.0) + value
    return {name: value / count[name] for name, value in total.items()}


def around(average: Percent, distance: Percent, *, sign: int) -> dict[str, float]:
    """average ± distance, kept between 0 and 100, for the resources that have a distance.

    >>> around({"cpu": 50.0}, {"cpu": 60.0}, sign=-1)
    {'cpu': 0.0}
    """
    shared = [name for name in distance if name in average]
    return {name: min(max(average[name] + sign * distance[name], 0.0), WHOLE) for name in shared}


def within(level: Percent, limits: Percent) -> bool:
    """Is every limited resource at its limit or below?"""
    return all(level[name] <= limit for name, limit in limits.items() if name in level)


def beyond(level: Percent, limits: Percent) -> tuple[str, ...]:
    """The limited resources that are above their limit, by name."""
    return tuple(sorted(name for name, limit in limits.items() if name in level and level[name] > limit))


def amount_at(percent: float, capacity: int) -> int:
    """Whole units that `percent` of `capacity` are, rounded down; the whole of it at 100.

    >>> amount_at(50.0, 4000)
    2000
    """
    return capacity if percent == WHOLE else int(percent * 0.01 * capacity)


def ceilings(*, tracked: Iterable[str], limits: Percent, capacity: Mapping[str, int]) -> dict[str, int]:
    """Up to which amount a node may be filled: its limit, all it has where no limit is set, 0 of what it lacks."""
    return {name: amount_at(limits.get(name, WHOLE), capacity.get(name, 0)) for name in tracked}
