"""Arguments of `LowNodeLoad`, and the pools of nodes that they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from descheduler.arguments.common import LabelSelector, Namespaces
from descheduler.utilization.anomaly import USUAL, AnomalyCondition
from koordlite.model.settings import bounded, duration_text

DEFAULT_POOL = "__default_node_pool__"
_BASIC = ("cpu", "memory")
EVERY_NAMESPACE = Namespaces()
_NOTHING_GIVEN = AnomalyCondition()


def _at_least_zero(value: Mapping[str, float]) -> None:
    wrong = sorted(name for name, percent in value.items() if percent is not None and percent < 0)
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: percentage must be greater than or equal to 0")


def _percentages() -> Any:
    return dataclasses.field(default_factory=dict, metadata={"check": _at_least_zero})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodSelector:
    """One group of pods that may leave."""

    name: str = ""
    """For people."""
    selector: LabelSelector | None = None
    """Which pods; null: none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes that are compared with each other. What is left out is taken from the top level."""

    name: str = ""
    """For people."""
    node_selector: LabelSelector | None = None
    """Which nodes; null: all that no pool before has taken."""
    use_deviation_thresholds: bool = False
    """Thresholds are distances from the mean of the pool. Not taken from the top level."""
    high_thresholds: Mapping[str, float] = _percentages()
    """Percent by resource: a node above any of them is too full."""
    low_thresholds: Mapping[str, float] = _percentages()
    """Percent by resource: a node at or below all of them is underutilized."""
    prod_high_thresholds: Mapping[str, float] = _percentages()
    """The same for what prod pods use alone."""
    prod_low_thresholds: Mapping[str, float] = _percentages()
    """The same for what prod pods use alone."""
    resource_weights: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How much a resource counts when nodes and pods are sorted; empty: 1 each."""
    anomaly_condition: AnomalyCondition = _NOTHING_GIVEN
    """How often a node must be found too full."""

    def __post_init__(self) -> None:
        _check_order(self.low_thresholds, self.high_thresholds, "lowThresholds", "highThresholds")
        _check_order(self.prod_high_thresholds, self.high_thresholds, "prodHighThresholds", "highThresholds")
        _check_order(self.prod_low_thresholds, self.prod_high_thresholds, "prodLowThresholds", "prodHighThresholds")


def _check_order(small: Mapping[str, float], large: Mapping[str, float], *names: str) -> None:
    wrong = sorted(name for name in small if name in large and small[name] > large[name])
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: {names[0]} must not be above {names[1]}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `LowNodeLoad`."""

    paused: bool = False
    """Judge nothing."""
    dry_run: bool = False
    """Name pods, but let none go."""
    number_of_nodes: int = bounded(0, ge=0)
    """Do nothing while this many nodes or fewer are underutilized."""
    node_metric_expiration_seconds: int | None = bounded(180, ge=1)
    """A node whose NodeMetric is older is not compared; null: any age will do."""
    evictable_namespaces: Namespaces = EVERY_NAMESPACE
    """Whose pods may leave."""
    node_selector: LabelSelector | None = None
    """Nodes of the thresholds on this level; null: all that no pool has taken."""
    pod_selectors: tuple[PodSelector, ...] = ()
    """Only pods that one of these selects may leave; empty: all."""
    node_fit: bool = True
    """A pod leaves only when one of the nodes that are underutilized would take it."""
    use_deviation_thresholds: bool = False
    """Thresholds are distances from the mean of the nodes."""
    high_thresholds: Mapping[str, float] = _percentages()
    """Percent by resource: a node above any of them is too full."""
    low_thresholds: Mapping[str, float] = _percentages()
    """Percent by resource: a node at or below all of them is underutilized."""
    prod_high_thresholds: Mapping[str, float] = _percentages()
    """The same for what prod pods use alone."""
    prod_low_thresholds: Mapping[str, float] = _percentages()
    """The same for what prod pods use alone."""
    resource_weights: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How much a resource counts when nodes and pods are sorted; empty: 1 each."""
    anomaly_condition: AnomalyCondition = USUAL
    """How often a node must be found too full."""
    detector_cache_timeout: str = duration_text("5m")
    """What was found of a node is forgotten after this time, unless it was in the cycle just before."""
    node_pools: tuple[NodePool, ...] = ()
    """Pools with thresholds of their own. They are judged before the thresholds of this level."""

    def __post_init__(self) -> None:
        _ = self.top_level  # Its checks are those of this level.

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Measurements it needs: source, and query where the source is asked one."""
        return (("NodeMetric", ""),)

    @property
    def top_level(self) -> NodePool:
        """The thresholds of this level as a pool."""
        shared = {f.name for f in dataclasses.fields(NodePool)} & {f.name for f in dataclasses.fields(self)}
        return NodePool(name=DEFAULT_POOL, **{name: getattr(self, name) for name in shared})

    @property
    def pools(self) -> Iterator[NodePool]:
        """Every pool, with what it takes from this level; this level's own comes last, where it has thresholds.

        Koordinator judges this level first, on all nodes, and a pool's nodes twice.
        """
        yield from map(self.completed, self.node_pools)
        if self.high_thresholds or self.prod_high_thresholds:
            yield self.whole

    @property
    def whole(self) -> NodePool:
        """This level as a pool, complete."""
        return self.completed(self.top_level)

    def completed(self, pool: NodePool) -> NodePool:
        """The pool with what it leaves out taken from this level."""
        names = ("high_thresholds", "low_thresholds", "prod_high_thresholds", "prod_low_thresholds", "resource_weights")
        taken = {name: getattr(pool, name) or getattr(self, name) for name in names}
        condition = pool.anomaly_condition.over(self.anomaly_condition.over(USUAL))
        whole = dataclasses.replace(pool, **taken, anomaly_condition=condition)
        return dataclasses.replace(whole, resource_weights=weights(whole))


def weights(pool: NodePool) -> dict[str, int]:
    """How much each resource counts: 1 unless something above 0 is given."""
    names = {*_BASIC, *pool.high_thresholds, *pool.low_thresholds, *pool.resource_weights}
    return {name: max(pool.resource_weights.get(name, 1), 0) or 1 for name in sorted(names)}
