"""Use of each node by requests, by the metrics API, or by a Prometheus query, and which are too full.

Source of the rules: upstream `nodeutilization` (classifier, normalizer). A resource that a node does not have is not
compared; a percentage is a float, an amount at a percentage is cut to whole units.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping

import msgspec

from descheduler.fit import free_capacity
from descheduler.framework import Finding, Handle, NodeView, Note, PodView, Usage, Verdict
from descheduler.picture import pods
from descheduler.picture.pods import Amounts, age_seconds, least_important_first
from koordlite.model import keys, node_selectors
from koordlite.model.pod.qos import KubeQoS, PriorityClass, QoSClass
from koordlite.model.wire import objects

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
"""Amounts that a pod takes along when it leaves; None when they are not known."""


class Level(msgspec.Struct, eq=False):
    """A node, what it has, and how much of it is used while pods are chosen."""

    node: NodeView
    capacity: Amounts
    used: dict[str, int]
    ceiling: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Amounts up to which it may be filled."""
    known_percent: Percent | None = None
    """`percent` until a pod leaves."""

    @property
    def percent(self) -> Percent:
        """Use in percent of what the node has."""
        if self.known_percent is None:
            self.known_percent = percentages(used=self.used, capacity=self.capacity)
        return self.known_percent

    @property
    def schedulable(self) -> bool:
        """Tell whether it takes pods in: it is not cordoned."""
        return not self.node.object.spec.unschedulable

    @property
    def excess(self) -> tuple[str, ...]:
        """Resources of which more is used than the ceiling."""
        return tuple(name for name, most in self.ceiling.items() if self.used.get(name, 0) > most)

    def lose(self, amounts: Amounts) -> None:
        """Note that a pod which used `amounts` leaves."""
        for name in self.used:
            self.used[name] -= amounts.get(name, 0)
        self.known_percent = None


class Measure(msgspec.Struct, frozen=True):
    """Use of the nodes, and what each pod contributes to it."""

    levels: tuple[Level, ...]
    pod_use: PodUse
    counts_down: bool = True
    """False: nobody knows what a pod contributes, so no eviction changes the picture."""
    missing: str = ""
    """Reason why nodes cannot be compared, as a sentence; empty when they can."""


def capacity(node: NodeView) -> Amounts:
    """Amounts that the node has to give, less what is reserved on it; its capacity when it does not say allocatable."""
    return node.once(
        capacity, lambda: pods.units(free_capacity.schedulable_amounts(node)) or pods.units(node.node.capacity)
    )


def by_requests(nodes: Iterable[NodeView], tracked: frozenset[str]) -> Measure:
    """Requests of the pods that have not ended."""

    def level(node: NodeView) -> Level:
        has, used, percent = node.once((by_requests, tracked), lambda: use(node))
        return Level(node, has, dict(used), known_percent=percent)

    def use(node: NodeView) -> tuple[Amounts, Amounts, Percent]:
        used = {name: pods.whole(name, node.requested.get(name, 0)) for name in tracked} | {"pods": len(node.pods)}
        return capacity(node), used, percentages(used=used, capacity=capacity(node))

    return Measure(tuple(map(level, nodes)), lambda pod: {"pods": 1, **pods.units(pod.pod.requests)})


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
        use = measured.pods.get(pod.key)
        return None if use is None else {**use, "pods": 1}

    return Measure(tuple(levels), pod_use)


def by_query(nodes: Iterable[NodeView], sample: Usage) -> Measure:
    """Use by a Prometheus query, in percent; what a pod contributes is unknown.

    Source: upstream `prometheusUsageClient`.
    """
    all_nodes = tuple(nodes)
    lacking = [node.name for node in all_nodes if METRIC not in sample.nodes.get(node.name, {})]
    if sample.absent or lacking:
        why = sample.absent or f"the query has no sample of node {lacking[0]}"
        return Measure((), lambda pod: None, missing=why)
    levels = tuple(Level(node, {METRIC: 100}, {METRIC: sample.nodes[node.name][METRIC]}) for node in all_nodes)
    return Measure(levels, lambda pod: {}, counts_down=False)


Steps = Generator[Finding | Note, Verdict | None, bool]
"""Findings and notes; in the end, whether evictions may go on at other nodes."""


def headroom_of(destinations: Iterable[Level], tracked: Iterable[str]) -> dict[str, int]:
    """Amounts that the destinations still take up to their ceilings, in one sum."""
    levels = tuple(destinations)
    return {name: sum(level.ceiling[name] - level.used.get(name, 0) for level in levels) for name in tracked}


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A run over the nodes that have too much."""

    headroom: dict[str, int]
    """Amounts that the destinations still take; shrink as pods leave."""
    taints: Collection[tuple[objects.Taint, ...]]
    """Taints of each destination."""
    pod_use: PodUse
    counts_down: bool
    """True where an eviction changes the picture."""
    too_full: Callable[[Level], bool]
    """Tell whether more has to leave this node."""
    finding: Callable[[PodView, Level], Finding]
    namespace_allowed: Callable[[str], bool]
    candidate: Callable[[PodView], bool] = lambda pod: True
    most_per_node: int | None = None
    accepted: dict[tuple[objects.Toleration, ...], bool] = msgspec.field(default_factory=dict)
    """Answers whether some node lets in pods with these tolerations."""

    def run(self, sources: Iterable[Level], handle: Handle) -> Generator[Finding | Note, Verdict | None, None]:
        """Name pods of each source until it has little enough; the answers say which of them go."""
        for level in sources:
            going_on = yield from self._node(level, handle)
            if not going_on:
                return

    def _node(self, level: Level, handle: Handle) -> Steps:
        pods = [p for p in level.node.pods if self.candidate(p) and not handle.going(p) and handle.evictable(p)]
        if not pods:
            text = f"{percent_text(level.percent)}, but no guard lets any of its pods go"
            yield Note(node=level.node.name, reason="NothingEvictable", text=text)
            return True
        count = 0
        for pod in sorted(pods, key=least_important_first):
            more = self.too_full(level) and all(amount > 0 for amount in self.headroom.values())
            if not more or count == self.most_per_node:
                return True
            may_go = self.namespace_allowed(pod.pod.namespace) and self._let_in(pod) and handle.movable(pod)
            amounts = self.pod_use(pod) if may_go else None
            if amounts is None:
                continue
            verdict = yield self.finding(pod, level)
            if verdict is not None and verdict.evicted:
                count += 1
                if self.counts_down:
                    level.lose(amounts)
                    for name in self.headroom:
                        self.headroom[name] -= amounts.get(name, 0)
            elif verdict is not None and verdict.stop in ("node", "total"):
                return verdict.stop == "node"
        return True

    def _let_in(self, pod: PodView) -> bool:
        """Tell whether it tolerates the taints of some destination. Upstream compares counts first, and
        looks at PreferNoSchedule too."""
        tolerations = pod.object.spec.tolerations or ()
        if tolerations not in self.accepted:
            free = any(node_selectors.untolerated(taints, tolerations) is None for taints in self.taints)
            self.accepted[tolerations] = free
        return self.accepted[tolerations]


def percent_text(level: Mapping[str, float]) -> str:
    """`cpu 80.0%, pods 30.0%`: percentages by name, for people."""
    return ", ".join(f"{name} {value:.1f}%" for name, value in sorted(level.items()))


def evidence(level: Level, limits: Mapping[str, float]) -> dict[str, int | float | str]:
    """Use and limit of each limited resource, in percent."""
    percent = level.percent
    named = {f"{name}Percent": round(percent[name], 2) for name in sorted(limits) if name in percent}
    return {**named, **{f"{name}LimitPercent": round(value, 2) for name, value in sorted(limits.items())}}


_BANDS = {PriorityClass.FREE: 1, PriorityClass.BATCH: 2, PriorityClass.MID: 3, PriorityClass.PROD: 4}
_KUBE = {KubeQoS.BEST_EFFORT: 1, KubeQoS.BURSTABLE: 2, KubeQoS.GUARANTEED: 3}
_QOS = {QoSClass.BE: 1, QoSClass.LS: 2, QoSClass.LSR: 3, QoSClass.LSE: 4, QoSClass.SYSTEM: 4}
_LAST = 5
_NUMBER = re.compile(r"0|[1-9][0-9]*|-[0-9]+")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation that ReplicaSets obey when they shrink: pods with a lower cost go first."""

Key = tuple[int, int, int, int, int, int, float, float, str]


def sort_key(score: Callable[[PodView], float | None]) -> Callable[[PodView], Key]:
    """Sort key of pods, first to go first. `score` says how well it would cure the node; None when nobody knows."""

    def key(pod: PodView) -> Key:
        value, relief_score = pod.pod, score(pod)
        return (
            _BANDS.get(value.priority_class, _LAST),
            value.priority or 0,
            _KUBE[value.kube_qos],
            _QOS.get(value.qos_class, _LAST),
            _cost(value.annotations.get(DELETION_COST)),
            _cost(value.annotations.get(keys.EVICTION_COST)),
            float("inf") if relief_score is None else -relief_score,
            age_seconds(pod, 0.0),
            pod.key,
        )

    return key


def relief(used: Amounts, excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """The score of a pod that uses `used` as the cure of a node that has `excess` too much.

    The weighted mean over the resources that it uses: a resource without weight is left out, one without excess counts
    as 0. The smallest pod that alone is enough comes first, then larger ones, then those that are not enough, by size.

    >>> [round(relief({"cpu": cpu}, {"cpu": 16}, {"cpu": 1}), 3) for cpu in (16, 17, 20, 8)]
    [2.0, 1.941, 1.8, 0.5]
    """
    total = weight = 0.0
    for name, amount in used.items():
        own = weights.get(name, 0)
        ratio = amount / excess[name] if excess.get(name, 0) > 0 else 0.0
        total += own * (1 + 1 / ratio if ratio >= 1 else ratio)
        weight += own
    return total / weight if weight else 0.0


def fullness(used: Amounts, capacity: Amounts, weights: Mapping[str, int]) -> int:
    """Weighted mean of the used parts, in thousandths: nodes with more are relieved first."""
    total = weight = 0
    for name, amount in used.items():
        if weights.get(name) and capacity.get(name):
            total += weights[name] * (min(amount, capacity[name]) * 1000 // capacity[name])
            weight += weights[name]
    return total // weight if weight else 0


def _cost(text: str | None) -> int:
    """An annotation that is no 32-bit number, with + or with zeros in front, counts as 0, as Kubernetes has it."""
    value = int(text) if text and _NUMBER.fullmatch(text) else 0
    return value if -(2**31) <= value < 2**31 else 0
