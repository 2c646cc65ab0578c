"""Pictures of an invented node, one line a case: eight CPUs, hyperthreads i and i+4, NUMA node 0 has 0,1,4,5."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from koordlite import changes
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.node import Node, ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Cgroup, Layout, PodGroups
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.place import Place
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, Colocation, Threshold
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.resctrl.values import Resctrl

BE = "kubepods/besteffort"
GIB = 2**30
TOPOLOGY = Topology(
    tuple(CPU(cpu, cpu % 4, cpu % 4 // 2, cpu % 4 // 2, cpu % 4 // 2) for cpu in range(8)),
    (NUMANode(0, CPUSet.parse("0-1,4-5"), 16 * GIB), NUMANode(1, CPUSet.parse("2-3,6-7"), 16 * GIB)),
)


def layout(version: int = 1) -> Layout:
    return Layout(version, "cgroupfs", "kubepods", "kubepods/burstable", BE)


def cgroup(cpus: str = "0-7", quota: int | None = -1, *, effective: str | None = None) -> Cgroup:
    return Cgroup(CPUSet.parse(cpus), CPUSet.parse(cpus if effective is None else effective), quota)


def best_effort(cpus: str = "0-7", quota: int | None = -1) -> dict[str, Cgroup]:
    """The besteffort group with one pod of one container, all of them holding `cpus`."""
    return {BE: cgroup(cpus, quota), f"{BE}/podb": cgroup(cpus), f"{BE}/podb/main": cgroup(cpus)}


def pod(uid: str, qos: str = "", kube: str = "Burstable", cpus: str = "", **more: Any) -> Pod:
    status = ResourceStatus(CPUSet.parse(cpus)) if cpus else more.pop("status", ResourceStatus())
    raw, kube_qos = QoSClass(qos), KubeQoS(kube)
    return Pod(namespace="ns", name=uid, uid=uid, raw_qos=raw, kube_qos=kube_qos, resource_status=status, **more)


def place(group: str) -> PodGroups:
    return PodGroups(group, {"main": f"{group}/main"}, (f"{group}/pause",))


def used(node: int | None, **pods: int) -> Usage:
    """CPU of the node and of pods, in millicores; 1 GiB of memory each."""
    by_pod = {uid: Use(milli, GIB) for uid, milli in pods.items()}
    return Usage(None if node is None else Use(node, 4 * GIB), by_pod, {})


def suppression(enable: bool = True, **threshold: Any) -> SLO:
    return SLO(threshold=Threshold(enable=enable, **threshold), colocation=Colocation(enable=True))


def snapshot(**given: Any) -> Snapshot:
    """A quiet node: 8 CPUs, nothing reserved, no pods, best-effort on every CPU, 65 % suppression."""
    amounts = {"cpu": Quantity.of(8), "memory": Quantity.of(32 * GIB)}
    usage = given.get("usage", used(0))
    quiet: dict[str, Any] = {
        "time": 1000.0,
        "taken_at": "2026-01-01T00:00:00Z",
        "node": Node(name="node-a", capacity=amounts, allocatable=amounts),
        "slo": suppression(),
        "topology": TOPOLOGY,
        "reserved": ResolvedReservation(),
        "system_qos": SystemQoS(),
        "kubelet": Kubelet(cpu_manager_policy="none"),
        "layout": layout(),
        "pods": (),
        "places": {},
        "cgroups": best_effort(),
        "usage": usage,
        "average": usage,
        "resctrl": Resctrl(absent="no resctrl here"),
        "published": Published({}, {}),
        "ages": {"usage": 0.0},
    }
    for part in ("found", "refused_writes"):
        given[part] = {_place(place): value for place, value in given.get(part, {}).items()}
    given["ours"] = frozenset(map(_place, given.get("ours", ())))
    return Snapshot(**{**quiet, **given})


def _place(text: str | Place) -> Place:
    return changes.parse(text) if isinstance(text, str) else text


def changes_of(decisions: list[Decision]) -> Mapping[str, str]:
    """Place → value, of every change."""
    found = [change for decision in decisions for change in decision.changes]
    return {str(change.place): str(getattr(change, "value", getattr(change, "values", ""))) for change in found}


@dataclasses.dataclass(frozen=True)
class Build:
    """The builders, for tests: pytest gives fixtures, not imports."""

    snapshot = staticmethod(snapshot)
    pod = staticmethod(pod)
    place = staticmethod(place)
    cgroup = staticmethod(cgroup)
    best_effort = staticmethod(best_effort)
    used = staticmethod(used)
    suppression = staticmethod(suppression)
    layout = staticmethod(layout)
    changes = staticmethod(changes_of)
    topology = TOPOLOGY


@pytest.fixture(scope="session")
def build() -> Build:
    """Builders of pictures and their parts."""
    return Build()
