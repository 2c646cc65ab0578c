"""NodeMetric (slo.koordinator.sh/v1alpha1): the node's use as Koordinator's controller and scheduler expect it.

Its status is sent every so often, and the object is made where it is missing and may be made. Shape: Koordinator's
`NodeMetricSpec` and `NodeMetricStatus`. Use is the mean over `metricAggregateDurationSeconds` of `colocation-config`;
percentiles are over each of `metricAggregatePolicy.durations`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable, prediction
from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.publish.background_report import BackgroundWriter
from koordlite.model import duration, keys, times
from koordlite.model.errors import Problem
from koordlite.model.picture.usage import NodeWindow, Spread, Use
from koordlite.model.slo import settings
from koordlite.model.slo.settings import Colocation
from koordlite.model.snapshot import Snapshot, has_node
from koordlite.model.wire import metrics, objects

_PREDICTED = ("prodReclaimableMetric", "prodPeakMetric")


def metric_status(snapshot: Snapshot, *, wall: float) -> dict[str, Any] | None:
    """The status that the means of use give; None while there are none."""
    usage = snapshot.average
    if usage.node is None:
        return None
    system = allocatable.system_use(node=usage.node, pods=usage.pods.values(), host_apps=usage.host_apps.values())
    return {
        "updateTime": times.show(wall),
        "nodeMetric": {
            "nodeUsage": _resources(usage.node),
            "systemUsage": _resources(system),
            # Without numbers until samples cover half of the duration.
            "aggregatedNodeUsages": [_window(each, each.node) for each in snapshot.node_windows],
            "aggregatedSystemUsages": [_window(each, each.system) for each in snapshot.node_windows],
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
    reclaimable = prediction.reclaimable(prediction=snapshot.prediction, pods=snapshot.pods, offered=offered)
    if reclaimable is None:
        return dict.fromkeys(_PREDICTED)
    return dict(
        zip(_PREDICTED, ({"resource": _resources(use)} for use in (reclaimable.least, reclaimable.peak)), strict=True)
    )


def metric_spec(colocation: Colocation) -> dict[str, Any]:
    """spec of the object, as Koordinator's nodemetric controller writes it from `colocation-config`."""
    policy = settings.collect_policy(colocation)
    return {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": policy.metric_aggregate_duration_seconds,
            "reportIntervalSeconds": policy.metric_report_interval_seconds,
            "nodeAggregatePolicy": {
                "durations": [duration.show(length) for length in policy.metric_aggregate_policy.durations]
            },
            "nodeMemoryCollectPolicy": policy.metric_memory_collect_policy,
        }
    }


def fresh(node: objects.NodeObject, colocation: Colocation) -> dict[str, Any]:
    """The whole object, owned by the Node, so that it goes when the node goes."""
    owners = [msgspec.to_builtins(node.as_owner)]
    metadata = {"name": node.metadata.name, "labels": dict(keys.MADE_BY), "ownerReferences": owners}
    return {
        "apiVersion": metrics.NODE_METRIC_VERSION,
        "kind": "NodeMetric",
        "metadata": metadata,
        "spec": metric_spec(colocation),
    }


def _window(window: NodeWindow, spread: Spread | None) -> dict[str, Any]:
    uses = {"avg": spread.mean, **{f"p{percent}": u for percent, u in spread.percentiles.items()}} if spread else {}
    return {"usage": {name: _resources(u) for name, u in uses.items()}, "duration": duration.show(window.length_ns)}


def _by_numa(snapshot: Snapshot, system: Use) -> list[dict[str, Any]]:
    cpus = measured.system_cpu_by_numa(system.cpu, {numa: each.node.cpu for numa, each in snapshot.numa_use.items()})
    usages: list[dict[str, Any]] = []
    for numa, each in snapshot.numa_use.items():
        entry: dict[str, Any] = {"numaNodeID": numa, "nodeUsage": _resources(each.node)}
        if each.system_memory is not None:
            entry["systemUsage"] = _resources(Use(cpus[numa], each.system_memory))
        usages.append(entry)
    return usages


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


def _resources(use: Use) -> dict[str, Any]:
    return {"resources": {"cpu": f"{use.cpu}m", "memory": str(use.memory)}}


LOG = logging.getLogger(__name__)
LEAST_SECONDS = 30.0
"""Least time between two reports; source: Koordinator `minReportIntervalSeconds`."""
_GONE = "Koordinator's manager makes this object; without it set publish.nodeMetric to create, or to off"
_NO_KIND = "install the CRD nodemetrics.slo.koordinator.sh (manifests/crds/koordinator), or set publish.nodeMetric: off"
_NO_NODE = "the Node that would own it is not known yet"


class _Held(msgspec.Struct):
    """The object as the server holds it after a write."""

    metadata: objects.ObjectMeta = objects.ObjectMeta()
    spec: dict[str, Any] = {}

    @property
    def ours(self) -> bool:
        """True if an agent made it: the one of Koordinator's manager has no owner."""
        return any(owner.kind == "Node" for owner in self.metadata.owner_references or ())


class NodeMetricReport(BackgroundWriter):
    """Sends a status every so often, in the background."""

    def __init__(self, api: Api, node_name: str, *, every_seconds: float = 0.0, create: bool = False) -> None:
        """`every_seconds` 0: as often as `colocation-config` says. `create`: a missing object is made."""
        super().__init__(api, node_name, thread="node-metric", named="the NodeMetric", no_kind=_NO_KIND)
        self._create = create
        self._every_seconds, self._last = every_seconds, float("-inf")

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Obstacles to writing the report, for `status`."""
        if not self.error:
            return ()
        do = "without it, schedulers and deschedulers do not know how full the node is; it is tried again"
        return (Problem(f"nodemetric/{self._name}", "status", "", self.error, do),)

    def observe(self, snapshot: Snapshot, *, monotonic: float, wall: float, node: objects.NodeObject | None) -> None:
        """Report this picture when it is time. `node` owns a new NodeMetric."""
        policy = settings.collect_policy(snapshot.slo.colocation)
        every = max(LEAST_SECONDS, self._every_seconds or policy.metric_report_interval_seconds)
        if self._last == float("-inf"):
            self._last = monotonic
        if monotonic - self._last < every:
            return
        self._last = monotonic
        status = metric_status(snapshot, wall=wall)
        if status is not None:
            self.send(status, snapshot.slo.colocation, node)

    def send(
        self,
        status: Mapping[str, Any],
        colocation: Colocation,
        node: objects.NodeObject | None,
        *,
        patience_seconds: float = 0.0,
    ) -> None:
        """Write the object where there is none and one may be made, its status, and its spec where an agent made it.
        What nobody waits for is answered in the background, in `error`."""
        self._send(lambda: self._write(status, colocation, node), patience_seconds)

    def _write(self, status: Mapping[str, Any], colocation: Colocation, node: objects.NodeObject | None) -> None:
        try:
            current = self._patch("/status", {"status": status})
        except ApiError as refused:
            if refused.status != HTTPStatus.NOT_FOUND or refused.unknown_resource:
                raise
            self._make(colocation, node, refused)
            current = self._patch("/status", {"status": status})
        spec = metric_spec(colocation)
        if self._create and current.ours and current.spec != spec:
            self._patch("", {"spec": spec})

    def _make(self, colocation: Colocation, node: objects.NodeObject | None, missing: ApiError) -> None:
        if not self._create or node is None:
            why = _NO_NODE if self._create else _GONE
            raise ApiError(missing.status, missing.reason, f"{missing.message}; {why}", named=self._name)
        try:
            self._api.request("POST", metrics.NODE_METRICS, body=fresh(node, colocation))
        except ApiError as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise
            return  # Koordinator's manager made it at the same moment.
        LOG.info("made the NodeMetric %s", self._name)

    def _patch(self, part: str, body: Mapping[str, Any]) -> _Held:
        """Write a part of the object."""
        return self._api.request("PATCH", f"{metrics.NODE_METRICS}/{self._name}{part}", body=body).read(_Held)
