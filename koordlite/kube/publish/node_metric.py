"""NodeMetric (slo.koordinator.sh/v1alpha1): the node's use as Koordinator's controller and scheduler expect it.

Shape: Koordinator's `NodeMetricSpec` and `NodeMetricStatus`. Use is the mean over `metricAggregateDurationSeconds` of
`colocation-config`; percentiles are over each of `metricAggregatePolicy.durations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable, prediction
from koordlite.kube.client import micro_time
from koordlite.model import duration, keys
from koordlite.model.picture.usage import Spread, Use
from koordlite.model.slo import settings
from koordlite.model.slo.settings import Colocation
from koordlite.model.snapshot import Snapshot, has_node
from koordlite.model.wire import objects

API_VERSION = "slo.koordinator.sh/v1alpha1"
_PREDICTED = ("prodReclaimableMetric", "prodPeakMetric")


def status(snapshot: Snapshot, *, wall: float) -> dict[str, Any] | None:
    """The status that the means of use give; None while there are none."""
    usage = snapshot.average
    if usage.node is None:
        return None
    system = _rest(usage.node, [*usage.pods.values(), *usage.host_apps.values()])
    return {
        "updateTime": micro_time.seconds(wall),
        "nodeMetric": {
            "nodeUsage": _resources(usage.node),
            "systemUsage": _resources(system),
            "aggregatedNodeUsages": _windows(snapshot, "node"),
            "aggregatedSystemUsages": _windows(snapshot, "system"),
            "numaUsages": _by_numa(snapshot, system) or None,
        },
        "podsMetric": list(_pods(snapshot)),
        "hostApplicationMetric": list(_hosts(snapshot)),
        **_predicted(snapshot),
    }


def _predicted(snapshot: Snapshot) -> dict[str, Any]:
    """Requests that prod pods are not expected to use, and those they are; null removes koordlet's."""
    if not has_node(snapshot):
        return dict.fromkeys(_PREDICTED)
    offered = allocatable.amounts(snapshot.notes.kubelet_allocatable(snapshot.node))
    found = prediction.reclaimable(prediction=snapshot.prediction, pods=snapshot.pods, offered=offered)
    if found is None:
        return dict.fromkeys(_PREDICTED)
    return dict(zip(_PREDICTED, ({"resource": _resources(use)} for use in (found.least, found.peak)), strict=True))


def spec(colocation: Colocation) -> dict[str, Any]:
    """spec of the object, as Koordinator's nodemetric controller writes it from `colocation-config`."""
    policy = settings.collect_policy(colocation)
    return {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": policy.aggregate_seconds,
            "reportIntervalSeconds": policy.report_seconds,
            "nodeAggregatePolicy": {"durations": [duration.show(length) for length in policy.durations_ns]},
            "nodeMemoryCollectPolicy": policy.memory_policy,
        }
    }


def fresh(node: objects.NodeObject, colocation: Colocation) -> dict[str, Any]:
    """The whole object, owned by the Node, so that it goes when the node goes."""
    owners = [msgspec.to_builtins(node.as_owner)]
    metadata = {"name": node.metadata.name, "labels": dict(keys.MADE_BY), "ownerReferences": owners}
    return {"apiVersion": API_VERSION, "kind": "NodeMetric", "metadata": metadata, "spec": spec(colocation)}


def _windows(snapshot: Snapshot, part: str) -> list[dict[str, Any]]:
    """Mean and percentiles by duration; without numbers until samples cover half of it."""
    return [
        {"usage": _spread(getattr(each, part)), "duration": duration.show(each.length_ns)}
        for each in snapshot.node_windows
    ]


def _spread(spread: Spread | None) -> dict[str, Any]:
    if spread is None:
        return {}
    uses = {"avg": spread.mean, **{f"p{percent}": use for percent, use in spread.percentiles.items()}}
    return {name: _resources(use) for name, use in uses.items()}


def _by_numa(snapshot: Snapshot, system: Use) -> list[dict[str, Any]]:
    cpus = measured.system_cpu_by_numa(system.cpu, {numa: each.node.cpu for numa, each in snapshot.numa_use.items()})
    found: list[dict[str, Any]] = []
    for numa, each in snapshot.numa_use.items():
        entry: dict[str, Any] = {"numaNodeID": numa, "nodeUsage": _resources(each.node)}
        if each.system_memory is not None:
            entry["systemUsage"] = _resources(Use(cpus[numa], each.system_memory))
        found.append(entry)
    return found


def _pods(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    for pod in sorted(snapshot.pods, key=lambda pod: (pod.namespace, pod.name)):
        use = snapshot.average.pods.get(pod.uid)
        if use is not None:
            classes = {"priority": str(pod.priority_class), "qos": str(pod.qos_class)}
            yield {"name": pod.name, "namespace": pod.namespace, "podUsage": _resources(use), **classes}


def _hosts(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    for app in sorted(snapshot.slo.host_applications, key=lambda app: app.name):
        use = snapshot.average.host_apps.get(app.name)
        if use is not None:
            yield {
                "name": app.name,
                "usage": _resources(use),
                "priority": str(app.priority),
                "qos": str(app.qos),
            }


def _rest(whole: Use, parts: Sequence[Use]) -> Use:
    """The system's share; samples of different moments may not add up."""
    cpu, memory = sum(use.cpu for use in parts), sum(use.memory for use in parts)
    return Use(max(0, whole.cpu - cpu), max(0, whole.memory - memory))


def _resources(use: Use) -> dict[str, Any]:
    return {"resources": {"cpu": f"{use.cpu}m", "memory": str(use.memory)}}
