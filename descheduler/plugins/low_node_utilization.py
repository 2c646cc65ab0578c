"""Pods leave nodes that are too full while others stand empty, so that the scheduler spreads them again.

A node is too full when any named resource is above its target, and is underutilized when all of them are at their
threshold or below. Measured by requests, by the metrics API or by a Prometheus query."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from descheduler.arguments.common import ANY_NAMESPACE, Namespaces
from descheduler.framework import Conversation, Finding, Handle, Note, PodView, View
from descheduler.utilization import args, levels
from descheduler.utilization.levels import Level, Measure
from koordlite.model.settings import bounded

NAME = "LowNodeUtilization"
POINT = "balance"
READS = ("usage",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `LowNodeUtilization`."""

    thresholds: Mapping[str, float] = args.percentages()
    """Percent by resource: a node at or below all of them is underutilized. Required."""
    target_thresholds: Mapping[str, float] = args.percentages()
    """Percent by resource: a node above any of them is too full. The same resources as `thresholds`. Required."""
    use_deviation_thresholds: bool = False
    """Both are distances from the mean of all nodes: `thresholds` below it, `targetThresholds` above."""
    number_of_nodes: int = bounded(0, ge=0)
    """Do nothing while this many nodes or fewer are underutilized."""
    metrics_utilization: args.MetricsUtilization | None = None
    """Source of measured use; null: requests are added up."""
    evictable_namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods may leave; pods of the others still count as use."""
    eviction_limits: args.EvictionLimits = args.NO_LIMITS
    """Maximum number of pods that one run may take."""

    def __post_init__(self) -> None:
        args.check_configured(self.thresholds)
        if set(self.thresholds) != set(self.target_thresholds):
            raise ValueError("thresholds and targetThresholds configured different resources")
        above = sorted(name for name, percent in self.thresholds.items() if percent > self.target_thresholds[name])
        if above and not self.use_deviation_thresholds:
            wrong = (f"thresholds' {name} percentage is greater than targetThresholds'" for name in above)
            raise ValueError(", ".join(wrong))
        if self.by == "Prometheus" and set(self.thresholds) != {levels.METRIC}:
            raise ValueError(
                f"a Prometheus query measures the one resource {levels.METRIC}: name it in both thresholds"
            )

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Measurements it needs: source, and query where the source is asked one."""
        query = self.metrics_utilization.query if self.metrics_utilization else ""
        return ((self.by, query),) if self.by else ()

    @property
    def by(self) -> str:
        """The measure of use: empty for requests."""
        return self.metrics_utilization.measured_by if self.metrics_utilization else ""


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that should leave a node which is too full; notes say why nothing is done."""
    measure = _measure(config, handle)
    if measure.missing:
        yield Note(reason="UsageUnknown", text=f"nodes cannot be compared: {measure.missing}")
        return
    low, high = _limits(config, measure)
    percents = [(level, level.percent) for level in measure.levels]
    underutilized = [level for level, percent in percents if level.schedulable and levels.within(percent, low)]
    names = {level.node.name for level in underutilized}
    full = [level for level, percent in percents if level.node.name not in names and levels.beyond(percent, high)]
    for level in (*underutilized, *full):
        level.ceiling = levels.ceilings(tracked=level.used, limits=high, capacity=level.capacity)
    idle = _why_nothing(config, len(underutilized), len(full), len(measure.levels))
    if idle:
        yield idle
        return
    full.sort(key=lambda level: (-_fullness(level, high), level.node.name))
    tracked = dict.fromkeys(name for level in underutilized for name in level.used)
    most = config.eviction_limits.node
    if not measure.counts_down and most is None:
        most = 1
    yield from levels.Drain(
        headroom=levels.headroom_of(underutilized, tracked),
        taints={level.node.object.spec.taints or () for level in underutilized},
        pod_use=measure.pod_use,
        counts_down=measure.counts_down,
        too_full=lambda level: bool(level.excess),
        finding=lambda pod, level: _finding(pod, level, high),
        namespace_allowed=config.evictable_namespaces.chosen,
        most_per_node=most,
    ).run(full, handle)


def numbers(pod: PodView, _view: View, config: Config, handle: Handle) -> str:
    """Use of its node, and the thresholds of nodes that are too full."""
    measure = _measure(config, handle)
    level = next((level for level in measure.levels if level.node.name == pod.node), None)
    if level is None:
        return f"how full {pod.node} is, is not known{': ' + measure.missing if measure.missing else ''}"
    low, high = _limits(config, measure)
    percentages = {name: value for name, value in level.percent.items() if name in high or name in low}
    limits = f"too full above {levels.percent_text(high)}, underutilized up to {levels.percent_text(low)}"
    return f"{pod.node}: {levels.percent_text(percentages)}; {limits}"


def _measure(config: Config, handle: Handle) -> Measure:
    tracked = frozenset({*config.thresholds, *levels.BASIC})
    if config.by == "Prometheus" and config.metrics_utilization:
        return levels.by_query(handle.nodes, handle.usage("Prometheus", config.metrics_utilization.query))
    if config.by:
        return levels.by_metrics(handle.nodes, tracked, handle.usage("KubernetesMetrics"))
    return levels.by_requests(handle.nodes, tracked)


def _limits(config: Config, measure: Measure) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Percent up to which a node is underutilized, and from which it is too full."""
    if not config.use_deviation_thresholds:
        return config.thresholds, config.target_thresholds
    average = levels.averages(level.percent for level in measure.levels)
    low = levels.around(average, config.thresholds, sign=-1)
    return low, levels.around(average, config.target_thresholds, sign=1)


def _why_nothing(config: Config, underutilized: int, full: int, nodes: int) -> Note | None:
    if not underutilized:
        return Note(
            reason="NoUnderutilizedNode", text="no node is at or below all thresholds, so pods would have nowhere to go"
        )
    if underutilized <= config.number_of_nodes:
        few = f"{underutilized} nodes are underutilized; numberOfNodes asks for more than {config.number_of_nodes}"
        return Note(reason="TooFewUnderutilizedNodes", text=few)
    if underutilized == nodes:
        return Note(reason="EveryNodeUnderutilized", text=f"all {nodes} nodes are at or below all thresholds")
    return None if full else Note(reason="NoNodeTooFull", text="no node is above a target threshold")


def _fullness(level: Level, high: Mapping[str, float]) -> float:
    """Distance of the node from its targets: the fullest is relieved first.

    Upstream adds up millicores, bytes and pods, where only the bytes count.
    """
    percent = level.percent
    return max((percent[name] - limit for name, limit in high.items() if name in percent), default=0.0)


def _finding(pod: PodView, level: Level, high: Mapping[str, float]) -> Finding:
    above = {name: level.percent[name] for name in level.excess if name in level.percent}
    return Finding(
        pod=pod.uid,
        reason="NodeTooFull",
        promise=f"at most {levels.percent_text(high)} of {level.node.name} is used",
        fact=f"{levels.percent_text(above or level.percent)} is used",
        cure="it leaves, and the scheduler places its successor where there is free capacity",
        evidence={"node": level.node.name, **levels.evidence(level, high)},
    )
