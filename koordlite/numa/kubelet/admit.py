"""Admission of a pod by kubelet, with CPUs, memory and devices: the one answer of the whole product. A node is how its
managers are configured, the machine, and what has been given to whom.

Source: kubelet 1.36, `cm/topologymanager/scope*.go`: hints are merged for each container or for the pod as a whole,
then devices, CPUs and memory are given, container by container.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import Topology
from koordlite.numa.kubelet import device_manager, memory_manager, merge
from koordlite.numa.kubelet import memory_manager as memory
from koordlite.numa.kubelet.cpu_manager import DEFAULT, NO_CPUS, CPUOptions, CPUState, StaticPolicy
from koordlite.numa.kubelet.device_manager import NO_DEVICES, DeviceState, HeldDevices
from koordlite.numa.kubelet.memory_manager import Blocks, MemoryPolicy, MemoryState
from koordlite.numa.kubelet.merge import AFFINITY, Hint, Refused, no_affinity
from koordlite.numa.kubelet.requests import ContainerAsk, PodAsk
from koordlite.numa.machine import Machine, nodes_of
from koordlite.numa.nrt.score import Costs

Release = Literal["today", "1.23"]
"""Which kubelet's rules: those of 1.36, or those of 1.23 where they differ."""


class Managers(msgspec.Struct, frozen=True, dict=True):
    """The configuration of one node's managers; `cpu` and `memory` are None where their policy is `none`.

    Equal nodes should share one object: what follows from it is computed once.
    """

    nodes: tuple[int, ...]
    """All NUMA nodes, also those without CPUs."""
    cpu: StaticPolicy | None = None
    memory: MemoryPolicy | None = None
    policy: merge.Policy = "none"
    scope: merge.Scope = "container"
    options: merge.Options = merge.NO_OPTIONS
    distances: Costs = msgspec.field(default_factory=dict)
    release: Release = "today"

    @functools.cached_property
    def rules(self) -> merge.Rules:
        """Settings by which hints are merged here. ValueError where kubelet does not start."""
        if len(self.nodes) > self.options.max_nodes:
            raise ValueError(f"unsupported on machines with more than {self.options.max_nodes} NUMA Nodes")
        closest = self.options.prefer_closest
        return merge.Rules(self.nodes, self.distances, closest, equal_masks=self.release == "today")


class KubeletNode(msgspec.Struct, frozen=True):
    """One node: its managers and their books."""

    managers: Managers
    cpus: CPUState = NO_CPUS
    memory: MemoryState = memory_manager.NO_NODES
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
    reserved_memory: Mapping[int, Mapping[str, int]] | None = None,
    devices: DeviceState = NO_DEVICES,
    release: Release = "today",
) -> KubeletNode:
    """A node on which nothing runs, with the static CPU manager; with the Static memory manager where
    `reserved_memory` (kubelet's `reservedMemory`, bytes by NUMA node and kind) is given.

    ValueError for options that kubelet does not start with on this machine.
    """
    machine = Machine(topology.cpus)
    cpu_options.check(machine, policy)
    cpu = StaticPolicy(machine, reserved, cpu_options, counts_free_cores=release == "today")
    ids = tuple(node.id for node in topology.nodes)
    managers = Managers(
        ids,
        cpu,
        None if reserved_memory is None else MemoryPolicy(keeps_groups=release == "today"),
        policy,
        scope,
        options,
        {node.id: dict(node.distances) for node in topology.nodes if node.distances},
        release,
    )
    memory = memory_manager.NO_NODES
    if reserved_memory is not None:
        memory = memory_manager.first_state(topology.nodes, reserved_memory)
    return KubeletNode(managers, cpu.first_state(), memory, devices)


Evidence = Mapping[str, int | str]


class Given(msgspec.Struct, frozen=True):
    """Allocation of one container. `cpus` empty: it runs in the shared pool; `nodes`: the affinity, empty for none."""

    container: str
    cpus: CPUSet = EMPTY
    memory: Blocks = ()
    devices: HeldDevices = msgspec.field(default_factory=dict)
    nodes: tuple[int, ...] = ()


class Admission(msgspec.Struct, frozen=True):
    """Kubelet's answer. Refused: `reason` and `message` are those of the pod's status, `evidence` has the numbers."""

    node: KubeletNode
    """The node afterwards; as it was where the pod is refused."""
    given: tuple[Given, ...] = ()
    reason: str = ""
    message: str = ""
    evidence: Evidence = msgspec.field(default_factory=dict)

    @property
    def admitted(self) -> bool:
        """The pod may start."""
        return not self.reason


def admit(node: KubeletNode, pod: PodAsk) -> Admission:
    """Admit the pod or say why not; nothing is changed, the node afterwards is in the answer.

    A pod that was admitted before gets what it has. ValueError where kubelet would not have started on the machine.
    """
    work = _Work(node, pod)
    try:
        given = work.by_container() if node.managers.scope == "container" else work.by_pod()
    except Refused as refused:
        return Admission(node, (), refused.reason, refused.message, work.evidence(refused))
    return Admission(work.node, given)


class _Work:
    """One admission on its way: the books so far, and what later containers can use again."""

    def __init__(self, node: KubeletNode, pod: PodAsk) -> None:
        self.node, self.pod, self._at = node, pod, ""
        self._cpus, self._memory, self._devices = EMPTY, dict[tuple[int, str], int](), device_manager.NONE

    def by_container(self) -> tuple[Given, ...]:
        """Each container aligned by itself, and given its part before the next one is looked at."""
        given = []
        for container in self.pod.containers:
            self._at = container.name
            given.append(self._give(container, self._affinity(self.pod.only(container))))
        return tuple(given)

    def by_pod(self) -> tuple[Given, ...]:
        """One affinity for the whole pod."""
        affinity = self._affinity(self.pod)
        return tuple(self._give(container, affinity) for container in self.pod.containers)

    def evidence(self, refused: Refused) -> Evidence:
        """Request and free amounts by NUMA node, at the container where it failed."""
        wanted = next((c for c in self.pod.containers if c.name == self._at), None)
        cpus = wanted.cpus if wanted else self.pod.cpus
        amounts = {**(wanted.memory if wanted else self.pod.memory), **(wanted.devices if wanted else self.pod.devices)}
        found: dict[str, int | str] = {"container": self._at} if self._at else {}
        if refused.reason == AFFINITY:
            found["policy"] = self.node.managers.policy
        if cpus:
            found |= {"cpus": cpus, "freeCPUs": _by_node(free_cpus(self.node))}
        for name, size in amounts.items():
            found |= {name: size, f"free {name}": _by_node(free_amounts(self.node, name))}
        return found

    def _affinity(self, pod: PodAsk) -> Hint:
        """The hints of all managers for the pod, or for one container of it, merged to one."""
        node, managers = self.node, self.node.managers
        if managers.policy == "none":
            return Hint(None, False)
        hints = [
            device_manager.hints(node.devices, managers.nodes, pod, self._devices),
            managers.cpu.hints(node.cpus, pod, self._cpus) if managers.cpu else None,
            managers.memory.hints(node.memory, pod, self._memory) if managers.memory else None,
        ]
        affinity, admitted = merge.merge(managers.policy, hints, managers.rules)
        if not admitted:
            raise no_affinity()
        return affinity

    def _give(self, container: ContainerAsk, affinity: Hint) -> Given:
        """Devices, then CPUs, then memory; the books and what can be used again follow."""
        self._at = container.name
        uid, name, managers = self.pod.uid, container.name, self.node.managers
        devices = device_manager.allocate(
            self.node.devices, uid, container, affinity=affinity.mask, reusable=self._devices
        )
        cpus, blocks = self.node.cpus, self.node.memory
        if managers.cpu:
            cpus = managers.cpu.allocate(cpus, uid, container, affinity=affinity.mask, reusable=self._cpus)
        if managers.memory:
            blocks = managers.memory.allocate(blocks, uid, container, affinity=affinity, reusable=self._memory)
        given = Given(
            name,
            cpus.of(uid, name) or EMPTY,
            blocks.of(uid, name) or (),
            devices.assigned.get(uid, {}).get(name, device_manager.NONE),
            nodes_of(affinity.mask) if affinity.mask is not None else (),
        )
        self._cpus = self._cpus | given.cpus if container.kind == "init" else self._cpus - given.cpus
        self._devices = device_manager.reusable_after(self._devices, devices, uid, container)
        self._memory = dict(memory.reusable_after(self._memory, container, given.memory))
        shared = memory.share_with_init(blocks, self.pod, container) if blocks is not self.node.memory else blocks
        self.node = KubeletNode(managers, cpus, shared, devices)
        return given


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
