"""Measured use out of NodeMetric objects, which koordlet writes."""

from __future__ import annotations

from collections.abc import Iterable

from descheduler.picture import amounts
from descheduler.picture.cluster import Usage
from koordlite.model import times
from koordlite.model.errors import Problem
from koordlite.model.quantity import parse_resources
from koordlite.model.wire import metrics

SOURCE = "NodeMetric"
"""Its name in `View.usage`."""


def usage(objects: Iterable[metrics.NodeMetricObject], now: float, problems: list[Problem]) -> Usage:
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
        total = _amounts(status.node_metric.system_usage, owner, problems)
        for pod in status.pods_metric or ():
            used = pods[f"{pod.namespace}/{pod.name}"] = _amounts(pod.pod_usage, owner, problems)
            for resource, amount in used.items():
                total[resource] = total.get(resource, 0) + amount
        nodes[name] = total
        written = times.parse_or_none(status.update_time)
        if written is not None:
            ages[name] = max(0.0, now - written)
    return Usage(nodes, pods, ages, "" if nodes else "there is no NodeMetric that koordlet has filled in")


def _amounts(measured: metrics.MeasuredResources | None, owner: str, problems: list[Problem]) -> dict[str, int]:
    return amounts.units(parse_resources(measured.resources if measured else None, owner, "status", problems))
