"""Use of each node by requests, by the metrics API, or by a Prometheus query, and which are too full.

Source of the rules: upstream `nodeutilization` (classifier, normalizer). A resource that a node does not have is not
compared; a percentage is a float, an amount at a percentage is cut to whole units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from descheduler.fit import free_capacity
from descheduler.framework import NodeView, PodView, Usage
from descheduler.picture import amounts
from descheduler.picture.amounts import Amounts

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
    """Tell whether every limited resource is at its limit or below."""
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


METRIC = "MetricResource"
"""The one resource of a Prometheus query. The word is upstream's."""

PodUse = Callable[[PodView], Amounts | None]
"""What a pod takes along when it leaves; None when nobody knows."""


class Level(msgspec.Struct, eq=False):
    """A node, what it has, and how much of it is used while pods are chosen."""

    node: NodeView
    capacity: Amounts
    used: dict[str, int]
    ceiling: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Up to where it may be filled."""

    @property
    def percent(self) -> dict[str, float]:
        """Use in percent of what the node has."""
        return percentages(used=self.used, capacity=self.capacity)

    @property
    def schedulable(self) -> bool:
        """It takes pods in: it is not cordoned."""
        return not self.node.object.spec.unschedulable

    @property
    def excess(self) -> tuple[str, ...]:
        """Resources of which more is used than the ceiling."""
        return tuple(name for name, most in self.ceiling.items() if self.used.get(name, 0) > most)

    def lose(self, taken: Amounts) -> None:
        """Note that a pod which used `taken` leaves."""
        for name in self.used:
            self.used[name] -= taken.get(name, 0)


class Measure(msgspec.Struct, frozen=True):
    """Use of the nodes, and what each pod contributes to it."""

    levels: tuple[Level, ...]
    pod_use: PodUse
    counts_down: bool = True
    """False: nobody knows what a pod contributes, so no eviction changes the picture."""
    missing: str = ""
    """Why nodes cannot be compared, as a sentence; empty when they can."""


def capacity(node: NodeView) -> Amounts:
    """Amounts that the node has to give, less what is reserved on it; its capacity when it does not say allocatable."""
    return node.once(capacity, lambda: _capacity(node))


def _capacity(node: NodeView) -> dict[str, int]:
    given = amounts.units(free_capacity.schedulable_amounts(node))
    return given or amounts.units(node.node.capacity)


def by_requests(nodes: Iterable[NodeView], tracked: frozenset[str]) -> Measure:
    """Requests of the pods that have not ended."""
    levels = tuple(Level(node, capacity(node), dict(requested(node, tracked))) for node in nodes)
    return Measure(levels, lambda pod: {"pods": 1, **amounts.units(pod.pod.requests)})


def requested(node: NodeView, tracked: frozenset[str]) -> Mapping[str, int]:
    """Sum of the requests of a node's pods, for the tracked resources; `pods` is their number."""
    return node.once((requested, tracked), lambda: _requested(node, tracked))


def _requested(node: NodeView, tracked: Iterable[str]) -> dict[str, int]:
    total = {name: amounts.whole(name, node.requested.get(name, 0)) for name in tracked}
    total["pods"] = len(node.pods)
    return total


def by_metrics(nodes: Iterable[NodeView], tracked: frozenset[str], measured: Usage) -> Measure:
    """Use by the metrics API; one node that lacks one tracked resource spoils the comparison of all.

    Source: upstream `actualUsageClient`.
    """
    levels = []
    for node in nodes:
        sample = measured.nodes.get(node.name, {})
        lacking = sorted(tracked - {"pods"} - set(sample))
        if measured.absent or lacking:
            why = measured.absent or f"the metrics API does not report {', '.join(lacking)} on node {node.name}"
            return Measure((), lambda pod: None, missing=why)
        used = {name: sample[name] for name in tracked - {"pods"}} | {"pods": len(node.pods)}
        levels.append(Level(node, capacity(node), used))

    def pod_use(pod: PodView) -> Amounts | None:
        found = measured.pods.get(pod.key)
        return None if found is None else {**found, "pods": 1}

    return Measure(tuple(levels), pod_use)


def by_query(nodes: Iterable[NodeView], sample: Usage) -> Measure:
    """Use by a Prometheus query, in percent; what a pod contributes is unknown.

    Source: upstream `prometheusUsageClient`.
    """
    found = tuple(nodes)
    lacking = [node.name for node in found if METRIC not in sample.nodes.get(node.name, {})]
    if sample.absent or lacking:
        why = sample.absent or f"the query has no sample of node {lacking[0]}"
        return Measure((), lambda pod: None, missing=why)
    levels = tuple(Level(node, {METRIC: 100}, {METRIC: sample.nodes[node.name][METRIC]}) for node in found)
    return Measure(levels, lambda pod: {}, counts_down=False)
