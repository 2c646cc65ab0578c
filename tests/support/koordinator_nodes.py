"""Nodes and pods for the tests of Koordinator's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlite.model.cpuset import CPUSet
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.topology import CPU
from koordlite.numa.koordinator import ask
from koordlite.numa.koordinator.node_report import KoordinatorNode, NodeTopology
from koordlite.numa.koordinator.values import Allocation, NodeAllocation
from koordlite.numa.machine import Machine


def machine(sockets: int = 2, nodes_per_socket: int = 1, cores_per_node: int = 4, threads: int = 2) -> Machine:
    """Threads of a core are `i` and `i + cores`; core numbers begin again on each socket."""
    per_socket = nodes_per_socket * cores_per_node
    cores = sockets * per_socket
    return Machine.of(
        CPU(thread * cores + core, core % per_socket, core // per_socket, core // cores_per_node)
        for thread in range(threads)
        for core in range(cores)
    )


def quantities(**amounts: str) -> dict[str, Quantity]:
    """Amounts by resource."""
    return {name: Quantity.parse(text) for name, text in amounts.items()}


def node(
    cpus: Machine,
    allocations: Iterable[Allocation] = (),
    *,
    labels: Mapping[str, str] | None = None,
    reserved: str = "",
    memory: str = "32Gi",
    distances: Mapping[int, Mapping[int, int]] | None = None,
) -> KoordinatorNode:
    """A node of that machine, `memory` on each NUMA node."""
    zones = {zone: quantities(cpu=str(len(cpus.by_node[zone])), memory=memory) for zone in sorted(cpus.by_node)}
    return KoordinatorNode(
        labels=labels or {},
        allocatable=quantities(cpu=str(len(cpus.cpus)), memory="64Gi"),
        topology=NodeTopology(machine=cpus, reserved=CPUSet.parse(reserved), zones=zones, distances=distances or {}),
        allocated=NodeAllocation.of(cpus, allocations),
    )


def wanted(cpu: str, memory: str = "1Gi", qos: str = "LSR", **notes: str) -> ask.PodRequest:
    """What a pod asks; `spec` and `numa` are its annotations resource-spec and numa-topology-spec."""
    keys = {"spec": "resource-spec", "numa": "numa-topology-spec"}
    found = ask.of(
        Pod(
            namespace="ns",
            name="p",
            uid="p",
            raw_qos=QoSClass(qos),
            kube_qos=KubeQoS.GUARANTEED,
            priority=9500,
            requests=quantities(cpu=cpu, memory=memory),
            annotations={f"scheduling.koordinator.sh/{keys[name]}": text for name, text in notes.items()},
        )
    )
    assert isinstance(found, ask.PodRequest)
    return found
