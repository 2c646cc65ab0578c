"""Words and values of Koordinator's NUMA rules: hints, refusals, sums of amounts, and what a node's pods and
reservations hold: CPUs, amounts by NUMA node, and who shares a NUMA node.

Source: Koordinator v1.9, pkg/scheduler/plugins/nodenumaresource (`NodeAllocation`, node_allocation.go) and
frameworkext/topologymanager.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.quantity import ZERO, Quantity, add_resources
from koordlite.numa.machine import Machine

Amounts = Mapping[str, Quantity]
Zones = Mapping[int, Amounts]
"""Amounts by NUMA node."""

FULL_PCPUS, SPREAD_BY_PCPUS, DEFAULT_BIND = "FullPCPUs", "SpreadByPCPUs", "Default"
PCPU_LEVEL, NUMA_NODE_LEVEL = "PCPULevel", "NUMANodeLevel"
MOST_ALLOCATED, LEAST_ALLOCATED = "MostAllocated", "LeastAllocated"
BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "BestEffort", "Restricted", "SingleNUMANode"
EXCLUSIVE_REQUIRED = "Required"
IDLE, SINGLE, SHARED = "idle", "single", "shared"

CPUS_NOT_WHOLE = "the requested CPUs must be integer"
NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"

UNSCHEDULABLE, NEVER, ERROR = "Unschedulable", "UnschedulableAndUnresolvable", "Error"


class Refusal(msgspec.Struct, frozen=True):
    """Reasons why not. `code` is the scheduler's: with `NEVER` no eviction on the node would help."""

    reasons: tuple[str, ...]
    code: str = UNSCHEDULABLE

    def __str__(self) -> str:
        return ", ".join(self.reasons)


def refuse(*reasons: str, code: str = UNSCHEDULABLE) -> Refusal:
    """A refusal with these reasons."""
    return Refusal(reasons, code)


class AllocatedCPU(msgspec.Struct, frozen=True):
    """A CPU that pods hold: where it is, how many hold it, and the exclusive policy of the last of them."""

    node: int
    core: int
    holders: int = 1
    exclusive: str = ""


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Holding of one pod on a node: CPUs of its own, and amounts by NUMA node."""

    uid: str
    cpus: CPUSet = EMPTY
    exclusive: str = ""
    zones: Zones = msgspec.field(default_factory=dict)


class Hint(msgspec.Struct, frozen=True):
    """NUMA nodes that would do, as the bits of `mask`; None is no preference."""

    mask: int | None
    preferred: bool = False
    score: int = 0
    unsatisfied: bool = False


def mask_text(mask: int) -> str:
    """A mask as reasons print it: binary, NUMA node 0 last, in pairs of digits where Koordinator pads them."""
    width = next((shift + 2 for shift in range(62, 0, -2) if mask > 1 << shift), 2)
    return format(mask, f"0{width}b")


Ratios = Mapping[str, float]
"""Factor by which a node sells a resource, by name."""


def added(a: Amounts, b: Amounts) -> dict[str, Quantity]:
    """a + b, name by name."""
    return add_resources(dict(a), b)


def difference(a: Amounts, b: Amounts) -> dict[str, Quantity]:
    """max(a - b, 0), name by name; names that only `b` has are 0. Source: quota `SubtractWithNonNegativeResult`."""
    differences = {name: amount - b[name] if name in b else amount for name, amount in a.items()}
    return {
        **dict.fromkeys(b, ZERO),
        **{name: amount if amount.nano > 0 else ZERO for name, amount in differences.items()},
    }


def zones_added(parts: Iterable[Zones]) -> dict[int, Amounts]:
    """The sum of amounts by NUMA node."""
    sums: dict[int, Amounts] = {}
    for part in parts:
        for zone, amounts in part.items():
            sums[zone] = added(sums.get(zone, {}), amounts)
    return sums


def total(zones: Zones, nodes: Iterable[int]) -> dict[str, Quantity]:
    """The sum over the chosen NUMA nodes."""
    sums: dict[str, Quantity] = {}
    for zone in nodes:
        sums = added(sums, zones.get(zone, {}))
    return sums


def amplify(amount: int, ratio: float) -> int:
    """⌈amount × ratio⌉ where the ratio is above 1. Source: Koordinator `Amplify`."""
    return math.ceil(amount * ratio) if ratio > 1 else amount


def amplified(amounts: Amounts, ratios: Ratios) -> dict[str, Quantity]:
    """Amounts times their ratios: cpu in thousandths, everything else in whole units."""
    return {name: _amplified(name, amount, ratios.get(name, 1.0)) for name, amount in amounts.items()}


def _amplified(name: str, amount: Quantity, ratio: float) -> Quantity:
    if ratio <= 1 or not amount.nano:
        return amount
    if name == "cpu":
        return Quantity.of_milli(amplify(amount.milli, ratio))
    binary = name in ("memory", "ephemeral-storage")
    return Quantity.of(amplify(amount.value, ratio), "BinarySI" if binary else "DecimalSI")


class NodeAllocation(msgspec.Struct, frozen=True):
    """The allocations of all pods on one node, added up. A value: `of` makes another one for other pods."""

    pods: Mapping[str, Allocation] = msgspec.field(default_factory=dict)
    """Allocations by uid."""
    cpus: Mapping[int, AllocatedCPU] = msgspec.field(default_factory=dict)
    zones: Zones = msgspec.field(default_factory=dict)
    states: Mapping[int, str] = msgspec.field(default_factory=dict)
    """`single` for NUMA nodes where every pod with CPUs of its own has them in that node only, `shared` where one spans
    several; NUMA nodes without such pods are left out. Pods without CPUs of their own do not count."""

    @classmethod
    def of(cls, machine: Machine, allocations: Iterable[Allocation]) -> NodeAllocation:
        """The sum of `allocations`, in their order; of two with one uid the first counts.

        CPUs the machine does not have count as CPUs of NUMA node 0, as in Koordinator.
        """
        pods: dict[str, Allocation] = {}
        for each in allocations:
            pods.setdefault(each.uid, each)
        cpus: dict[int, AllocatedCPU] = {}
        zones: dict[int, Amounts] = {}
        states: dict[int, str] = {}
        for pod in pods.values():
            used = _take(machine, pod, cpus)
            for node in used:
                states[node] = SHARED if len(used) > 1 else states.get(node, SINGLE)
            for zone, amounts in pod.zones.items():
                zones[zone] = added(zones.get(zone, {}), amounts)
        return cls(pods, cpus, zones, states)


NO_ALLOCATION = NodeAllocation()


def _take(machine: Machine, pod: Allocation, cpus: dict[int, AllocatedCPU]) -> set[int]:
    """Add the pod's CPUs to `cpus`; the NUMA nodes they lie on."""
    nodes: set[int] = set()
    for cpu in pod.cpus:
        place, before = machine.by_id.get(cpu), cpus.get(cpu)
        node, core = (place.node, place.core) if place else (0, 0)
        cpus[cpu] = AllocatedCPU(node, core, before.holders + 1 if before else 1, pod.exclusive)
        nodes.add(node)
    return nodes


def released(cpus: Mapping[int, AllocatedCPU], *sets: CPUSet) -> Mapping[int, AllocatedCPU]:
    """CPUs still held after each CPU in each of `sets` has lost one holder."""
    if not any(sets):
        return cpus
    still = dict(cpus)
    for cpu in (cpu for each in sets for cpu in each if cpu in still):
        allocated = still.pop(cpu, None)
        if allocated and allocated.holders > 1:
            still[cpu] = msgspec.structs.replace(allocated, holders=allocated.holders - 1)
    return still


def available_cpus(
    machine: Machine, cpus: Mapping[int, AllocatedCPU], *, reserved: CPUSet, most_holders: int
) -> CPUSet:
    """CPUs that are not reserved and that fewer than `most_holders` pods hold."""
    full = {cpu for cpu, allocated in cpus.items() if allocated.holders >= most_holders}
    return CPUSet(machine.all.ids - reserved.ids - full)


def allocated_zones(
    allocated: NodeAllocation, zones: Iterable[int], *, cpu_ratio: float, reusable: Zones
) -> dict[int, Amounts]:
    """Allocated amounts of the NUMA nodes that pods have anything of, less what may be used again.

    Where CPUs are amplified, CPUs that pods hold alone count as many times as they are amplified.
    """
    bound = collections.Counter(cpu.node for cpu in allocated.cpus.values()) if cpu_ratio > 1 else {}
    parts = ((zone, allocated.zones[zone]) for zone in zones if zone in allocated.zones)
    return {
        zone: difference(with_amplified(amounts, bound.get(zone, 0), cpu_ratio), reusable.get(zone, {}))
        for zone, amounts in parts
    }


def with_amplified(amounts: Amounts, bound: int, ratio: float) -> Amounts:
    """Amounts in which the CPUs that pods hold alone, `bound` of them, count as many times as they are amplified."""
    if ratio <= 1:
        return amounts
    milli = amounts.get("cpu", ZERO).milli - 1000 * bound + amplify(1000 * bound, ratio)
    return {**amounts, "cpu": Quantity.of_milli(milli)}


def available_zones(
    allocation: NodeAllocation, zones: Zones, *, cpu_ratio: float = 1.0, reusable: Zones | None = None
) -> dict[int, dict[str, Quantity]]:
    """Rest of each NUMA node: its amount less what is allocated, never below 0."""
    allocated = allocated_zones(allocation, zones, cpu_ratio=cpu_ratio, reusable=reusable or {})
    return {zone: difference(amounts, allocated.get(zone, {})) for zone, amounts in zones.items()}


RESTRICTED_POLICY = "Restricted"


class Reserved(msgspec.Struct, frozen=True):
    """Holding of one reservation on a node."""

    uid: str
    policy: str = ""
    """`Restricted`: a pod takes all it needs from the reservation; else the rest may come from the node."""
    zones: Zones = msgspec.field(default_factory=dict)
    taken_zones: Zones = msgspec.field(default_factory=dict)
    """Amounts its owners took of them."""
    free_cpus: CPUSet = EMPTY
    """Its CPUs that no owner has."""

    @classmethod
    def of(cls, policy: str, allocation: Allocation, owners: Iterable[Allocation]) -> Reserved:
        """The reservation that holds `allocation`, with the allocations of its owners."""
        took = tuple(owners)
        cpus = allocation.cpus - union(owner.cpus for owner in took)
        return cls(allocation.uid, policy, allocation.zones, zones_added(owner.zones for owner in took), cpus)

    @property
    def free_zones(self) -> dict[int, Amounts]:
        """Its amounts that no owner has."""
        return {zone: difference(amounts, self.taken_zones.get(zone, {})) for zone, amounts in self.zones.items()}


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """The reservations of one node, as one pod sees them."""

    matched: tuple[Reserved, ...] = ()
    """Reservations the pod may take."""
    others: tuple[Reserved, ...] = ()
    ignored: bool = False
    """The pod takes what is reserved as if it were free (label reservation-ignored)."""
    nominated: str = ""
    """Uid of the one that was chosen for the pod; empty for none."""

    @property
    def counted_twice(self) -> dict[int, Amounts]:
        """Resources that owners took, of all reservations."""
        return zones_added(one.taken_zones for one in (*self.matched, *self.others))

    def __bool__(self) -> bool:
        return bool(self.matched or self.others)


NO_RESERVATIONS = Reservations()
