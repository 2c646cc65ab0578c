"""A node as kubelet's managers see it: how they are configured, the machine, and what has been given to whom."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import Topology
from koordlite.numa.kubelet import memory_manager, merge
from koordlite.numa.kubelet.cpu_manager import DEFAULT, NO_CPUS, CPUOptions, CPUState, StaticPolicy
from koordlite.numa.kubelet.device_manager import NO_DEVICES, DeviceState
from koordlite.numa.kubelet.memory_manager import MemoryPolicy, MemoryState
from koordlite.numa.machine import Machine
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


class NodeState(msgspec.Struct, frozen=True):
    """One node: its managers and their books."""

    managers: Managers
    cpus: CPUState = NO_CPUS
    memory: MemoryState = memory_manager.NO_NODES
    devices: DeviceState = NO_DEVICES

    def without(self, uid: str) -> NodeState:
        """The node after a pod has gone; the same when it had nothing here."""
        if uid not in self.cpus.assigned and uid not in self.memory.assigned and uid not in self.devices.assigned:
            return self
        cpus, memory, devices = self.cpus.without(uid), self.memory.without(uid), self.devices.without(uid)
        return NodeState(self.managers, cpus, memory, devices)


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
) -> NodeState:
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
    return NodeState(managers, cpu.first_state(), memory, devices)
