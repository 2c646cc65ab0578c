"""Allocation of a pod on a node inside given NUMA nodes: amounts split over them, and CPUs of its own.

Source: Koordinator v1.9 `Allocate`, `tryBestToDistributeEvenly`, `allocateCPUSet` (resource_manager.go).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.quantity import NANO, ZERO, Quantity
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.take import NO_POLICY, TakePolicy, take_preferred
from koordlite.numa.koordinator.values import (
    FULL_PCPUS,
    NEVER,
    NOT_ENOUGH_CPUS,
    RESTRICTED_POLICY,
    SPREAD_BY_PCPUS,
    AllocatedCPU,
    Allocation,
    Amounts,
    Refusal,
    Reserved,
    Zones,
    available_cpus,
    available_zones,
    refuse,
    released,
    zones_added,
)
from koordlite.numa.machine import Machine, mask_of, nodes_of


class NodeRequest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Request of a pod to one node."""

    requests: Amounts
    """Amplified on a node that sells its CPUs several times."""
    original: Amounts
    """Amounts as written in the pod."""
    count: int = 0
    """Whole CPUs."""
    bound: bool = False
    """It gets CPUs of its own."""
    required: bool = False
    """The bind policy must be kept, or the pod does not fit."""
    policy: TakePolicy = NO_POLICY
    must_reserve: bool = False
    """It gets nothing without a reservation."""

    @property
    def whole_cores(self) -> bool:
        """Its CPUs are split over NUMA nodes core by core."""
        return self.required and self.policy.bind == FULL_PCPUS

    @functools.cached_property
    def nano(self) -> dict[str, int]:
        """Amounts that are split over NUMA nodes, in nano-units."""
        return {name: amount.nano for name, amount in (self.original if self.bound else self.requests).items()}

    @functools.cached_property
    def is_whole(self) -> bool:
        """No amount is finer than it is split."""
        return all(_is_whole(name, nano) for name, nano in self.nano.items())


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that count as free although they are held, by reservations the pod may take."""

    zones: Zones = msgspec.field(default_factory=dict)
    preferred: CPUSet = EMPTY
    """Taken before other CPUs."""
    only: Zones = msgspec.field(default_factory=dict)
    """Only source of amounts, where not empty."""


NO_REUSE = Reuse()


def _is_whole(name: str, nano: int) -> bool:
    return nano % (10**6 if name == "cpu" else 10**9) == 0


class Supply(msgspec.Struct, frozen=True, dict=True):
    """Resources that a node can give to a request."""

    machine: Machine
    zones: Zones
    cpus: CPUSet
    """CPUs the bind policy can use."""
    allocated_cpus: Mapping[int, AllocatedCPU]
    preferred: CPUSet = EMPTY

    @classmethod
    def of(cls, node: KoordinatorNode, request: NodeRequest, reuse: Reuse = NO_REUSE) -> Supply:
        """Resources that `node` can give; a required bind policy leaves fewer CPUs, and so less of a NUMA node's
        cpu."""
        if reuse is NO_REUSE:
            bind = request.policy.bind if request.required else ""
            supply: Supply = node.once(("supply", bind), lambda: cls._of(node, bind, NO_REUSE))
            return supply
        return cls._of(node, request.policy.bind if request.required else "", reuse)

    @classmethod
    def _of(cls, node: KoordinatorNode, required_bind: str, reuse: Reuse) -> Supply:
        topology = node.topology
        allocated_cpus = released(node.allocated.cpus, reuse.preferred)
        cpus = available_cpus(
            topology.machine, allocated_cpus, reserved=topology.reserved, most_holders=topology.most_holders
        )
        zones = reuse.only or available_zones(
            node.allocated, node.zones, cpu_ratio=node.cpu_ratio, reusable=reuse.zones
        )
        if required_bind:
            cpus = usable(topology.machine, cpus, required_bind)
            zones = {zone: _capped(amounts, topology.machine, zone, cpus) for zone, amounts in zones.items()}
        return cls(topology.machine, zones, cpus, allocated_cpus, reuse.preferred)

    @functools.cached_property
    def nano(self) -> dict[str, dict[int, int]]:
        """Nano-units by resource and NUMA node."""
        resources: dict[str, dict[int, int]] = {}
        for zone, amounts in self.zones.items():
            for name, amount in amounts.items():
                resources.setdefault(name, {})[zone] = amount.nano
        return resources

    @functools.cached_property
    def is_whole(self) -> bool:
        """No amount is finer than it is split."""
        return all(_is_whole(name, nano) for name, zones in self.nano.items() for nano in zones.values())

    def even_zones(self, request: NodeRequest) -> int:
        """The NUMA nodes that have whole CPUs, or cores, and a free CPU for each: how many are asked decides there."""
        part = (self.machine.per_core or 1) if request.whole_cores else 1
        odd = request.count % part or request.nano.get("cpu", 0) != request.count * NANO
        if odd or self.preferred or not self.is_whole or not request.is_whole:
            return 0
        return self._whole[request.whole_cores]

    @functools.cached_property
    def _whole(self) -> tuple[int, int]:
        """The NUMA nodes that have whole CPUs, and those that have whole cores, all of them free there, as masks."""
        milli = {zone: nano // 10**6 for zone, nano in self.nano.get("cpu", {}).items()}
        free = {zone: 1000 * len(self.machine.by_node.get(zone, EMPTY) & self.cpus) for zone in milli}
        cpu, core = (
            mask_of(zone for zone, amount in milli.items() if unit and amount % unit == 0 and amount <= free[zone])
            for unit in (1000, 1000 * self.machine.per_core)
        )
        return cpu, core


def usable(machine: Machine, cpus: CPUSet, bind: str) -> CPUSet:
    """The CPUs a required bind policy can use: of entirely free cores, or the first free thread of each core."""
    if bind not in (FULL_PCPUS, SPREAD_BY_PCPUS):
        return cpus
    cores = machine.by_core(cpus).values()
    if bind == FULL_PCPUS:
        return CPUSet(cpu for core in cores if len(core) == machine.per_core for cpu in core)
    return CPUSet(core[0] for core in cores)


def _capped(amounts: Amounts, machine: Machine, zone: int, cpus: CPUSet) -> Amounts:
    cpu, milli = amounts.get("cpu", ZERO), 1000 * len(machine.by_node.get(zone, EMPTY) & cpus)
    return {**amounts, "cpu": Quantity(milli * 10**6, cpu.format)} if cpu.nano and milli < cpu.milli else amounts


def allocate(supply: Supply, request: NodeRequest, mask: int | None, *, uid: str = "") -> Allocation | Refusal:
    """Allocate inside the NUMA nodes of `mask`; without a mask only CPUs, from anywhere."""
    zones: Zones = {}
    if mask is not None:
        if not supply.zones:
            return refuse("insufficient resources on NUMA Node", code=NEVER)
        zones, reasons = split(supply, request, nodes_of(mask))
        if reasons:
            return Refusal(reasons)
    try:
        cpus = _cpus(supply, request, zones) if request.bound else EMPTY
    except ValueError as error:
        return refuse(str(error))
    return Allocation(uid=uid, cpus=cpus, exclusive=request.policy.exclusive, zones=zones)


def fits(supply: Supply, request: NodeRequest, mask: int | None) -> bool:
    """Tell whether `allocate` gives something: sums decide it, but where amounts are odd the pod is allocated on trial.

    Sums suffice because the NUMA node with the least gives first, in whole units as long as all amounts are whole.
    """
    if mask is None:
        return not request.bound or _cpus_suffice(supply, request)
    for name, nano in request.nano.items():
        if name in supply.nano and nano > sum(had for zone, had in supply.nano[name].items() if mask >> zone & 1):
            return False
    decided = not mask & ~supply.even_zones(request) if request.bound else supply.is_whole and request.is_whole
    return decided or not isinstance(allocate(supply, request, mask), Refusal)


def _cpus_suffice(supply: Supply, request: NodeRequest) -> bool:
    """Tell whether the node has enough CPUs: their number decides, unless cores or reservations matter."""
    odd = request.whole_cores and request.count % (supply.machine.per_core or 1)
    if supply.preferred or odd:
        return not isinstance(allocate(supply, request, None), Refusal)
    return len(supply.cpus) >= request.count


def split(supply: Supply, request: NodeRequest, nodes: Sequence[int]) -> tuple[Zones, tuple[str, ...]]:
    """Amounts by NUMA node, as even as can be: those with the least give first, the last one gives the rest.

    (zones, reasons why not). What no NUMA node of the machine knows is not asked of them.
    """
    listed = {name for amounts in supply.zones.values() for name in amounts}
    shares: dict[int, dict[str, Quantity]] = {}
    reasons: list[str] = []
    for name, amount in (request.original if request.bound else request.requests).items():
        if name not in listed:
            continue
        remaining = amount
        available = {zone: supply.zones.get(zone, {}).get(name, ZERO) for zone in nodes}
        for place, zone in enumerate(sorted(nodes, key=lambda zone: (available[zone], zone))):
            share = min(available[zone], _share(supply, request, name, remaining, len(nodes) - place))
            if share.nano:
                shares.setdefault(zone, {})[name] = share
                remaining -= share
        if remaining.nano:
            reasons.append(f"Insufficient NUMA {name}")
    return dict(sorted(shares.items())), tuple(sorted(reasons))


def _share(supply: Supply, request: NodeRequest, name: str, amount: Quantity, parts: int) -> Quantity:
    """An equal part of what is still needed, rounded down: CPUs of its own in whole CPUs or cores."""
    if name != "cpu":
        return Quantity.of(_divided(amount.value, parts), amount.format)
    if not request.bound:
        return Quantity(_divided(amount.milli, parts) * 10**6, amount.format)
    unit = (supply.machine.per_core or 1) if request.whole_cores else 1
    return Quantity.of(_divided(_divided(amount.value, unit), parts) * unit, amount.format)


def _divided(amount: int, parts: int) -> int:
    """amount / parts towards zero."""
    return amount // parts if amount >= 0 else -(-amount // parts)


def _cpus(supply: Supply, request: NodeRequest, zones: Zones) -> CPUSet:
    """CPUs of its own: of each NUMA node as many as its share; ValueError when they are too few."""
    if len(supply.cpus) < request.count:
        raise ValueError(NOT_ENOUGH_CPUS)
    cpus = EMPTY
    for zone, amounts in zones.items():
        there = supply.cpus & supply.machine.by_node.get(zone, EMPTY)
        count = amounts.get("cpu", ZERO).milli // 1000
        cpus |= _take(supply, request, there, min(count, len(there)))
    if zones and len(cpus) != request.count:
        raise ValueError(NOT_ENOUGH_CPUS)
    if not zones:
        cpus = _take(supply, request, supply.cpus, request.count)
    if request.required and not _keeps_bind(supply.machine, request.policy.bind, cpus):
        raise ValueError(f"insufficient CPUs to satisfy required cpu bind policy {request.policy.bind}")
    return cpus


def _take(supply: Supply, request: NodeRequest, available: CPUSet, count: int) -> CPUSet:
    return take_preferred(
        supply.machine,
        supply.allocated_cpus,
        request.policy,
        available=available,
        preferred=supply.preferred,
        count=count,
    )


def _keeps_bind(machine: Machine, bind: str, cpus: CPUSet) -> bool:
    """Whole cores under FullPCPUs, one CPU of each core under SpreadByPCPUs."""
    cores = len(machine.by_core(cpus))
    if bind == FULL_PCPUS:
        return cores * machine.per_core == len(cpus)
    return bind != SPREAD_BY_PCPUS or cores == len(cpus)


PREFIX = "Reservation(s) "
OUT_OF_SCOPE = "pod has a nominated reservation but cannot be allocated within its NUMA scope"
NONE_NOMINATED = "no nominated reservation"


def feasible(node: KoordinatorNode, request: NodeRequest, mask: int | None) -> bool:
    """Tell whether `attempt` gives something."""
    if not node.reservations:
        return fits(Supply.of(node, request), request, mask)
    return not isinstance(attempt(node, request, mask), Refusal)


def attempt(node: KoordinatorNode, request: NodeRequest, mask: int | None) -> Allocation | Refusal:
    """Allocation inside the NUMA nodes of `mask`, from any reservation it may take, else from the node.

    A pod that has to take a reservation gets nothing from the node alone.
    """
    candidates = () if node.reservations.ignored else node.reservations.matched
    return _from(node, request, mask, candidates, "") or _from_node(node, request, mask, "")


def take(node: KoordinatorNode, request: NodeRequest, mask: int | None, *, uid: str) -> Allocation | Refusal:
    """Allocation of the pod: from the nominated reservation where there is one, and never from the node instead of
    it."""
    reservations = node.reservations
    if reservations.matched and not reservations.ignored:
        if request.must_reserve and not reservations.nominated:
            return refuse(NONE_NOMINATED)
        nominated = [one for one in reservations.matched if one.uid == reservations.nominated]
        if nominated:
            return _from(node, request, mask, nominated, uid) or refuse(OUT_OF_SCOPE)
    return _from_node(node, request, mask, uid)


def hint_supply(node: KoordinatorNode, request: NodeRequest) -> Supply:
    """All that the pod could use on the node: what its hints are about."""
    reservations = node.reservations
    if not reservations:
        return Supply.of(node, request)
    zones = zones_added(
        [*(one.zones for one in reservations.matched), *(one.taken_zones for one in reservations.others)]
    )
    return Supply.of(node, request, Reuse(zones=zones, preferred=union(one.free_cpus for one in reservations.matched)))


def nominated_reuse(node: KoordinatorNode) -> Reuse:
    """Resources that do not count as used when the pod takes its nominated reservation, or none."""
    reservations = node.reservations
    nominated = [one for one in reservations.matched if reservations.ignored or one.uid == reservations.nominated]
    zones = zones_added([reservations.counted_twice, *(one.free_zones for one in nominated)])
    return Reuse(zones=zones, preferred=union(one.free_cpus for one in nominated))


def _from(
    node: KoordinatorNode, request: NodeRequest, mask: int | None, candidates: Sequence[Reserved], uid: str
) -> Allocation | Refusal | None:
    """The allocation from the first of the chosen reservations that will do; None when the node may be asked."""
    reasons: list[str] = []
    for one in candidates:
        allocation = _from_one(node, request, mask, one, uid)
        if not isinstance(allocation, Refusal):
            return allocation
        reasons += [f"{PREFIX}{reason}" for reason in allocation.reasons]
    return Refusal(tuple(reasons)) if request.must_reserve and candidates else None


def _from_one(
    node: KoordinatorNode, request: NodeRequest, mask: int | None, one: Reserved, uid: str
) -> Allocation | Refusal:
    """Take what the reservation has left first, its CPUs before others; under Restricted nothing else comes."""
    reuse = Reuse(zones=zones_added((node.reservations.counted_twice, one.free_zones)), preferred=one.free_cpus)
    allocation = allocate(Supply.of(node, request, reuse), request, mask, uid=uid)
    if one.policy != RESTRICTED_POLICY or isinstance(allocation, Refusal):
        return allocation
    if request.bound and request.count > len(one.free_cpus):
        return refuse(NOT_ENOUGH_CPUS)
    reuse = msgspec.structs.replace(reuse, only=one.free_zones)
    allocation = allocate(Supply.of(node, request, reuse), request, mask, uid=uid)
    outside = not isinstance(allocation, Refusal) and not allocation.cpus <= one.free_cpus
    return refuse(NOT_ENOUGH_CPUS) if outside else allocation


def _from_node(node: KoordinatorNode, request: NodeRequest, mask: int | None, uid: str) -> Allocation | Refusal:
    """The allocation beside reservations, or from them as well when the pod ignores them."""
    reuse = NO_REUSE
    if node.reservations:
        ignored = node.reservations.ignored
        reuse = nominated_reuse(node) if ignored else Reuse(zones=node.reservations.counted_twice)
    return allocate(Supply.of(node, request, reuse), request, mask, uid=uid)
