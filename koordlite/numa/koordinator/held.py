"""Holdings of a node's pods and reservations, and the rest: CPUs, amounts by NUMA node, and who shares a NUMA node.

Source: Koordinator v1.9 `NodeAllocation` (node_allocation.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.quantity import Quantity
from koordlite.numa.koordinator.values import (
    IDLE,
    SHARED,
    SINGLE,
    ZERO,
    Allocation,
    Amounts,
    TakenCPU,
    Zones,
    added,
    amplify,
    left,
    zones_added,
)
from koordlite.numa.machine import Machine


class Held(msgspec.Struct, frozen=True):
    """The allocations of all pods on one node, added up. A value: `of` makes another one for other pods."""

    pods: Mapping[str, Allocation] = msgspec.field(default_factory=dict)
    """By uid."""
    cpus: Mapping[int, TakenCPU] = msgspec.field(default_factory=dict)
    zones: Zones = msgspec.field(default_factory=dict)
    states: Mapping[int, str] = msgspec.field(default_factory=dict)
    """`single` for NUMA nodes where every pod with CPUs of its own has them in that node only, `shared` where one spans
    several; NUMA nodes without such pods are left out. Pods without CPUs of their own do not count."""

    @classmethod
    def of(cls, machine: Machine, allocations: Iterable[Allocation]) -> Held:
        """The sum of `allocations`, in their order; of two with one uid the first counts.

        CPUs the machine does not have count as CPUs of NUMA node 0, as in Koordinator.
        """
        pods: dict[str, Allocation] = {}
        for each in allocations:
            pods.setdefault(each.uid, each)
        cpus: dict[int, TakenCPU] = {}
        zones: dict[int, Amounts] = {}
        states: dict[int, str] = {}
        for pod in pods.values():
            used = _take(machine, pod, cpus)
            for node in used:
                states[node] = SHARED if len(used) > 1 else states.get(node, SINGLE)
            for zone, amounts in pod.zones.items():
                zones[zone] = added(zones.get(zone, {}), amounts)
        return cls(pods, cpus, zones, states)

    def state(self, zone: int) -> str:
        """`idle`, `single` or `shared`."""
        return self.states.get(zone, IDLE)


NOTHING_HELD = Held()


def _take(machine: Machine, pod: Allocation, cpus: dict[int, TakenCPU]) -> set[int]:
    """Add the pod's CPUs to `cpus`; the NUMA nodes they lie on."""
    nodes: set[int] = set()
    for cpu in pod.cpus:
        place, before = machine.by_id.get(cpu), cpus.get(cpu)
        node, core = (place.node, place.core) if place else (0, 0)
        cpus[cpu] = TakenCPU(node, core, before.holders + 1 if before else 1, pod.exclusive)
        nodes.add(node)
    return nodes


def returned(cpus: Mapping[int, TakenCPU], *sets: CPUSet) -> Mapping[int, TakenCPU]:
    """CPUs still held after each CPU in each of `sets` has lost one holder."""
    if not any(sets):
        return cpus
    still = dict(cpus)
    for cpu in (cpu for each in sets for cpu in each if cpu in still):
        held = still.pop(cpu, None)
        if held and held.holders > 1:
            still[cpu] = msgspec.structs.replace(held, holders=held.holders - 1)
    return still


def available_cpus(machine: Machine, cpus: Mapping[int, TakenCPU], *, reserved: CPUSet, most_holders: int) -> CPUSet:
    """CPUs that are not reserved and that fewer than `most_holders` pods hold."""
    full = {cpu for cpu, held in cpus.items() if held.holders >= most_holders}
    return CPUSet(machine.all.ids - reserved.ids - full)


def allocated_zones(held: Held, zones: Iterable[int], *, cpu_ratio: float, reusable: Zones) -> dict[int, Amounts]:
    """Allocated amounts of the NUMA nodes that pods have anything of, less what may be used again.

    Where CPUs are amplified, CPUs that pods hold alone count as many times as they are amplified.
    """
    return {
        zone: left(_with_amplified(held, zone, cpu_ratio), reusable.get(zone, {}))
        for zone in zones
        if zone in held.zones
    }


def _with_amplified(held: Held, zone: int, ratio: float) -> Amounts:
    amounts = held.zones[zone]
    if ratio <= 1:
        return amounts
    bound = 1000 * sum(1 for cpu in held.cpus.values() if cpu.node == zone)
    milli = amounts.get("cpu", ZERO).milli - bound + amplify(bound, ratio)
    return {**amounts, "cpu": Quantity.of_milli(milli)}


def available_zones(
    held: Held, zones: Zones, *, cpu_ratio: float = 1.0, reusable: Zones | None = None
) -> dict[int, dict[str, Quantity]]:
    """Rest of each NUMA node: its amount less what is allocated, never below 0."""
    allocated = allocated_zones(held, zones, cpu_ratio=cpu_ratio, reusable=reusable or {})
    return {zone: left(amounts, allocated.get(zone, {})) for zone, amounts in zones.items()}


RESTRICTED_POLICY = "Restricted"


class Reserved(msgspec.Struct, frozen=True):
    """Holding of one reservation on a node."""

    uid: str
    policy: str = ""
    """`Restricted`: a pod takes all it needs from the reservation; else the rest may come from the node."""
    zones: Zones = msgspec.field(default_factory=dict)
    taken_zones: Zones = msgspec.field(default_factory=dict)
    """What its owners took of them."""
    free_cpus: CPUSet = EMPTY
    """Its CPUs that no owner has."""

    @classmethod
    def of(cls, policy: str, held: Allocation, owners: Iterable[Allocation]) -> Reserved:
        """The reservation that holds `held`, with the allocations of its owners."""
        took = tuple(owners)
        cpus = held.cpus - union(owner.cpus for owner in took)
        return cls(held.uid, policy, held.zones, zones_added(owner.zones for owner in took), cpus)

    @property
    def free_zones(self) -> dict[int, Amounts]:
        """Its amounts that no owner has."""
        return {zone: left(amounts, self.taken_zones.get(zone, {})) for zone, amounts in self.zones.items()}


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """The reservations of one node, as one pod sees them."""

    matched: tuple[Reserved, ...] = ()
    """Those the pod may take."""
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
