"""A node as Koordinator's scheduler reads it: its NodeResourceTopology, labels and amplification.

Source: Koordinator v1.9 `NewTopologyOptions` (topology_options.go), `amplifyNUMANodeResources` (util.go).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import msgspec

from koordlite.model import defaults, keys, nrt
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.errors import InputError, Problem
from koordlite.model.node import Node
from koordlite.model.nrt import CPUManagerPolicy
from koordlite.model.once import Once
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects
from koordlite.numa.koordinator.values import (
    BEST_EFFORT,
    FULL_PCPUS,
    NO_ALLOCATION,
    NO_RESERVATIONS,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    SPREAD_BY_PCPUS,
    Allocation,
    NodeAllocation,
    Ratios,
    Reservations,
    Zones,
    amplified,
)
from koordlite.numa.machine import NO_MACHINE, Machine
from koordlite.numa.nrt import reader
from koordlite.numa.nrt.reader import Reader
from koordlite.numa.nrt.score import Costs

_BIND_POLICIES = {"FullPCPUsOnly": FULL_PCPUS, "SpreadByPCPUs": SPREAD_BY_PCPUS}
"""Bind policies by the word of the node's label."""
_POLICIES = {"BestEffort": BEST_EFFORT, "Restricted": RESTRICTED, "SingleNUMANodePodLevel": SINGLE_NUMA_NODE}
_NO_CPU_MANAGER = CPUManagerPolicy()


class NodeTopology(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a node's NodeResourceTopology, ready for allocation."""

    machine: Machine = NO_MACHINE
    reserved: CPUSet = EMPTY
    """CPUs that no pod gets: kubelet's pods have them, or they are reserved."""
    most_holders: int = 1
    cpu_manager: CPUManagerPolicy = _NO_CPU_MANAGER
    numa_policy: str = ""
    zones: Zones = msgspec.field(default_factory=dict)
    """Amounts each NUMA node may hand out, without the reserved CPUs; by its id, ascending."""
    ratios: Ratios | None = None
    """Amplification that is in `zones` already; None where it is not."""
    distances: Costs = msgspec.field(default_factory=dict)
    """Distances from one NUMA node to another; empty where the report has none."""


NO_REPORT = NodeTopology()


class KoordinatorNode(Once, msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A node with what its pods hold."""

    name: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    requested: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """Requests of all pods on the node."""
    topology: NodeTopology = NO_REPORT
    allocated: NodeAllocation = NO_ALLOCATION
    amplification: Ratios | None = None
    """Ratios of the Node; None without the annotation."""
    reservations: Reservations = NO_RESERVATIONS
    """Reservations of which `allocated` counts something; for one pod, since they differ in who may take them."""
    bad_amplification: str = ""
    """Reason why the Node's annotation cannot be read."""

    @classmethod
    def of(
        cls, node: Node, topology: NodeTopology, allocated: NodeAllocation, requested: Mapping[str, Quantity]
    ) -> KoordinatorNode:
        """The state of `node`."""
        ratios, why = read_ratios(node.annotations.get(keys.AMPLIFICATION_RATIO))
        return cls(
            name=node.name,
            labels=node.labels,
            allocatable=node.allocatable,
            requested=requested,
            topology=topology,
            allocated=allocated,
            amplification=ratios,
            bad_amplification=why,
        )

    def with_pod(self, allocation: Allocation) -> KoordinatorNode:
        """The node after one more pod was allocated."""
        pods = (*self.allocated.pods.values(), allocation)
        return msgspec.structs.replace(self, allocated=NodeAllocation.of(self.topology.machine, pods))

    @functools.cached_property
    def bind_policy(self) -> str:
        """`FullPCPUs` or `SpreadByPCPUs` for every pod that requests CPUs; empty for neither."""
        manager = self.topology.cpu_manager
        return bind_policy(self.labels, manager.policy, manager.options)

    @property
    def numa_policy(self) -> str:
        """The label's policy, else kubelet's."""
        return self.labels.get(keys.NUMA_TOPOLOGY_POLICY, "") or self.topology.numa_policy

    @functools.cached_property
    def zones(self) -> Zones:
        """Resources that each NUMA node may hand out, amplified."""
        own = self.topology
        if own.ratios is not None or not self.amplification:
            return own.zones
        return {zone: amplified(amounts, self.amplification) for zone, amounts in own.zones.items()}

    @property
    def cpu_ratio(self) -> float:
        """Factor by which the node amplifies its CPUs."""
        ratios = self.topology.ratios if self.topology.ratios is not None else self.amplification
        return (ratios or {}).get("cpu", 1.0)


def bind_policy(labels: Mapping[str, str], kubelet_policy: str, kubelet_options: Mapping[str, str]) -> str:
    """`FullPCPUs` or `SpreadByPCPUs` when the node gives every pod that requests CPUs CPUs of its own; else empty.

    Said by a label of the node, or by kubelet's static policy with `full-pcpus-only`. Source: `GetNodeCPUBindPolicy`.
    """
    if kubelet_policy == "static" and kubelet_options.get("full-pcpus-only") == "true":
        return FULL_PCPUS
    return _BIND_POLICIES.get(labels.get(keys.CPU_BIND_POLICY, ""), "")


def read(obj: objects.NRTObject, problems: list[Problem], *, max_numa_nodes: int = defaults.NUMA_NODES) -> NodeTopology:
    """The topology that `obj` reports; a part that cannot be read counts as not there and is added to `problems`."""
    return of_reader(Reader(obj, problems, max_numa_nodes=max_numa_nodes), obj.topology_policies or ())


def of_reader(report: Reader, words: Sequence[str]) -> NodeTopology:
    """The same of what is read of it already; `words` are its `topologyPolicies`."""
    machine = _machine(report.topology_text) if report.topology.cpus else NO_MACHINE
    reserved = union(
        (
            *(alloc.cpuset for alloc in report.kubelets_pods),
            report.cpu_manager.reserved_cpus,
            report.reservation.reserved_cpus or EMPTY if report.reservation else EMPTY,
            report.system_qos.exclusive_cpus if report.system_qos else EMPTY,
        )
    )
    return NodeTopology(
        machine=machine,
        reserved=reserved,
        cpu_manager=msgspec.structs.replace(report.cpu_manager, reserved_cpus=EMPTY),
        numa_policy=next((_POLICIES[word] for word in words if word in _POLICIES), ""),
        zones={
            number: _unreserved(amounts, machine, number, reserved) for number, amounts in report.allocatable.items()
        },
        ratios=report.ratios,
        distances=report.distances,
    )


def read_ratios(text: str | None) -> tuple[Ratios | None, str]:
    """The ratios in the Node's annotation, and why they cannot be read."""
    try:
        return (None if text is None else reader.read_ratios(text, "")), ""
    except InputError as error:
        return None, error.problems[0].why


@functools.lru_cache(maxsize=1024)
def _machine(text: str) -> Machine:
    """Kept, because a cluster has few kinds of machines and many nodes of each."""
    return Machine.of(nrt.decode_cpu_topology(text, "").cpus)


def _unreserved(
    amounts: Mapping[str, Quantity], machine: Machine, number: int, reserved: CPUSet
) -> Mapping[str, Quantity]:
    """Resources that a NUMA node may hand out, without its reserved CPUs."""
    cpu = amounts.get("cpu")
    if cpu and cpu.nano:
        milli = cpu.milli - 1000 * len(machine.by_node.get(number, EMPTY) & reserved)
        return {**amounts, "cpu": Quantity(milli * 10**6, cpu.format)}
    return amounts
