"""What a plan does to NUMA nodes: whose the CPUs are, and how much memory lies there, before and after."""

from __future__ import annotations

from collections.abc import Iterator

from descheduler.fit.free_capacity import Room
from descheduler.plan.outcome import ZoneChange, ZoneLoad
from koordlite.model import cpuset
from koordlite.model.quantity import Quantity
from koordlite.model.topology import NUMANode

_ZERO = Quantity(0)


def zones(before: Room, after: Room) -> tuple[ZoneChange, ...]:
    """One for each NUMA node; empty where nobody reports them."""
    return tuple(_changes(before, after))


def _changes(before: Room, after: Room) -> Iterator[ZoneChange]:
    for zone in before.node.topology.nodes:
        reserved = zone.cpus & before.node.reserved.known
        yield ZoneChange(
            zone=zone.id,
            cpus=len(zone.cpus),
            reserved=len(reserved),
            before=_load(before, zone),
            after=_load(after, zone),
        )


def _load(room: Room, zone: NUMANode) -> ZoneLoad:
    """Successors count with what was booked for them: which CPUs they will get, nobody knows yet."""
    usable = zone.cpus - room.node.reserved.known
    held = cpuset.union(pod.pinned for pod in room.residents) & usable
    booked = [amounts for _, bookings in room.arrivals for number, amounts in bookings if number == zone.id]
    exclusive = len(held) + sum(amounts.get("cpu", _ZERO).value for amounts in booked)
    reported = (c.memory_by_numa.get(zone.id, 0) for pod in room.residents for c in pod.containers)
    return ZoneLoad(
        exclusive=exclusive,
        shared=max(0, len(usable) - exclusive),
        memory=sum(reported) + sum(amounts.get("memory", _ZERO).value for amounts in booked),
    )
