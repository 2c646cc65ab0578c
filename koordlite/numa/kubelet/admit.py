"""Admission of a pod by kubelet, with CPUs, memory and devices: the one answer of the whole product. A node is how its
managers are configured, the machine, and what has been given to whom.

Source: kubelet 1.36, `cm/topologymanager/scope*.go`: hints are merged for each container or for the pod as a whole,
then devices, CPUs and memory are given, container by container.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import Topology
from koordlite.numa.kubelet import device_manager, memory_manager, merge
from koordlite.numa.kubelet.cpu_manager import DEFAULT, NO_CPUS, CPUOptions, CPUState, StaticPolicy
from koordlite.numa.kubelet.device_manager import NO_DEVICES, DeviceIds, DeviceState
from koordlite.numa.kubelet.memory_manager import NO_NODES, Blocks, MemoryState
from koordlite.numa.kubelet.merge import AFFINITY, Hint, Refused
from koordlite.numa.kubelet.requests import ContainerRequest, PodRequest
from koordlite.numa.machine import Machine, nodes_of
from koordlite.numa.nrt.score import Costs


class Managers(msgspec.Struct, frozen=True, dict=True):
    """The configuration of one node's managers; `cpu` is None where its policy is `none`. Equal nodes should share one
    object: what follows from it is computed once."""

    nodes: tuple[int, ...]
    """All NUMA nodes, also those without CPUs."""
    cpu: StaticPolicy | None = None
    policy: merge.Policy = "none"
    scope: merge.Scope = "container"
    options: merge.Options = merge.NO_OPTIONS
    distances: Costs = msgspec.field(default_factory=dict)

    @functools.cached_property
    def rules(self) -> merge.Rules:
        """Settings by which hints are merged here. ValueError where kubelet does not start."""
        if len(self.nodes) > self.options.max_nodes:
            raise ValueError(f"unsupported on machines with more than {self.options.max_nodes} NUMA Nodes")
        return merge.Rules(self.nodes, self.distances, self.options.prefer_closest)


class KubeletNode(msgspec.Struct, frozen=True):
    """A node: its managers and their books."""

    managers: Managers
    cpus: CPUState = NO_CPUS
    memory: MemoryState = NO_NODES
    devices: DeviceState = NO_DEVICES

    def without(self, uid: str) -> KubeletNode:
        """The node after a pod has gone; the same when it had nothing here."""
        if uid not in self.cpus.assigned and uid not in self.memory.assigned and uid not in self.devices.assigned:
            return self
        cpus, memory, devices = self.cpus.without(uid), self.memory.without(uid), self.devices.without(uid)
        return KubeletNode(self.managers, cpus, memory, devices)


def empty_node(
    topology: Topology,
    *,
    policy: merge.Policy,
    scope: merge.Scope = "container",
    reserved: CPUSet = EMPTY,
    cpu_options: CPUOptions = DEFAULT,
    options: merge.Options = merge.NO_OPTIONS,
    memory: MemoryState = NO_NODES,
    devices: DeviceState = NO_DEVICES,
) -> KubeletNode:
    """A node with the static CPU manager on which nothing runs; with the Static memory manager where `memory` has NUMA
    nodes. ValueError for options that kubelet does not start with on this machine."""
    machine = Machine(topology.cpus)
    cpu_options.check(machine, policy)
    cpu = StaticPolicy(machine, reserved, cpu_options)
    distances = {node.id: dict(node.distances) for node in topology.nodes if node.distances}
    managers = Managers(tuple(node.id for node in topology.nodes), cpu, policy, scope, options, distances)
    return KubeletNode(managers, cpu.first_state(), memory, devices)


Evidence = Mapping[str, int | str]


class ContainerAllocation(msgspec.Struct, frozen=True):
    """Allocation of one container. `cpus` empty: it runs in the shared pool; `nodes`: the affinity, empty for none."""

    container: str
    cpus: CPUSet = EMPTY
    memory: Blocks = ()
    devices: DeviceIds = msgspec.field(default_factory=dict)
    nodes: tuple[int, ...] = ()


class Admission(msgspec.Struct, frozen=True):
    """Kubelet's answer. Refused: `reason` and `message` are those of the pod's status, `evidence` has the numbers."""

    node: KubeletNode
    """The node afterwards; as it was where the pod is refused."""
    allocations: tuple[ContainerAllocation, ...] = ()
    reason: str = ""
    message: str = ""
    evidence: Evidence = msgspec.field(default_factory=dict)

    @property
    def admitted(self) -> bool:
        """The pod may start."""
        return not self.reason


def admit(node: KubeletNode, pod: PodRequest) -> Admission:
    """Admit the pod or say why not; nothing is changed, the node afterwards is in the answer.

    A pod that was admitted before gets what it has. ValueError where kubelet would not have started on the machine.
    """
    work = _Work(node, pod)
    try:
        allocations = work.allocations()
    except Refused as refused:
        return Admission(node, (), refused.reason, refused.message, work.evidence(refused))
    return Admission(work.node, allocations)


class _Work:
    """State of an admission: the books so far, and what later containers can use again."""

    def __init__(self, node: KubeletNode, pod: PodRequest) -> None:
        self.node, self.pod, self._at = node, pod, ""
        self._cpus, self._devices = EMPTY, device_manager.NONE
        self._memory: memory_manager.Reusable = {}

    def allocations(self) -> tuple[ContainerAllocation, ...]:
        """Align the pod as a whole, or each container by itself, and allocate its part before the next one is looked
        at."""
        whole = self._affinity(self.pod) if self.node.managers.scope == "pod" else None
        allocations = []
        for container in self.pod.containers:
            if whole is None:
                self._at = container.name
            allocations.append(self._allocate(container, whole or self._affinity(self.pod.only(container))))
        return tuple(allocations)

    def evidence(self, refused: Refused) -> Evidence:
        """Request and free amounts by NUMA node, at the container where it failed."""
        at = next((c for c in self.pod.containers if c.name == self._at), self.pod)
        numbers: dict[str, int | str] = {"container": self._at} if self._at else {}
        if refused.reason == AFFINITY:
            numbers["policy"] = self.node.managers.policy
        if at.cpus:
            numbers |= {"cpus": at.cpus, "freeCPUs": _by_node(free_cpus(self.node))}
        for name, size in {**at.memory, **at.devices}.items():
            numbers |= {name: size, f"free {name}": _by_node(free_amounts(self.node, name))}
        return numbers

    def _affinity(self, pod: PodRequest) -> Hint:
        """The hints of all managers for the pod, or for one container of it, merged to one."""
        node, managers = self.node, self.node.managers
        if managers.policy == "none":
            return Hint(None, False)
        hints = [
            device_manager.hints(node.devices, managers.nodes, pod, self._devices),
            managers.cpu.hints(node.cpus, pod, self._cpus) if managers.cpu else None,
            memory_manager.hints(node.memory, pod, self._memory) if node.memory.nodes else None,
        ]
        affinity, admitted = merge.merge(managers.policy, hints, managers.rules)
        if not admitted:
            raise Refused(AFFINITY, "Resources cannot be allocated with Topology locality")
        return affinity

    def _allocate(self, container: ContainerRequest, affinity: Hint) -> ContainerAllocation:
        """Devices, then CPUs, then memory; the books and what can be used again follow."""
        self._at = container.name
        uid, name, node, mask = self.pod.uid, container.name, self.node, affinity.mask
        devices = device_manager.allocate(node.devices, uid, container, affinity=mask, reusable=self._devices)
        cpus, memory = node.cpus, node.memory
        if node.managers.cpu:
            cpus = node.managers.cpu.allocate(cpus, uid, container, affinity=mask, reusable=self._cpus)
        if memory.nodes:
            memory = memory_manager.allocate(memory, uid, container, affinity=affinity, reusable=self._memory)
        nodes = () if mask is None else nodes_of(mask)
        allocation = ContainerAllocation(
            name, cpus.of(uid, name) or EMPTY, memory.of(uid, name) or (), devices.of(uid, name), nodes
        )
        self._cpus = self._cpus | allocation.cpus if container.kind == "init" else self._cpus - allocation.cpus
        self._devices = device_manager.reusable_after(self._devices, allocation.devices, container)
        self._memory = memory_manager.reusable_after(self._memory, container, allocation.memory)
        if memory is not node.memory:
            memory = memory_manager.share_with_init(memory, self.pod, container)
        self.node = KubeletNode(node.managers, cpus, memory, devices)
        return allocation


def free_cpus(node: KubeletNode) -> dict[int, int]:
    """CPUs that can be given to one container alone, by NUMA node."""
    cpu = node.managers.cpu
    if cpu is None:
        return {}
    free = cpu.available(node.cpus).ids
    return {id_: len(cpus & free) for id_, cpus in cpu.machine.nodes.items()}


def free_amounts(node: KubeletNode, resource: str) -> dict[int, int]:
    """Free amount of a kind of memory, in bytes, or of a device, by NUMA node."""
    if resource in node.devices.devices:
        devices, free = node.devices.devices[resource], node.devices.free(resource)
        return {id_: sum(id_ in devices[d] for d in free) for id_ in node.managers.nodes}
    return {id_: each.free(resource) for id_, each in node.memory.nodes.items()}


def _by_node(amounts: Mapping[int, int]) -> str:
    return ", ".join(f"{id_}: {amount}" for id_, amount in amounts.items())
