"""Arguments of `LowNodeLoad`, the pools of nodes that they make, and how often in a row a node must be too full.

Source: Koordinator's anomaly `BasicDetector`. It asks for one sighting more than its documentation says; here N are N.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from descheduler.arguments.common import LabelSelector, MovingPods
from koordlite.model import duration
from koordlite.model.reading import strict
from koordlite.model.settings import bounded, duration_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnomalyCondition:
    """The number of times a node must be too full before pods leave it. Counts that are left out are taken from the
    level above."""

    timeout: str | None = dataclasses.field(default=None, metadata={"check": duration.seconds})
    """A node that counts as too full is observed again after this time; 1m unless given."""
    consecutive_abnormalities: int | None = bounded(None, ge=1)
    """Number of cycles in a row in which it must be too full; 1: the first is enough; 5 by default."""
    consecutive_normalities: int | None = bounded(None, ge=1)
    """Number of cycles in a row in which it is not, after which it no longer counts as too full; 3 by default."""

    def over(self, above: AnomalyCondition) -> AnomalyCondition:
        """This condition with the counts that it leaves out taken from `above`; the timeout is its own."""
        return AnomalyCondition(
            timeout=self.timeout,
            consecutive_abnormalities=self.consecutive_abnormalities or above.consecutive_abnormalities,
            consecutive_normalities=self.consecutive_normalities or above.consecutive_normalities,
        )


USUAL = AnomalyCondition(timeout="1m", consecutive_abnormalities=5, consecutive_normalities=3)


class Debounce(msgspec.Struct, frozen=True):
    """A condition that leaves nothing open."""

    abnormalities: int
    normalities: int
    timeout_seconds: float

    @classmethod
    def of(cls, condition: AnomalyCondition) -> Debounce:
        """The condition, completed. A timeout of 0 is the usual one, as Koordinator has it."""
        whole = condition.over(USUAL)
        timeout = duration.seconds(whole.timeout or "0")
        return cls(
            abnormalities=whole.consecutive_abnormalities or 1,
            normalities=whole.consecutive_normalities or 1,
            timeout_seconds=timeout or duration.seconds(USUAL.timeout or "0"),
        )


class Watch(msgspec.Struct, frozen=True):
    """Sightings of a node in earlier cycles."""

    anomalous: bool = False
    abnormal: int = 0
    """Sightings in a row that it was too full, since the state changed last."""
    normal: int = 0
    """Sightings in a row that it was not."""
    since: float = 0.0
    """Time of the last change of the state, in seconds."""


NEW = Watch()


def mark(watch: Watch, *, normal: bool, now: float, debounce: Debounce) -> Watch:
    """The watch after one more sighting."""
    if watch.anomalous and now - watch.since >= debounce.timeout_seconds:
        watch = Watch(since=now)
    if normal:
        updated = msgspec.structs.replace(watch, abnormal=0, normal=watch.normal + 1)
        over = updated.anomalous and updated.normal >= debounce.normalities
        return Watch(since=now) if over else updated
    updated = msgspec.structs.replace(watch, abnormal=watch.abnormal + 1, normal=0)
    begins = not updated.anomalous and updated.abnormal >= debounce.abnormalities
    return Watch(anomalous=True, since=now) if begins else updated


DEFAULT_POOL = "__default_node_pool__"
_BASIC = ("cpu", "memory")


def _at_least_zero(value: Mapping[str, float]) -> None:
    wrong = sorted(name for name, percent in value.items() if percent is not None and percent < 0)
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: percentage must be greater than or equal to 0")


def _own_percentages() -> Any:
    return dataclasses.field(default=None, metadata={"check": _at_least_zero})


def _percentages() -> Any:
    return dataclasses.field(default_factory=dict, metadata={"check": _at_least_zero})


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes that are compared with each other.

    A field that is left out is taken from the top level as a whole; one that is given, `{}` too, stays as it is.
    """

    name: str = ""
    """Name for people."""
    node_selector: LabelSelector | None = None
    """Selector of nodes, but those that a pool before relieves; null: all that are in no pool before."""
    use_deviation_thresholds: bool = False
    """Thresholds are distances from the mean of the pool. Not taken from the top level."""
    high_thresholds: Mapping[str, float] | None = _own_percentages()
    """Percent by resource: a node above any of them is too full."""
    low_thresholds: Mapping[str, float] | None = _own_percentages()
    """Percent by resource: a node at or below all of them is underutilized."""
    prod_high_thresholds: Mapping[str, float] | None = _own_percentages()
    """The same for what prod pods use alone."""
    prod_low_thresholds: Mapping[str, float] | None = _own_percentages()
    """The same for what prod pods use alone."""
    resource_weights: Mapping[str, int] | None = None
    """Weights of resources when nodes and pods are sorted; what is not named counts nothing."""
    anomaly_condition: AnomalyCondition | None = None
    """Number of times a node must be found too full. Counts that are left out are taken from the top level."""

    def __post_init__(self) -> None:
        _check_order(self)


def _check_order(level: NodePool | Config) -> None:
    """Refuse a threshold above the one that bounds it."""
    for lower, upper in (("low", "high"), ("prod_high", "high"), ("prod_low", "prod_high")):
        small = getattr(level, f"{lower}_thresholds") or {}
        large = getattr(level, f"{upper}_thresholds") or {}
        wrong = sorted(name for name in small if name in large and small[name] > large[name])
        if wrong:
            names = strict.camel(f"{lower}_thresholds"), strict.camel(f"{upper}_thresholds")
            raise ValueError(f"{', '.join(wrong)}: {names[0]} must not be above {names[1]}")


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with everything that it takes from the top level."""

    name: str
    node_selector: LabelSelector | None
    use_deviation_thresholds: bool
    high_thresholds: Mapping[str, float]
    low_thresholds: Mapping[str, float]
    prod_high_thresholds: Mapping[str, float]
    prod_low_thresholds: Mapping[str, float]
    resource_weights: Mapping[str, int]
    anomaly_condition: AnomalyCondition


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(MovingPods):
    """Arguments of `LowNodeLoad`."""

    node_selector: LabelSelector | None = None
    """Nodes of the thresholds on this level; null: all that no pool has taken."""
    dry_run: bool = False
    """Name pods, but let none go."""
    number_of_nodes: int = bounded(0, ge=0)
    """Do nothing while this many nodes or fewer are underutilized."""
    node_metric_expiration_seconds: int | None = bounded(180, ge=1)
    """A node whose NodeMetric is older is not compared; null: any age will do."""
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
    """Weights of resources when nodes and pods are sorted; cpu, memory and those of highThresholds and
    lowThresholds count 1 unless a weight above 0 is given."""
    anomaly_condition: AnomalyCondition = USUAL
    """Number of times a node must be found too full."""
    detector_cache_timeout: str = duration_text("5m")
    """Time after which the state of a node is forgotten, unless it was in the cycle just before."""
    node_pools: tuple[NodePool, ...] = ()
    """Pools with thresholds of their own. They are judged before the thresholds of this level."""

    def __post_init__(self) -> None:
        _check_order(self)

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Measurements it needs: source, and query where the source is asked one."""
        return (("NodeMetric", ""),)

    @property
    def pools(self) -> Iterator[Pool]:
        """Every pool, with what it takes from this level; this level's own comes last, where it has thresholds.

        Koordinator judges this level first, on all nodes, and a pool's nodes twice.
        """
        yield from map(self.complete, self.node_pools)
        if self.high_thresholds or self.prod_high_thresholds:
            yield self.whole

    @property
    def whole(self) -> Pool:
        """This level as a pool."""
        shared = {field.name for field in dataclasses.fields(self)}.intersection(Pool.__struct_fields__)
        own = {name: getattr(self, name) for name in shared}
        # What is given; 1 for a compared resource that has no weight above 0.
        compared = sorted({*_BASIC, *self.high_thresholds, *self.low_thresholds})
        missing = {name: 1 for name in compared if self.resource_weights.get(name, 0) <= 0}
        own.update(
            resource_weights={**self.resource_weights, **missing}, anomaly_condition=self.anomaly_condition.over(USUAL)
        )
        return Pool(name=DEFAULT_POOL, **own)

    def complete(self, pool: NodePool) -> Pool:
        """The pool with what it leaves out taken from this level. Source: Koordinator's defaults of the arguments."""
        above = self.whole
        own = {name: value for name in Pool.__struct_fields__ if (value := getattr(pool, name)) is not None}
        if pool.anomaly_condition:
            own["anomaly_condition"] = pool.anomaly_condition.over(above.anomaly_condition)
        return msgspec.structs.replace(above, **{"node_selector": None, **own})
