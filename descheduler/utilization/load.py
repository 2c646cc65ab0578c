"""Measured use of nodes and their prod pods, beside the thresholds in amounts; and pods that leave nodes that are too
full, as long as the nodes that are underutilized can take what they use. Of Koordinator's `LowNodeLoad`.

Source: Koordinator `evictPodsFromSourceNodes`. Capacity of a node is booked when a pod really goes, not when it is
considered, and in the order in which pods go.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Literal

import msgspec

from descheduler.framework import Finding, Handle, NodeView, Note, PodView, Usage, Verdict
from descheduler.picture import pods
from descheduler.picture.pods import Amounts
from descheduler.utilization import levels
from descheduler.utilization.levels import Steps, percent_text
from descheduler.utilization.load_args import Pool
from koordlite.formulas.allocatable import reservation
from koordlite.model import keys
from koordlite.model.errors import InputError
from koordlite.model.picture import node_notes
from koordlite.model.pod.qos import PriorityClass

Kind = Literal["high", "prodHigh", "low", "prodLow", "bothLow", ""]
_MEMORY = "memory"


class Use(msgspec.Struct, eq=False):
    """Use of a node, by everything on it or by prod pods alone, beside the thresholds, all in amounts."""

    used: dict[str, int]
    """It shrinks while pods are chosen."""
    high: Amounts = {}
    low: Amounts = {}

    @property
    def excess(self) -> dict[str, int]:
        """Use beyond the high threshold, by resource."""
        return {name: self.used[name] - self.high[name] for name in above(self.used, self.high)}


class Load(msgspec.Struct, eq=False):
    """A node whose use is known."""

    node: NodeView
    capacity: Amounts
    whole: Use
    prod: Use
    pods: Mapping[str, Amounts]
    """Use by pod, `namespace/name`."""
    prod_limited: bool
    """Prod pods have thresholds of their own. Without them, Koordinator takes every node for one underutilized."""

    @property
    def kind(self) -> Kind:
        """Too full, underutilized, or neither; by all that is used, and by what prod pods use.

        Source: Koordinator `classifyNodes`.
        """
        takes = not self.node.object.spec.unschedulable
        under = takes and not above(self.whole.used, self.whole.low)
        prod_under = takes and not above(self.prod.used, self.prod.low)
        if not under and self.whole.excess:
            return "high"
        if self.prod.excess:
            return "prodHigh"
        if under:
            return "bothLow" if prod_under else "low"
        return "prodLow" if prod_under and self.prod_limited else ""

    def use(self, *, prod: bool) -> Use:
        """Its use by prod pods, or by everything."""
        return self.prod if prod else self.whole

    def lose(self, pod: PodView) -> None:
        """Note that a pod leaves. A pod without measurement takes nothing along."""
        amounts = self.pods.get(pod.key)
        if amounts is None:
            return
        for use in (self.whole, self.prod) if is_prod(pod) else (self.whole,):
            for name in use.used:
                use.used[name] -= 1 if name == "pods" else amounts.get(name, 0)


def above(used: Amounts, limits: Amounts) -> tuple[str, ...]:
    """Resources of which more is used than the limit, by name."""
    return tuple(sorted(name for name, most in limits.items() if used.get(name, 0) > most))


def is_prod(pod: PodView) -> bool:
    """Its priority band, with default, is prod."""
    return pod.pod.priority_class is PriorityClass.PROD


def capacity(node: NodeView) -> dict[str, int]:
    """Amounts that the node had to give before it was oversold, less what is reserved on it.

    Source: Koordinator `GetNodeRawAllocatable`; it does not take the reservation off.
    """
    allocatable = node.node.allocatable
    with contextlib.suppress(InputError):
        raw = node_notes.parse_raw_allocatable(node.node.annotations.get(keys.RAW_ALLOCATABLE, ""), node.name)
        allocatable = {**allocatable, **raw}
    return pods.units(reservation.trim_allocatable(allocatable=allocatable, written=node.reservation))


def loads(nodes: Iterable[NodeView], usage: Usage, pool: Pool, *, oldest_seconds: int | None) -> list[Load]:
    """Nodes whose use is known and not too old, with their limits."""
    names = resources(pool)
    prod = bool(pool.prod_high_thresholds or pool.prod_low_thresholds)
    recent = set(usage.nodes)
    if oldest_seconds is not None:
        recent &= {name for name, age in usage.ages.items() if age < oldest_seconds}
    measured = [_load(node, usage, names, prod=prod) for node in nodes if node.name in recent]
    for high, low, of_prod in (
        (pool.high_thresholds, pool.low_thresholds, False),
        (pool.prod_high_thresholds, pool.prod_low_thresholds, True),
    ):
        uses = [(load.use(prod=of_prod), load.capacity) for load in measured]
        percents = _percents(pool, names, high, low, uses)
        for use, amounts in uses:
            use.high, use.low = (
                {name: int(percent[name] * 0.01 * amounts.get(name, 0)) for name in names} for percent in percents
            )
    return measured


def _percents(
    pool: Pool, names: tuple[str, ...], high: levels.Percent, low: levels.Percent, uses: list[tuple[Use, Amounts]]
) -> tuple[levels.Percent, levels.Percent]:
    """Complete the thresholds of a pool: what has no low one is underutilized up to its high one; what has neither is
    never too full. As a deviation from the mean of `uses` (each with what the node has), a low threshold of 0 takes
    the resource out of the comparison.

    Koordinator drops a high threshold that has no low one.
    """
    deviation = pool.use_deviation_thresholds
    none = 0.0 if deviation else levels.WHOLE
    out = {name for name in low if deviation and low[name] == 0}
    full = {name: none if name in out else high.get(name, none) for name in names}
    under = {name: low.get(name, full[name]) for name in names}
    if not deviation:
        return full, under
    mean = levels.averages(levels.percentages(used=use.used, capacity=capacity) for use, capacity in uses)

    def at(distance: levels.Percent, sign: int) -> levels.Percent:
        moved = {name: mean.get(name, 0.0) + sign * distance[name] for name in names}
        return {n: levels.WHOLE if distance[n] == 0 else min(max(moved[n], 0.0), levels.WHOLE) for n in names}

    return at(full, 1), at(under, -1)


def resources(pool: Pool) -> tuple[str, ...]:
    """Resources that are compared: all that have a threshold, and memory."""
    all_thresholds = (pool.high_thresholds, pool.low_thresholds, pool.prod_high_thresholds, pool.prod_low_thresholds)
    return tuple(sorted({_MEMORY, *(name for thresholds in all_thresholds for name in thresholds)}))


def _load(node: NodeView, usage: Usage, names: tuple[str, ...], *, prod: bool) -> Load:
    """Source: Koordinator `getNodeUsage`: measured use of the system and of all pods; `pods` is their number.

    `prod`: someone asks what prod pods use.
    """
    measured = usage.nodes[node.name]
    pods = [pod for pod in node.pods if is_prod(pod)] if prod else []
    shares = [usage.pods.get(pod.key, {}) for pod in pods]
    used = {name: measured.get(name, 0) for name in names} | {"pods": len(node.pods)}
    prod_used = {name: sum(share.get(name, 0) for share in shares) for name in names} | {"pods": len(pods)}
    own = {pod.key: usage.pods[pod.key] for pod in node.pods if pod.key in usage.pods}
    return Load(node, capacity(node), Use(used), Use(prod_used), own, prod)


def headroom(targets: Iterable[Load], *, prod: bool, names: Iterable[str]) -> dict[str, int]:
    """Amounts that the targets still take, in one sum."""
    uses = [target.use(prod=prod) for target in targets]
    return {name: sum(use.high[name] - use.used.get(name, 0) for use in uses) for name in names}


class Pass(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A pass: all pods of nodes that are too full, or the prod pods of nodes where prod pods use too much."""

    prod: bool
    targets: tuple[Load, ...]
    headroom: dict[str, int]
    """Amounts that the targets still take."""
    weights: Mapping[str, int]
    node_fit: bool
    dry_run: bool
    leaving: Callable[[Iterable[PodView]], list[PodView]]
    """Choose the pods that may leave."""
    booked: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Use of the targets with what this pass sends there."""
    relieved: set[str] = msgspec.field(default_factory=set)
    """Nodes that have little enough in the end."""
    refused: dict[object, set[str]] = msgspec.field(default_factory=dict)
    """Targets that do not take pods of a kind. They only get fuller while the pass lasts, so a refusal holds."""
    widest: dict[str, int] = msgspec.field(default_factory=dict)
    """Largest room of a target for each resource when it was last measured: no target takes more."""

    def run(self, sources: list[Load], handle: Handle) -> Generator[Finding | Note, Verdict | None, None]:
        """Name pods of each source, the fullest first."""

        def fullest_first(source: Load) -> tuple[int, str]:
            return -levels.fullness(self._use(source).used, source.capacity, self.weights), source.node.name

        for source in sorted(sources, key=fullest_first):
            going_on = yield from self._node(source, handle)
            if not going_on:
                return

    def _use(self, node: Load) -> Use:
        return node.use(prod=self.prod)

    def _node(self, source: Load, handle: Handle) -> Steps:
        pods = self.leaving(pod for pod in source.node.pods if is_prod(pod) or not self.prod)
        if not pods:
            yield Note(node=source.node.name, reason="NothingEvictable", text=f"{self.sentence(source)}; no pod may go")
        score = self._score(source)
        for pod in sorted(pods, key=levels.sort_key(score)):
            if not self._goes_on(source):
                return True
            target = self._target(pod, source, handle) if self.node_fit else None
            if self.node_fit and target is None:
                continue
            verdict = yield self._finding(pod, source)
            if self.dry_run or (verdict is not None and verdict.evicted):
                self._count(pod, source, target)
            elif verdict is not None and verdict.stop in ("node", "total"):
                return verdict.stop == "node"
        self._goes_on(source)
        return True

    def _score(self, source: Load) -> Callable[[PodView], float | None]:
        excess = self._use(source).excess
        weights = {name: weight for name, weight in self.weights.items() if name in excess}

        def score(pod: PodView) -> float | None:
            used = source.pods.get(pod.key)
            return None if used is None else levels.relief(used, excess, weights)

        return score

    def _goes_on(self, source: Load) -> bool:
        if not self._use(source).excess:
            self.relieved.add(source.node.name)
            return False
        return all(amount > 0 for amount in self.headroom.values())

    def _target(self, pod: PodView, source: Load, handle: Handle) -> Load | None:
        """The emptiest node that would take the pod and not be too full with it; None also when the pod was not
        measured."""
        used = source.pods.get(pod.key)
        if used is None or any(amount > self.widest.get(name, amount) for name, amount in used.items()):
            return None
        kind = handle.kind(pod)
        refused = self.refused.setdefault(kind, set()) if kind is not None else set()
        if len(refused) == len(self.targets):
            return None
        for _, name, target in self.order:
            if name in refused or not self._stays_low(target, used):
                continue
            if handle.first_fit(pod, (target.node,)) is not None:
                return target
            refused.add(name)
        self._measure()
        return None

    def _measure(self) -> None:
        """Measure what the widest target still takes of each resource."""
        gaps: dict[str, int] = {}
        for target in self.targets:
            have = self._booked_use(target)
            for name, most in self._use(target).high.items():
                gaps[name] = max(gaps.get(name, 0), most - have.get(name, 0))
        self.widest.update(gaps)

    def _stays_low(self, target: Load, used: Amounts) -> bool:
        have, limit = self._booked_use(target), self._use(target).high
        return all(have.get(name, 0) + amount <= limit[name] for name, amount in used.items() if name in limit)

    def _booked_use(self, target: Load) -> dict[str, int]:
        """Use of a target with what this pass sends there."""
        return self.booked.get(target.node.name) or self._use(target).used

    @functools.cached_property
    def order(self) -> list[tuple[float, str, Load]]:
        """Targets by the part of their limits that they use already, the emptiest first."""
        return sorted(self._place(target) for target in self.targets)

    def _place(self, target: Load) -> tuple[float, str, Load]:
        have, limit = self._booked_use(target), self._use(target).high
        return max((have.get(n, 0) / most for n, most in limit.items() if most), default=0.0), target.node.name, target

    def _book(self, target: Load, used: Amounts) -> None:
        del self.order[bisect.bisect_left(self.order, self._place(target)[:2], key=lambda entry: entry[:2])]
        have = self.booked.setdefault(target.node.name, dict(self._use(target).used))
        for name in have:
            have[name] += used.get(name, 0)
        bisect.insort(self.order, self._place(target), key=lambda entry: entry[:2])

    def _count(self, pod: PodView, source: Load, target: Load | None) -> None:
        used = source.pods.get(pod.key)
        source.lose(pod)
        if used is None:
            return
        for name in self.headroom:
            self.headroom[name] -= 1 if name == "pods" else used.get(name, 0)
        if target is not None:
            self._book(target, used)

    def sentence(self, source: Load) -> str:
        """The reason why the node is too full, in Koordinator's words, with the thresholds that hold on it."""
        use = self._use(source)
        return overuse_text(use.used, use.high, source.capacity, prod=self.prod)

    def _finding(self, pod: PodView, source: Load) -> Finding:
        use, capacity = self._use(source), source.capacity
        percent = {name: _percent(use.used[name], capacity.get(name, 0)) for name in use.excess}
        most = {name: _percent(use.high[name], capacity.get(name, 0)) for name in percent}
        return Finding(
            pod=pod.uid,
            reason="ProdOverused" if self.prod else "NodeOverused",
            severity="exposed" if self.dry_run else "hard",
            promise=f"at most {percent_text(most)} of {source.node.name} is used{' by prod pods' if self.prod else ''}",
            fact=self.sentence(source),
            cure="dryRun of LowNodeLoad is on: it stays" if self.dry_run else "it leaves for an underutilized node",
            evidence={
                "node": source.node.name,
                **{f"{name}Percent": value for name, value in percent.items()},
                **{f"{name}LimitPercent": value for name, value in most.items()},
                **{f"{name}OfPod": value for name, value in sorted(source.pods.get(pod.key, {}).items())},
            },
        )


def overuse_text(used: Amounts, limit: Amounts, capacity: Amounts, *, prod: bool) -> str:
    """Sentence on the resources that are used too much, in percent of what the node has.

    >>> overuse_text({"cpu": 3200}, {"cpu": 2000}, {"cpu": 4000}, prod=False)
    'node is overutilized, node cpu usage(80.00%)>threshold(50.00%)'

    Source: Koordinator `overUtilizedEvictionReason`.
    """
    who = "prod" if prod else "node"
    parts = [
        f"{who} {name} usage({_percent(used[name], capacity.get(name, 0)):.2f}%)"
        f">threshold({_percent(limit[name], capacity.get(name, 0)):.2f}%)"
        for name in above(used, limit)
    ]
    return ", ".join(["node is overutilized", *parts])


def _percent(amount: int, capacity: int) -> float:
    return round(amount * 100 / capacity, 2) if capacity else 0.0
