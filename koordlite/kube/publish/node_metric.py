"""NodeMetric (slo.koordinator.sh/v1alpha1): the node's use as Koordinator's controller and scheduler expect it.

Shape: Koordinator's `NodeMetricStatus`. Use is the mean over `metricAggregateDurationSeconds` of `colocation-config`.
Percentiles of the node are over the same time. Those of the system, use by NUMA node and what prod pods could give back
are left out: their readers then take the mean, or nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from koordlite.kube.client import micro_time
from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.client.background import BackgroundRequests
from koordlite.model import duration
from koordlite.model.picture.usage import Use
from koordlite.model.slo import settings
from koordlite.model.snapshot import Snapshot

LOG = logging.getLogger(__name__)
PATH = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
_NOT_OURS = ("aggregatedSystemUsages", "numaUsages")
"""Fields of the node's part that an earlier agent may have left; null takes them away."""


def status(seen: Snapshot, *, wall: float) -> dict[str, Any] | None:
    """The status that the means of use give; None while there are none."""
    usage = seen.average
    if usage.node is None:
        return None
    return {
        "updateTime": micro_time.seconds(wall),
        "nodeMetric": {
            "nodeUsage": _resources(usage.node),
            "systemUsage": _resources(_rest(usage.node, [*usage.pods.values(), *usage.host_apps.values()])),
            "aggregatedNodeUsages": [_aggregated(seen, usage.node)],
            **dict.fromkeys(_NOT_OURS),
        },
        "podsMetric": list(_pods(seen)),
        "hostApplicationMetric": list(_hosts(seen)),
        "prodReclaimableMetric": None,
    }


class NodeMetricReport:
    """Sends a status every so often, in the background."""

    def __init__(self, api: Api, node_name: str, *, every_seconds: float) -> None:
        self._api, self._path = api, f"{PATH}/{node_name}/status"
        self._every_seconds, self._due = every_seconds, float("-inf")
        self._requests = BackgroundRequests("node-metric")
        self._count = 0
        self.error = ""
        """Why the last report was not taken; empty when it was."""

    def observe(self, seen: Snapshot, *, monotonic: float, wall: float) -> None:
        """Report this picture when it is time."""
        if self._due == float("-inf"):
            self._due = monotonic + self._every_seconds
        if monotonic < self._due:
            return
        self._due = monotonic + self._every_seconds
        report = status(seen, wall=wall)
        if report is not None:
            self.send({"status": report})

    def send(self, body: Mapping[str, Any], *, patience_seconds: float = 0.0) -> None:
        """Send one status; what nobody waits for is answered in the background, in `error`."""
        self._count += 1
        try:
            self._requests.send(self._count, self._count, lambda: self._patch(body), patience_seconds=patience_seconds)
        except ApiUnreachable:
            return  # Under way; `_patch` keeps what comes of it.

    def stop(self) -> None:
        """Send nothing more."""
        self._requests.stop()

    def _patch(self, body: Mapping[str, Any]) -> None:
        error = ""
        try:
            self._api.request("PATCH", self._path, body=body, content_type="application/merge-patch+json")
        except ApiError as refused:
            missing = refused.status == HTTPStatus.NOT_FOUND
            error = f"{refused}; {_MISSING}" if missing else str(refused)
        except ApiUnreachable as unreachable:
            error = str(unreachable)
        if error and error != self.error:
            LOG.warning("the NodeMetric was not written: %s", error)
        self.error = error


_MISSING = "Koordinator's controller makes this object; without it set publish.nodeMetric to off"


def _aggregated(seen: Snapshot, mean: Use) -> dict[str, Any]:
    """Mean and percentiles with the time they are over; without numbers until half of that time has been seen."""
    policy = settings.metric_policy(seen.slo.colocation) or settings.DEFAULT_METRIC_POLICY
    seconds = policy.aggregate_seconds
    known = seen.average.samples * seen.interval_seconds * 2 >= seconds
    uses = {"avg": mean, **{f"p{percent}": use for percent, use in seen.node_percentiles.items()}}
    usage = {name: _resources(use) for name, use in uses.items()} if known else {}
    return {"usage": usage, "duration": duration.show(seconds * duration.SECOND)}


def _pods(seen: Snapshot) -> Iterator[dict[str, Any]]:
    for pod in sorted(seen.pods, key=lambda pod: (pod.namespace, pod.name)):
        use = seen.average.pods.get(pod.uid)
        if use is not None:
            classes = {"priority": str(pod.priority_class), "qos": str(pod.qos_class)}
            yield {"name": pod.name, "namespace": pod.namespace, "podUsage": _resources(use), **classes}


def _hosts(seen: Snapshot) -> Iterator[dict[str, Any]]:
    for app in sorted(seen.slo.host_applications, key=lambda app: app.name):
        use = seen.average.host_apps.get(app.name)
        if use is not None:
            yield {
                "name": app.name,
                "usage": _resources(use),
                "priority": str(app.priority),
                "qos": str(app.qos),
            }


def _rest(whole: Use, parts: Sequence[Use]) -> Use:
    """What is left to the system; samples of different moments may not add up."""
    cpu, memory = sum(use.cpu for use in parts), sum(use.memory for use in parts)
    return Use(max(0, whole.cpu - cpu), max(0, whole.memory - memory))


def _resources(use: Use) -> dict[str, Any]:
    return {"resources": {"cpu": f"{use.cpu}m", "memory": str(use.memory)}}
