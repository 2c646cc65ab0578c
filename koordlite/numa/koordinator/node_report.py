"""A node as Koordinator's scheduler reads it: its NodeResourceTopology, labels and amplification.

Source: Koordinator v1.9 `NewTopologyOptions` (topology_options.go), `amplifyNUMANodeResources` (util.go).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from koordlite.model import keys, nrt
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.errors import InputError, Problem
from koordlite.model.node import Node, parse_reservation, parse_system_qos
from koordlite.model.nrt import CPUManagerPolicy
from koordlite.model.once import Once
from koordlite.model.quantity import Quantity
from koordlite.model.resources import parse_resources
from koordlite.model.wire import objects
from koordlite.numa.koordinator.amounts import Ratios, amplified
from koordlite.numa.koordinator.held import NOTHING_HELD, Held
from koordlite.numa.koordinator.reservations import NO_RESERVATIONS, Reservations
from koordlite.numa.koordinator.values import (
    BEST_EFFORT,
    NO_MACHINE,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    Allocation,
    Machine,
    Zones,
)
from koordlite.numa.nrt.score import Costs

T = TypeVar("T")

FULL_PCPUS_ONLY, SPREAD_ONLY = "FullPCPUsOnly", "SpreadByPCPUs"
_POLICIES = {"BestEffort": BEST_EFFORT, "Restricted": RESTRICTED, "SingleNUMANodePodLevel": SINGLE_NUMA_NODE}
_NO_CPU_MANAGER = CPUManagerPolicy()
_MOST_TIMES = 10**6
_SKIPPED = "fix its writer; until then the node counts as one without it"


class NodeTopology(msgspec.Struct, frozen=True, kw_only=True):
    """What the NodeResourceTopology of a node says, ready for allocation."""

    machine: Machine = NO_MACHINE
    reserved: CPUSet = EMPTY
    """CPUs that no pod gets: kubelet's pods have them, or they are reserved."""
    most_holders: int = 1
    cpu_manager: CPUManagerPolicy = _NO_CPU_MANAGER
    numa_policy: str = ""
    zones: Zones = msgspec.field(default_factory=dict)
    """What each NUMA node may hand out, without the reserved CPUs; by its id, ascending."""
    ratios: Ratios | None = None
    """Amplification that is in `zones` already; None where it is not."""
    distances: Costs = msgspec.field(default_factory=dict)
    """From one NUMA node to another; empty where the report has none."""


NO_REPORT = NodeTopology()


class NodeState(Once, msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A node with what its pods hold."""

    name: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    requested: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """Requests of all pods on the node."""
    topology: NodeTopology = NO_REPORT
    held: Held = NOTHING_HELD
    amplification: Ratios | None = None
    """From the Node; None without the annotation."""
    reservations: Reservations = NO_RESERVATIONS
    """Those of which `held` counts something; for one pod, since they differ in who may take them."""
    bad_amplification: str = ""
    """Why the Node's annotation cannot be read."""

    @classmethod
    def of(cls, node: Node, topology: NodeTopology, held: Held, requested: Mapping[str, Quantity]) -> NodeState:
        """The state of `node`."""
        ratios, why = read_ratios(node.annotations.get(keys.AMPLIFICATION_RATIO))
        return cls(
            name=node.name,
            labels=node.labels,
            allocatable=node.allocatable,
            requested=requested,
            topology=topology,
            held=held,
            amplification=ratios,
            bad_amplification=why,
        )

    def with_pod(self, allocation: Allocation) -> NodeState:
        """After one more pod was allocated."""
        pods = (*self.held.pods.values(), allocation)
        return msgspec.structs.replace(self, held=Held.of(self.topology.machine, pods))

    @functools.cached_property
    def bind_policy(self) -> str:
        """`FullPCPUsOnly` or `SpreadByPCPUs` for every pod that requests CPUs; empty for neither."""
        manager = self.topology.cpu_manager
        return bind_policy(self.labels, manager.policy, manager.options)

    @property
    def numa_policy(self) -> str:
        """The label's policy, else kubelet's."""
        return self.labels.get(keys.NUMA_TOPOLOGY_POLICY, "") or self.topology.numa_policy

    @functools.cached_property
    def zones(self) -> Zones:
        """What each NUMA node may hand out, amplified."""
        own = self.topology
        if own.ratios is not None or not self.amplification:
            return own.zones
        return {zone: amplified(amounts, self.amplification) for zone, amounts in own.zones.items()}

    @property
    def cpu_ratio(self) -> float:
        """How many times the node sells a CPU."""
        ratios = self.topology.ratios if self.topology.ratios is not None else self.amplification
        return (ratios or {}).get("cpu", 1.0)


def bind_policy(labels: Mapping[str, str], kubelet_policy: str, kubelet_options: Mapping[str, str]) -> str:
    """`FullPCPUsOnly` or `SpreadByPCPUs` when the node gives every pod that requests CPUs CPUs of its own; else empty.

    Said by a label of the node, or by kubelet's static policy with `full-pcpus-only`. Source: `GetNodeCPUBindPolicy`.
    """
    label = labels.get(keys.CPU_BIND_POLICY, "")
    full = kubelet_policy == "static" and kubelet_options.get("full-pcpus-only") == "true"
    if full or label == FULL_PCPUS_ONLY:
        return FULL_PCPUS_ONLY
    return label if label == SPREAD_ONLY else ""


def read(obj: objects.NRTObject, problems: list[Problem]) -> NodeTopology:
    """The topology that `obj` reports; a part that cannot be read counts as not there and is added to `problems`."""
    note = _Notes(obj, problems)
    machine = note.get(keys.CPU_TOPOLOGY, _machine) or NO_MACHINE
    manager, kubelet_reserved = note.get(keys.CPU_MANAGER_POLICY, _cpu_manager) or (_NO_CPU_MANAGER, "")
    written = note.get(keys.RESERVATION, parse_reservation)
    system = note.get(keys.SYSTEM_QOS, parse_system_qos)
    reserved = union(
        (
            *(note.cpus(keys.POD_CPU_ALLOCS, text) for text in note.get(keys.POD_CPU_ALLOCS, _kubelets_pods) or ()),
            note.cpus(keys.CPU_MANAGER_POLICY, kubelet_reserved),
            written.reserved_cpus or EMPTY if written else EMPTY,
            system.exclusive_cpus if system else EMPTY,
        )
    )
    return NodeTopology(
        machine=machine,
        reserved=reserved,
        cpu_manager=manager,
        numa_policy=next((_POLICIES[word] for word in obj.topology_policies or () if word in _POLICIES), ""),
        zones=_zones(obj, machine, reserved, problems),
        ratios=note.get(keys.AMPLIFICATION_RATIO, _ratios),
        distances=_distances(obj),
    )


def read_ratios(text: str | None) -> tuple[Ratios | None, str]:
    """The ratios in the Node's annotation, and why they cannot be read."""
    try:
        return (None if text is None else _ratios(text, "")), ""
    except InputError as error:
        return None, error.problems[0].why


def _zones(obj: objects.NRTObject, machine: Machine, reserved: CPUSet, problems: list[Problem]) -> Zones:
    owner, zones = _owner(obj), dict[int, Mapping[str, Quantity]]()
    for zone in obj.zones or ():
        number = nrt.numa_node_of_zone(zone.name)
        if zone.type != "Node" or number is None:
            continue
        texts = {resource.name: resource.allocatable for resource in zone.resources or ()}
        amounts = parse_resources(texts, owner, f"zones.{zone.name}", problems)
        cpu = amounts.get("cpu")
        if cpu and cpu.nano:
            kept = len(machine.by_node.get(number, EMPTY) & reserved)
            amounts["cpu"] = Quantity((cpu.milli - 1000 * kept) * 10**6, cpu.format)
        zones[number] = amounts
    return dict(sorted(zones.items()))


def _distances(obj: objects.NRTObject) -> Costs:
    """A distance that cannot be read counts as not given: then the NUMA nodes are as far apart as can be."""
    found: dict[int, dict[int, int]] = {}
    for zone in obj.zones or ():
        number = nrt.numa_node_of_zone(zone.name)
        if zone.type == "Node" and number is not None and zone.costs:
            named = ((nrt.numa_node_of_zone(str(cost.get("name", ""))), cost.get("value")) for cost in zone.costs)
            found[number] = {other: far for other, far in named if other is not None and isinstance(far, int)}
    return found


class _Notes(msgspec.Struct, frozen=True):
    """The annotations of one object, read one by one."""

    obj: objects.NRTObject
    problems: list[Problem]

    def get(self, key: str, parse: Callable[[str, str], T]) -> T | None:
        """The value of annotation `key`; None without one, or when it cannot be read."""
        text = (self.obj.metadata.annotations or {}).get(key)
        try:
            return None if text is None else parse(text, _owner(self.obj))
        except InputError as error:
            self.problems.extend(error.problems)
            return None

    def cpus(self, key: str, text: str) -> CPUSet:
        """A CPU list in annotation `key`; empty when it is none."""
        try:
            return CPUSet.parse(text)
        except ValueError as error:
            self.problems.append(Problem(_owner(self.obj), key, text, str(error), _SKIPPED))
            return EMPTY


def _machine(text: str, owner: str) -> Machine:
    """The machine that annotation `text` of object `owner` describes; one for all nodes with the same text."""
    try:
        return _machine_of(text)
    except InputError:
        return Machine.of(nrt.decode_cpu_topology(text, owner).cpus)


@functools.lru_cache(maxsize=1024)
def _machine_of(text: str) -> Machine:
    """Kept, because a cluster has few kinds of machines and many nodes of each."""
    return Machine.of(nrt.decode_cpu_topology(text, "").cpus)


def _owner(obj: objects.NRTObject) -> str:
    return f"noderesourcetopology/{obj.metadata.name}"


class _Alloc(msgspec.Struct, rename="camel"):
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class _Manager(msgspec.Struct):
    policy: str = ""
    options: dict[str, str] | None = None
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


def _kubelets_pods(text: str, owner: str) -> list[str]:
    """CPU lists of the pods that kubelet gave CPUs of their own."""
    allocs: list[_Alloc] = _decode(text, list[_Alloc] | None, owner, keys.POD_CPU_ALLOCS) or []
    return [alloc.cpuset for alloc in allocs if alloc.managed_by_kubelet and alloc.uid]


def _cpu_manager(text: str, owner: str) -> tuple[CPUManagerPolicy, str]:
    """Policy and options, and the list of CPUs kubelet keeps for the system."""
    found: _Manager = _decode(text, _Manager | None, owner, keys.CPU_MANAGER_POLICY) or _Manager()
    return CPUManagerPolicy(policy=found.policy, options=found.options or {}), found.reserved_cpus


def _ratios(text: str, owner: str) -> Ratios | None:
    ratios: dict[str, float] | None = _decode(text, dict[str, float] | None, owner, keys.AMPLIFICATION_RATIO)
    wild = next((name for name, ratio in (ratios or {}).items() if not ratio <= _MOST_TIMES), None)
    if wild is not None:
        why = f"{wild}: no node sells a resource more than {_MOST_TIMES} times"
        raise InputError(Problem(owner, keys.AMPLIFICATION_RATIO, text, why, _SKIPPED))
    return ratios


def _decode(text: str, shape: Any, owner: str, key: str) -> Any:
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(Problem(owner, key, text, str(error), _SKIPPED)) from error
