"""Free capacity of a node while a plan is made: resources, pod slots, host ports, and whole CPUs by NUMA node.

A `FreeCapacity` is a value. A pod that leaves or arrives makes another one, so that ten pods never count on one place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from descheduler.framework import NodeView, PodView
from koordlite.formulas.allocatable import reservation
from koordlite.formulas.topology import numa
from koordlite.model import cpuset
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.quantity import NANO, ZERO, Quantity
from koordlite.numa.koordinator import assignments
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.values import Allocation, NodeAllocation
from koordlite.numa.nrt.filter import cpu_left, is_shared

Booking = tuple[int, Mapping[str, Quantity]]
"""Amounts taken from a NUMA node."""
Port = tuple[str, int, str]
"""Protocol, number, and address; an empty address means all of them."""


_AS_IT_IS = "free capacity"


class FreeCapacity(msgspec.Struct, frozen=True, dict=True):
    """A node, the pods on it that stay, and those the plan sends there."""

    node: NodeView
    residents: tuple[PodView, ...]
    arrivals: tuple[tuple[PodView, tuple[Booking, ...]], ...] = ()

    @classmethod
    def of(cls, node: NodeView) -> FreeCapacity:
        """The node as it is."""
        return node.once(_AS_IT_IS, lambda: cls(node, node.pods))

    def without(self, pod: PodView) -> FreeCapacity:
        """The capacity after `pod` has left."""
        number = self._number(pod)
        if number is None:
            return self
        capacity = FreeCapacity(self.node, self.residents[:number] + self.residents[number + 1 :], self.arrivals)
        self._pass_on(capacity, pod, -1)
        return capacity

    def _number(self, pod: PodView) -> int | None:
        """Index of the pod among the residents; None when it is none of them."""
        for number, resident in enumerate(self.residents):
            if resident is pod:
                return number
        return next((number for number, resident in enumerate(self.residents) if resident.pod.uid == pod.pod.uid), None)

    def with_arrival(self, pod: PodView, bookings: tuple[Booking, ...]) -> FreeCapacity:
        """The capacity after a pod like `pod` was started here."""
        capacity = FreeCapacity(self.node, self.residents, (*self.arrivals, (pod, bookings)))
        self._pass_on(capacity, pod, 1)
        return capacity

    def _pass_on(self, other: FreeCapacity, pod: PodView, sign: int) -> None:
        """Hand the sums on, changed by the one pod: nobody sums up thirty pods again."""
        sums, changed = self.__dict__, other.__dict__
        changed["allocatable"] = self.allocatable
        free = changed["unrequested"] = dict(self.unrequested)
        for name, amount in pod.pod.requests.items():
            free[name] = free.get(name, 0) - sign * amount.nano
        if sums.get("free_slots") is not None:
            changed["free_slots"] = sums["free_slots"] - sign

    @property
    def pods(self) -> tuple[PodView, ...]:
        """Everyone who is here, or will be."""
        return (*self.residents, *(pod for pod, _ in self.arrivals))

    @property
    def count(self) -> int:
        """Number of these pods."""
        return len(self.residents) + len(self.arrivals)

    @functools.cached_property
    def allocatable(self) -> Mapping[str, Quantity]:
        """Amounts that the scheduler may hand out: allocatable less the node reservation."""
        return schedulable_amounts(self.node)

    @functools.cached_property
    def requested(self) -> Mapping[str, int]:
        """Requests of all pods, in nano-units by resource."""
        total = {name: amount.nano for name, amount in self.allocatable.items()}
        return {name: used for name, free in self.unrequested.items() if (used := total.get(name, 0) - free)}

    @functools.cached_property
    def fullness(self) -> float:
        """Requested part of the CPUs: -1 for nothing at all, 0 for all of them."""
        whole = self.allocatable.get("cpu")
        return -self.unrequested["cpu"] / whole.nano if whole and whole.nano else 0.0

    @functools.cached_property
    def unrequested(self) -> Mapping[str, int]:
        """Nano-units that nobody has requested, by resource; below zero when the node is overcommitted."""
        # Other values than the node as it is get it from the one before.
        total, requested = {name: amount.nano for name, amount in self.allocatable.items()}, self.node.requested
        return {name: total.get(name, 0) - requested.get(name, 0) for name in {**total, **requested}}

    @functools.cached_property
    def free_slots(self) -> int | None:
        """Number of further pods the node takes; None when it does not say."""
        slots = self.allocatable.get("pods")
        return slots.value - self.count if slots else None

    @functools.cached_property
    def ports(self) -> frozenset[Port]:
        """Host ports in use."""
        return frozenset(port for pod in self.pods for port in host_ports(pod))

    @functools.cached_property
    def pinned(self) -> CPUSet:
        """CPUs that residents hold alone."""
        return cpuset.union(pod.pinned for pod in self.residents)

    @functools.cached_property
    def free_cpus(self) -> CPUSet:
        """CPUs that are neither reserved nor anybody's own. Arrivals are not in it: their CPUs have no numbers yet."""
        return self.node.topology.cpuset - self.node.reserved.cpus - self.pinned

    @functools.cached_property
    def koordinator(self) -> KoordinatorNode:
        """The node for Koordinator's scheduler, with what the residents hold; CPUs that others hold are reserved."""
        topology = self.node.koordinator
        allocations = NodeAllocation.of(topology.machine, self._allocations())
        reserved = topology.reserved | self.node.reserved.cpus | CPUSet(self.pinned.ids - allocations.cpus.keys())
        topology = msgspec.structs.replace(topology, reserved=reserved)
        requested = {name: Quantity(nano) for name, nano in self.requested.items()}
        return KoordinatorNode.of(self.node.node, topology, allocations, requested)

    def _allocations(self) -> Iterator[Allocation]:
        """Allocations of the residents by annotation; one that was promised one NUMA node takes all its requests
        there."""
        by_pod = {one.uid: one for one in assignments.allocations(pod.pod for pod in self.residents)}
        for pod in self.residents:
            allocation = by_pod.get(pod.uid)
            nodes = {node for c in pod.containers for node in numa.promised_nodes(c, self.node.topology)}
            if pod.single_numa and len(nodes) == 1:
                allocation = allocation or Allocation(uid=pod.uid)
                (zone,) = nodes
                amounts = {name: amount for name, amount in pod.pod.requests.items() if is_shared(name)}
                amounts |= allocation.zones.get(zone, {})
                allocation = msgspec.structs.replace(allocation, zones={**allocation.zones, zone: amounts})
            if allocation:
                yield allocation

    @functools.cached_property
    def zones(self) -> Mapping[int, Mapping[str, Quantity]]:
        """Amounts that each NUMA node can still give to pods that want pieces of their own."""
        by_id = {zone.id: zone.cpus for zone in self.node.topology.nodes}
        numbers = sorted({*by_id, *self.node.zones})
        zones: dict[int, Mapping[str, Quantity]] = {n: self._zone(n, by_id.get(n, EMPTY)) for n in numbers}
        for _, bookings in self.arrivals:
            for number, amounts in bookings:
                # What is left of a zone is never below zero; resources it does not list are skipped.
                zone = zones[number].items()
                zones[number] = {n: Quantity(max(0, q.nano - amounts.get(n, ZERO).nano), q.format) for n, q in zone}
        return zones

    def _zone(self, number: int, cpus: CPUSet) -> dict[str, Quantity]:
        amounts = dict(self.node.zones.get(number, {}))
        if not cpus:
            return amounts
        reported = amounts.get("cpu")
        amounts["cpu"] = Quantity(cpu_left(None if reported is None else reported.nano, cpus, self.free_cpus))
        if "memory" in amounts:
            # A report that has the CPU topology is Koordinator's: its `available` does not know of pods.
            promised = sum(
                pod.pod.request_value("memory")
                for pod in self.residents
                if any(c.single_numa and numa.promised_nodes(c, self.node.topology) == {number} for c in pod.containers)
            )
            available = amounts["memory"].nano - promised * NANO
            amounts["memory"] = Quantity(max(0, available), amounts["memory"].format)
        return amounts


def schedulable_amounts(node: NodeView) -> Mapping[str, Quantity]:
    """Amounts that the scheduler may hand out of a node: allocatable less the node reservation."""
    return node.once(
        schedulable_amounts,
        lambda: reservation.trim_allocatable(allocatable=node.node.allocatable, written=node.reservation),
    )


def host_ports(pod: PodView) -> Iterable[Port]:
    """Ports the pod takes on the node itself."""
    for container in (*(pod.object.spec.containers or ()), *(pod.object.spec.init_containers or ())):
        for port in container.ports or ():
            if port.host_port:
                address = "" if port.host_ip in (None, "0.0.0.0", "::") else str(port.host_ip)
                yield port.protocol or "TCP", port.host_port, address


def clashes(port: Port, used: frozenset[Port]) -> bool:
    """Tell whether the port is taken. A port on all addresses clashes with the same port on any."""
    protocol, number, address = port
    same = [other for p, n, other in used if (p, n) == (protocol, number)]
    return any(not address or not other or address == other for other in same)
