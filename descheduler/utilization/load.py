"""What nodes and their prod pods really use, beside the thresholds in amounts. Of Koordinator's `LowNodeLoad`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from descheduler.framework import NodeView, PodView, Usage
from descheduler.picture import amounts
from descheduler.picture.amounts import Amounts
from descheduler.utilization import classify
from descheduler.utilization.load_args import Pool
from koordlite.formulas.allocatable import reservation
from koordlite.model import keys
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.quantity import parse_resources

Kind = Literal["high", "prodHigh", "low", "prodLow", "bothLow", ""]
_MEMORY = "memory"


class Load(msgspec.Struct, eq=False):
    """A node whose use is known. Use shrinks while pods are chosen."""

    node: NodeView
    capacity: Amounts
    used: dict[str, int]
    prod_used: dict[str, int]
    pods: Mapping[str, Amounts]
    """Use by pod, `namespace/name`."""
    limits: Limits

    @property
    def kind(self) -> Kind:
        """Too full, underutilized, or neither; by all that is used, and by what prod pods use.

        Source: Koordinator `classifyNodes`.
        """
        limits, takes = self.limits, not self.node.object.spec.unschedulable
        under = takes and not above(self.used, limits.low)
        prod_over = bool(above(self.prod_used, limits.prod_high))
        if not under and above(self.used, limits.high):
            return "high"
        if prod_over:
            return "prodHigh"
        prod_under = takes and not above(self.prod_used, limits.prod_low)
        if under:
            return "bothLow" if prod_under else "low"
        return "prodLow" if prod_under and limits.prod else ""

    def lose(self, pod: PodView) -> None:
        """Note that a pod leaves. A pod without measurement takes nothing along."""
        taken = self.pods.get(pod.key)
        if taken is None:
            return
        for used in (self.used, self.prod_used) if is_prod(pod) else (self.used,):
            for name in used:
                used[name] -= 1 if name == "pods" else taken.get(name, 0)


class Limits(msgspec.Struct, frozen=True):
    """Thresholds of one node, in amounts."""

    high: Amounts
    low: Amounts
    prod_high: Amounts
    prod_low: Amounts
    prod: bool = False
    """Prod pods have thresholds of their own. Without them, Koordinator takes every node for one underutilized."""


def above(used: Amounts, limits: Amounts) -> tuple[str, ...]:
    """Resources of which more is used than the limit, by name."""
    return tuple(sorted(name for name, most in limits.items() if used.get(name, 0) > most))


def is_prod(pod: PodView) -> bool:
    """Its priority band, with default, is prod."""
    return pod.pod.priority_class is PriorityClass.PROD


def capacity(node: NodeView) -> dict[str, int]:
    """What the node had to give before it was oversold, less what is reserved on it.

    Source: Koordinator `GetNodeRawAllocatable`; it does not take the reservation off.
    """
    written = node.node.annotations.get(keys.RAW_ALLOCATABLE, "")
    try:
        raw = json.loads(written) if written else {}
    except ValueError:
        raw = {}
    over = parse_resources(raw, "", "", []) if isinstance(raw, dict) else {}
    held = {**node.node.allocatable, **over}
    return amounts.units(reservation.trim_allocatable(allocatable=held, written=node.reservation))


def loads(nodes: Iterable[NodeView], usage: Usage, pool: Pool, *, oldest_seconds: int | None) -> list[Load]:
    """Nodes whose use is known and not too old, with their limits."""
    names = resources(pool)
    prod = bool(pool.prod_high_thresholds or pool.prod_low_thresholds)
    found = [_load(node, usage, names, prod=prod) for node in nodes if _fresh(node.name, usage, oldest_seconds)]
    thresholds = Thresholds.of(pool, names, found)
    for load in found:
        load.limits = thresholds.limits(load.capacity)
    return found


def _fresh(name: str, usage: Usage, oldest_seconds: int | None) -> bool:
    if name not in usage.nodes or oldest_seconds is None:
        return name in usage.nodes
    return name in usage.ages and usage.ages[name] < oldest_seconds


def resources(pool: Pool) -> tuple[str, ...]:
    """Resources that are compared: all that have a threshold, and memory."""
    given = (pool.high_thresholds, pool.low_thresholds, pool.prod_high_thresholds, pool.prod_low_thresholds)
    return tuple(sorted({_MEMORY, *(name for thresholds in given for name in thresholds)}))


_UNKNOWN = Limits({}, {}, {}, {})


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
    return Load(node, capacity(node), used, prod_used, own, _UNKNOWN)


class Thresholds(msgspec.Struct, frozen=True):
    """Percentages of a pool, complete, with the means that deviations are measured from."""

    pool: Pool
    names: tuple[str, ...]
    average: classify.Percent
    prod_average: classify.Percent

    @classmethod
    def of(cls, pool: Pool, names: tuple[str, ...], found: Iterable[Load]) -> Thresholds:
        """The thresholds of a pool for these nodes."""
        listed = tuple(found)
        means = [
            classify.averages(classify.percentages(used=used, capacity=capacity) for used, capacity in pairs)
            for pairs in ([(x.used, x.capacity) for x in listed], [(x.prod_used, x.capacity) for x in listed])
        ]
        return cls(pool, names, *means)

    def limits(self, held: Amounts) -> Limits:
        """Amounts at which a node that has `held` is too full, or is underutilized."""
        high, low = self._pair(self.pool.high_thresholds, self.pool.low_thresholds)
        prod_high, prod_low = self._pair(self.pool.prod_high_thresholds, self.pool.prod_low_thresholds)
        means = (self.average, self.prod_average)
        return Limits(
            high=self._amounts(high, means[0], 1, held),
            low=self._amounts(low, means[0], -1, held),
            prod_high=self._amounts(prod_high, means[1], 1, held),
            prod_low=self._amounts(prod_low, means[1], -1, held),
            prod=bool(self.pool.prod_high_thresholds or self.pool.prod_low_thresholds),
        )

    def _pair(self, high: classify.Percent, low: classify.Percent) -> tuple[classify.Percent, classify.Percent]:
        """What has no low threshold is underutilized up to its high one; what has neither is never too full. As a
        deviation, a low threshold of 0 takes the resource out of the comparison.

        Koordinator drops a high threshold that has no low one.
        """
        deviation = self.pool.use_deviation_thresholds
        none = 0.0 if deviation else classify.WHOLE
        out = {name for name in low if deviation and low[name] == 0}
        full = {name: none if name in out else high.get(name, none) for name in self.names}
        return full, {name: low.get(name, full[name]) for name in self.names}

    def _amounts(self, percent: classify.Percent, mean: classify.Percent, sign: int, held: Amounts) -> dict[str, int]:
        at = {name: self._level(percent[name], mean.get(name, 0.0), sign) for name in self.names}
        return {name: int(level * 0.01 * held.get(name, 0)) for name, level in at.items()}

    def _level(self, percent: float, mean: float, sign: int) -> float:
        if not self.pool.use_deviation_thresholds:
            return percent
        return classify.WHOLE if percent == 0 else min(max(mean + sign * percent, 0.0), classify.WHOLE)


def headroom(targets: Iterable[Load], *, prod: bool, names: Iterable[str]) -> dict[str, int]:
    """How much more the targets take, in one sum."""
    found = tuple(targets)
    return {name: sum(_left(load, name, prod=prod) for load in found) for name in names}


def _left(load: Load, name: str, *, prod: bool) -> int:
    if prod:
        return load.limits.prod_high[name] - load.prod_used.get(name, 0)
    return load.limits.high[name] - load.used.get(name, 0)
