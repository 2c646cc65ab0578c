"""Measured use out of objects: koordlet's NodeMetric, and the resource metrics API (`metrics.k8s.io`), smoothed over
time as upstream does it.
"""

from __future__ import annotations

from collections.abc import Iterable

from descheduler.picture import amounts
from descheduler.picture.cluster import Usage
from koordlite.model import times
from koordlite.model.errors import Problem
from koordlite.model.quantity import parse_resources
from koordlite.model.wire import metrics

NODE_METRIC = "NodeMetric"
"""Its name in `View.usage`."""


def of_node_metrics(objects: Iterable[metrics.NodeMetricObject], now: float, problems: list[Problem]) -> Usage:
    """Use of nodes (the system and all pods) and of pods. A node that nobody has filled in is not among them.

    Source: Koordinator `getNodeUsage`: host applications and `nodeUsage` do not count.
    """
    nodes: dict[str, dict[str, int]] = {}
    pods: dict[str, dict[str, int]] = {}
    ages: dict[str, float] = {}
    for obj in objects:
        name, status = obj.metadata.name, obj.status
        if status.node_metric is None:
            continue
        owner = f"nodemetric/{name}"
        total = _measured(status.node_metric.system_usage, owner, problems)
        for pod in status.pods_metric or ():
            used = pods[f"{pod.namespace}/{pod.name}"] = _measured(pod.pod_usage, owner, problems)
            for resource, amount in used.items():
                total[resource] = total.get(resource, 0) + amount
        nodes[name] = total
        written = times.parse_or_none(status.update_time)
        if written is not None:
            ages[name] = max(0.0, now - written)
    return Usage(nodes, pods, ages, "" if nodes else "there is no NodeMetric that koordlet has filled in")


def _measured(measured: metrics.MeasuredResources | None, owner: str, problems: list[Problem]) -> dict[str, int]:
    return amounts.units(parse_resources(measured.resources if measured else None, owner, "status", problems))


METRICS_API = "KubernetesMetrics"
"""Its name in `View.usage`."""
OLD_TENTHS = 9
"""How many tenths of the old value stay when a new one comes. Source: upstream `metricscollector`."""
NO_NODES = "the metrics API reports no node"


def of_metrics_api(
    nodes: Iterable[metrics.NodeMetricsObject],
    pods: Iterable[metrics.PodMetricsObject],
    problems: list[Problem],
) -> Usage:
    """Use of nodes and pods as measured just now."""
    of_nodes = {obj.metadata.name: _amounts(obj.usage, f"nodemetrics/{obj.metadata.name}", problems) for obj in nodes}
    of_pods = {f"{obj.metadata.namespace}/{obj.metadata.name}": _of_pod(obj, problems) for obj in pods}
    return Usage(of_nodes, of_pods, absent="" if of_nodes else NO_NODES)


def _of_pod(obj: metrics.PodMetricsObject, problems: list[Problem]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in obj.containers or ():
        owner = f"podmetrics/{obj.metadata.namespace}/{obj.metadata.name}"
        for name, amount in _amounts(container.usage, owner, problems).items():
            total[name] = total.get(name, 0) + amount
    return total


def _amounts(use: dict[str, str | int | float] | None, owner: str, problems: list[Problem]) -> dict[str, int]:
    return amounts.units(parse_resources(use, owner, "usage", problems))


class Smoothed:
    """Use of nodes over many samples; a node that a sample lacks keeps what it had."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, int]] = {}

    def add(self, sample: Usage) -> Usage:
        """Take in a sample; the same with the nodes smoothed.

        The first sample of a node counts as it is; after that new = 0.9 × old + 0.1 × sample.
        """
        for name, measured in sample.nodes.items():
            old = self._nodes.get(name, measured)
            self._nodes[name] = {resource: smooth(old.get(resource, use), use) for resource, use in measured.items()}
        nodes = {name: dict(use) for name, use in self._nodes.items()}
        return Usage(nodes, sample.pods, absent="" if nodes else sample.absent or NO_NODES)

    def keep(self, names: Iterable[str]) -> None:
        """Forget nodes that are no more."""
        known = set(names)
        self._nodes = {name: use for name, use in self._nodes.items() if name in known}


def smooth(old: int, sample: int) -> int:
    """One step of the moving average, rounded to whole units.

    >>> smooth(1000, 2000)
    1100
    """
    return (OLD_TENTHS * old + (10 - OLD_TENTHS) * sample + 5) // 10
