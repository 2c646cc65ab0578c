"""Nodes, reports and pods for the extender's tests, and a clock that a test moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koordlite.model.wire import objects
from koordlite.numa.nrt import fingerprint
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import BindError, Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings

OURS = "koordlite-scheduler"


@dataclasses.dataclass
class Clock:
    """Monotonic and wall clock, moved by hand and apart from each other."""

    now: float = 1000.0
    wall: float = 1.8e9

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.wall += seconds


class Api:
    """Takes bindings; `fail` is raised by the next one."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, str, dict[str, str]]] = []
        self.pods: dict[str, objects.PodObject] = {}
        self.fail: BindError | None = None

    def bind(self, pod: ClusterPod, node: str, annotations: Mapping[str, str]) -> None:
        """Take it, or refuse it."""
        if self.fail is not None:
            raise self.fail
        self.bound.append((pod.key, node, dict(annotations)))

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        """The pod, if there is one."""
        try:
            return self.pods[f"{namespace}/{name}"]
        except KeyError:
            raise BindError(f'pods "{name}" not found', is_certain=True) from None


@dataclasses.dataclass
class Scene:
    """An extender over a cluster that a test builds."""

    settings: JudgeSettings = dataclasses.field(default_factory=JudgeSettings)

    def __post_init__(self) -> None:
        self.clock, self.api = Clock(), Api()
        self.cluster = Cluster(self.settings, monotonic=lambda: self.clock.now)
        self.age: float | None = 0.0
        self.extender = Extender(self.cluster, wall=lambda: self.clock.wall, binder=self.api, age=lambda: self.age)
        self.cluster.synced()
        self._versions = 0

    def node(self, name: str, *zones: Mapping[str, str], **report: Any) -> None:
        """A Node, and a report that gives each NUMA node what `zones` say is available."""
        node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}}
        self.cluster.put_node(msgspec.convert(node, objects.NodeObject))
        if zones:
            self.report(name, *zones, **report)

    def report(self, name: str, *zones: Mapping[str, str], **fields: Any) -> None:
        """A new version of a node's report."""
        self._versions += 1
        obj = report(name, *zones, version=str(self._versions), **fields)
        self.cluster.put_report(msgspec.convert(obj, objects.NRTObject))

    def put(self, pod: Any) -> None:
        """A pod as the watch brings it."""
        self.cluster.put_pod(as_object(pod))

    def filter(self, pod: Any, *names: str) -> tuple[list[str], dict[str, str]]:
        """The verb."""
        return self.extender.filter(as_object(pod), list(names))

    def bind(self, pod: Any, node: str) -> str:
        """The verb."""
        meta = pod["metadata"]
        return self.extender.bind(meta["namespace"], meta["name"], meta["uid"], node)

    def schedule(self, pod: Any, *names: str) -> str:
        """Filter, prioritize where more than one is left, bind to the best. The node, or nothing."""
        passed, _ = self.filter(pod, *names)
        if not passed:
            return ""
        scores = self.extender.prioritize(as_object(pod), passed) if len(passed) > 1 else [(passed[0], 0)]
        node = max(scores, key=lambda pair: (pair[1], pair[0]))[0]
        return "" if self.bind(pod, node) else node

    def zones(self, name: str, resource: str = "cpu") -> list[float]:
        """What is judged to be available by NUMA node, in whole units."""
        row = self.cluster.row(name)
        assert row is not None
        return [zone[resource] / 10**9 for _, zone in sorted(row.zones.items())]


def as_object(pod: Any) -> objects.PodObject:
    """A pod as it comes off the wire."""
    return msgspec.convert(pod, objects.PodObject, strict=False)


def report(
    name: str,
    *zones: Mapping[str, str],
    policy: str = "single-numa-node",
    scope: str = "container",
    signed: list[Any] | None = None,
    totals: Mapping[str, str] | None = None,
    ids: tuple[int, ...] | None = None,
    annotations: Mapping[str, str] | None = None,
    version: str = "1",
    distances: Sequence[Sequence[int]] = (),
) -> Any:
    """A NodeResourceTopology. `signed`: the pods of its fingerprint; None: it carries none. `distances`: a row for each
    NUMA node."""
    attributes = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    if signed is not None:
        pods = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in signed]
        attributes[fingerprint.ATTRIBUTE] = fingerprint.sign(pods)
    most = dict(totals or {})
    numbered = zip(ids or range(len(zones)), zones, strict=True)
    return {
        "metadata": {"name": name, "resourceVersion": version, "annotations": dict(annotations or {})},
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                **({"costs": _costs(distances[number])} if distances else {}),
                "resources": [
                    {
                        "name": key,
                        "capacity": most.get(key, "64Gi"),
                        "allocatable": most.get(key, "64Gi"),
                        "available": free,
                    }
                    for key, free in zone.items()
                ],
            }
            for number, zone in numbered
        ],
    }


def _costs(row: Sequence[int]) -> list[dict[str, Any]]:
    return [{"name": f"node-{number}", "value": far} for number, far in enumerate(row)]


def pod(name: str, cpu: str = "2", memory: str = "1Gi", **fields: Any) -> Any:
    """A Guaranteed pod with one container. `node`, `phase`, `scheduler`, `priority`, `requests`, `annotations`."""
    amounts = {"cpu": cpu, "memory": memory, **fields.get("requests", {})}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}
    spec["schedulerName"], spec["priority"] = fields.get("scheduler", OURS), fields.get("priority", 0)
    phase = fields.get("phase", "Pending")
    status = {"phase": phase, "qosClass": fields.get("qos", "Guaranteed"), "reason": fields.get("reason", "")}
    if phase != "Pending":
        status["startTime"] = "2026-01-01T00:00:00Z"
    if fields.get("node"):
        spec["nodeName"] = fields["node"]
    meta = {"name": name, "namespace": "ns", "uid": fields.get("uid", f"uid-{name}")}
    meta["annotations"] = fields.get("annotations") or {}
    return {"metadata": meta, "spec": spec, "status": status}


def bound(obj: Any, node: str, phase: str = "Running") -> Any:
    """The same pod on a node."""
    status = {**obj["status"], "phase": phase}
    if phase != "Pending":
        status["startTime"] = "2026-01-01T00:00:00Z"
    return {**obj, "spec": {**obj["spec"], "nodeName": node}, "status": status}
