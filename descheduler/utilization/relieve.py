"""Pods leave nodes that are too full by measured use, as long as the nodes that are underutilized can take what they
use.

Source: Koordinator `evictPodsFromSourceNodes`. Capacity of a node is booked when a pod really goes, not when it is
considered, and in the order in which pods go.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Generator, Mapping

import msgspec

from descheduler.framework import Finding, Handle, Note, PodView, Verdict
from descheduler.picture.amounts import Amounts
from descheduler.utilization import koord_order, load
from descheduler.utilization.drain import shown
from descheduler.utilization.load import Load

Steps = Generator[Finding | Note, Verdict | None, bool]
"""Findings and notes; in the end, whether evictions may go on at other nodes."""


class Pass(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One pass: all pods of nodes that are too full, or the prod pods of nodes where prod pods use too much."""

    prod: bool
    targets: tuple[Load, ...]
    headroom: dict[str, int]
    """What the targets still take."""
    weights: Mapping[str, int]
    node_fit: bool
    dry_run: bool
    may_leave: Callable[[PodView], bool]
    booked: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Use of the targets with what this pass sends there."""
    relieved: set[str] = msgspec.field(default_factory=set)
    """Nodes that have little enough in the end."""
    refused: dict[object, set[str]] = msgspec.field(default_factory=dict)
    """Targets that do not take pods of a kind. They only get fuller while the pass lasts, so a refusal holds."""
    widest: dict[str, int] = msgspec.field(default_factory=dict)
    """What the widest target took of each resource when it was last measured: no target takes more."""

    def run(self, sources: list[Load], handle: Handle) -> Generator[Finding | Note, Verdict | None, None]:
        """Name pods of each source, the fullest first."""
        for source in sorted(sources, key=self._fullness):
            going_on = yield from self._node(source, handle)
            if not going_on:
                return

    def _fullness(self, source: Load) -> tuple[int, str]:
        return -koord_order.fullness(self._used(source), source.capacity, self.weights), source.node.name

    def _used(self, node: Load) -> dict[str, int]:
        return node.prod_used if self.prod else node.used

    def _limit(self, node: Load) -> Amounts:
        return node.limits.prod_high if self.prod else node.limits.high

    def excess(self, node: Load) -> dict[str, int]:
        """By how much the node is too full, by resource."""
        used, limit = self._used(node), self._limit(node)
        return {name: used[name] - limit[name] for name in load.above(used, limit)}

    def _node(self, source: Load, handle: Handle) -> Steps:
        pods = [pod for pod in source.node.pods if (load.is_prod(pod) or not self.prod) and self.may_leave(pod)]
        pods = [pod for pod in pods if not handle.going(pod) and handle.evictable(pod)]
        if not pods:
            yield Note(node=source.node.name, reason="NothingEvictable", text=f"{self.sentence(source)}; no pod may go")
        score = self._score(source)
        for pod in sorted(pods, key=koord_order.sort_key(score)):
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
        excess = self.excess(source)
        weights = {name: weight for name, weight in self.weights.items() if name in excess}

        def score(pod: PodView) -> float | None:
            used = source.pods.get(pod.key)
            return None if used is None else koord_order.relief(used, excess, weights)

        return score

    def _goes_on(self, source: Load) -> bool:
        if not self.excess(source):
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
        """How much the widest target still takes of each resource."""
        gaps: dict[str, int] = {}
        for target in self.targets:
            have = self._expected(target)
            for name, most in self._limit(target).items():
                gaps[name] = max(gaps.get(name, 0), most - have.get(name, 0))
        self.widest.update(gaps)

    def _stays_low(self, target: Load, used: Amounts) -> bool:
        have, limit = self._expected(target), self._limit(target)
        return all(have.get(name, 0) + amount <= limit[name] for name, amount in used.items() if name in limit)

    def _expected(self, target: Load) -> dict[str, int]:
        """Use of a target with what this pass sends there."""
        return self.booked.get(target.node.name) or self._used(target)

    @functools.cached_property
    def by_name(self) -> Mapping[str, Load]:
        """Targets by name."""
        return {target.node.name: target for target in self.targets}

    @functools.cached_property
    def order(self) -> list[tuple[float, str, Load]]:
        """Targets by the part of their limits that they use already, the emptiest first."""
        return sorted(self._place(target) for target in self.targets)

    def _place(self, target: Load) -> tuple[float, str, Load]:
        have, limit = self._expected(target), self._limit(target)
        return max((have.get(n, 0) / most for n, most in limit.items() if most), default=0.0), target.node.name, target

    def _book(self, target: Load, used: Amounts) -> None:
        del self.order[bisect.bisect_left(self.order, self._place(target)[:2], key=lambda entry: entry[:2])]
        have = self.booked.setdefault(target.node.name, dict(self._used(target)))
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
        """Why the node is too full, in Koordinator's words, with the thresholds that hold on it."""
        return overused(self._used(source), self._limit(source), source.capacity, prod=self.prod)

    def _finding(self, pod: PodView, source: Load) -> Finding:
        used, limit, held = self._used(source), self._limit(source), source.capacity
        percent = {name: _percent(used[name], held.get(name, 0)) for name in self.excess(source)}
        most = {name: _percent(limit[name], held.get(name, 0)) for name in percent}
        return Finding(
            pod=pod.uid,
            reason="ProdOverused" if self.prod else "NodeOverused",
            severity="exposed" if self.dry_run else "hard",
            promise=f"at most {shown(most)} of {source.node.name} is used{' by prod pods' if self.prod else ''}",
            fact=self.sentence(source),
            cure="dryRun of LowNodeLoad is on: it stays" if self.dry_run else "it leaves for an underutilized node",
            evidence={
                "node": source.node.name,
                **{f"{name}Percent": value for name, value in percent.items()},
                **{f"{name}LimitPercent": value for name, value in most.items()},
                **{f"{name}OfPod": value for name, value in sorted(source.pods.get(pod.key, {}).items())},
            },
        )


def overused(used: Amounts, limit: Amounts, held: Amounts, *, prod: bool) -> str:
    """Which resources are used too much, in percent of what the node has.

    >>> overused({"cpu": 3200}, {"cpu": 2000}, {"cpu": 4000}, prod=False)
    'node is overutilized, node cpu usage(80.00%)>threshold(50.00%)'

    Source: Koordinator `overUtilizedEvictionReason`.
    """
    who = "prod" if prod else "node"
    parts = [
        f"{who} {name} usage({_percent(used[name], held.get(name, 0)):.2f}%)"
        f">threshold({_percent(limit[name], held.get(name, 0)):.2f}%)"
        for name in load.above(used, limit)
    ]
    return ", ".join(["node is overutilized", *parts])


def _percent(amount: int, held: int) -> float:
    return round(amount * 100 / held, 2) if held else 0.0
