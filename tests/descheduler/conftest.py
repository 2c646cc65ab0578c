"""A small cluster to judge, built as Kubernetes writes it, so that every test goes through the real reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest

from descheduler.cycle import planner
from descheduler.framework import View
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.snapshot import assemble, files
from koordlite.model import keys, nrt
from koordlite.model.cpuset import CPUSet

NOW = "2026-01-01T12:00:00Z"
Object = dict[str, Any]

RESTARTS = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: p
    pluginConfig:
      - {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 5}}
    plugins: {deschedule: {enabled: [RemovePodsHavingTooManyRestarts]}}
"""
"""A policy that evicts pods which restart more than five times."""


class Cluster:
    """Objects of a cluster; each method returns the object, so that a test may change it further."""

    def __init__(self) -> None:
        self.objects: list[Object] = []

    def add(self, obj: Object) -> Object:
        self.objects.append(obj)
        return obj

    def node(
        self,
        name: str,
        *,
        cpu: str = "16",
        memory: str = "64Gi",
        labels: Mapping[str, str] | None = None,
        reservation: object = None,
    ) -> Object:
        notes = {keys.RESERVATION: _text(reservation)} if reservation is not None else {}
        amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}, "annotations": notes}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": dict(amounts), "conditions": ready}
        return self.add({"kind": "Node", "metadata": meta, "spec": {}, "status": status})

    def report(
        self,
        name: str,
        *,
        reservation: object = None,
        containers: Iterable[nrt.ContainerPlacement] | None = None,
        observed_at: str = NOW,
        policy: str = "None",
        memory: str = "32Gi",
    ) -> Object:
        """A two-socket machine: CPUs 0-7 on NUMA node 0, 8-15 on node 1."""
        rows = [{"id": i, "core": i, "socket": i // 8, "node": i // 8} for i in range(16)]
        notes = {keys.CPU_TOPOLOGY: _text({"detail": rows})}
        if reservation is not None:
            notes[keys.RESERVATION] = _text(reservation)
        if containers is not None:
            placement = nrt.Placement(observed_at=observed_at, generation=1, containers=tuple(containers))
            notes[keys.PLACEMENT] = nrt.encode(placement)
        zones = [{"name": f"node-{i}", "type": "Node", "resources": _zone("8", memory)} for i in range(2)]
        meta = {"name": name, "annotations": notes}
        return self.add(
            {"kind": "NodeResourceTopology", "metadata": meta, "topologyPolicies": [policy], "zones": zones}
        )

    def pod(
        self,
        name: str,
        node: str,
        *,
        cpu: str = "2",
        memory: str = "1Gi",
        owner: str = "app",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        started: str = "2026-01-01T08:00:00Z",
        restarts: int | None = None,
    ) -> Object:
        """A running pod; `restarts` of its container, where its state is to be there."""
        kind, _, owner_name = owner.rpartition("/")
        owners = [{"kind": kind or "ReplicaSet", "name": owner_name, "uid": f"uid-{owner_name}", "controller": True}]
        meta = {
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "creationTimestamp": started,
            "ownerReferences": owners if owner else [],
        }
        amounts = {"cpu": cpu, "memory": memory}
        main = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
        spec = {"nodeName": node, "containers": [main]}
        status: Object = {"phase": "Running", "startTime": started}
        if restarts is not None:
            status["containerStatuses"] = [{"name": "main", "restartCount": restarts, "state": {"running": {}}}]
        return self.add({"kind": "Pod", "metadata": meta, "spec": spec, "status": status})

    def pinned(self, name: str, node: str, cpus: str, *, single: bool = False, **more: Any) -> Object:
        """An LSR pod that Koordinator's scheduler gave these CPUs."""
        nodes = sorted({cpu // 8 for cpu in CPUSet.parse(cpus)})
        status = {"cpuset": cpus, "numaNodeResources": [{"node": n} for n in nodes]}
        notes = {keys.RESOURCE_STATUS: _text(status)}
        if single:
            notes[keys.NUMA_TOPOLOGY_SPEC] = _text({"numaTopologyPolicy": "SingleNUMANode"})
        more.setdefault("cpu", str(len(CPUSet.parse(cpus))))
        return self.pod(name, node, annotations=notes, labels={keys.QOS_CLASS: "LSR"}, **more)

    def budget(self, name: str, allowed: int, labels: Mapping[str, str]) -> Object:
        meta = {"namespace": "default", "name": name}
        spec = {"selector": {"matchLabels": dict(labels)}}
        return self.add(
            {"kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": {"disruptionsAllowed": allowed}}
        )

    @property
    def json(self) -> str:
        return json.dumps({"kind": "List", "apiVersion": "v1", "items": self.objects})

    def view(self, now: str = NOW) -> View:
        objects = files.Objects()
        for obj in self.objects:
            files.take(objects, msgspec.json.encode(obj), "test")
        return assemble.view(objects, now)

    def plan(self, policy: str = "") -> EvictionPlan:
        chosen = reader.parse(policy, "policy.yaml") if policy else reader.default()
        return planner.plan(self.view(), reader.setup(chosen))


@pytest.fixture
def cluster() -> Cluster:
    """An empty cluster to fill."""
    return Cluster()


@pytest.fixture
def placed() -> Callable[..., nrt.ContainerPlacement]:
    """A container as the agent reports it: `placed("db-0", cpuset="2-5", single_numa=True)`."""

    def make(pod: str, **fields: Any) -> nrt.ContainerPlacement:
        sets = {key: CPUSet.parse(fields.pop(key)) for key in ("cpuset", "mems", "promised_cpus") if key in fields}
        fields.setdefault("source", "kubelet")
        return nrt.ContainerPlacement(
            namespace="default", pod=pod, uid=f"uid-{pod}", container="main", **sets, **fields
        )

    return make


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _zone(cpu: str, memory: str) -> list[Object]:
    amounts = {"cpu": cpu, "memory": memory}
    return [{"name": k, "capacity": v, "allocatable": v, "available": v} for k, v in amounts.items()]
