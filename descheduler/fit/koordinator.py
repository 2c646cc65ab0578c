"""Would Koordinator's scheduler place the pod on a node, and what would it get there?"""

from __future__ import annotations

from descheduler.fit.free_capacity import Booking, FreeCapacity
from descheduler.framework import PodView
from koordlite.model.quantity import Quantity
from koordlite.numa.koordinator import ask, schedule
from koordlite.numa.koordinator.node_report import NodeState
from koordlite.numa.koordinator.values import Allocation, Refusal


def concerned(pod: PodView, capacity: FreeCapacity) -> bool:
    """Koordinator's scheduler gave the pod its CPUs or NUMA nodes, and knows the CPUs of the node."""
    return bool(capacity.node.koordinator.machine.cpus) and any(c.source == "koordinator" for c in pod.containers)


def answer(pod: PodView, capacity: FreeCapacity) -> tuple[str, tuple[Booking, ...]]:
    """(why not, what the pod would take of each NUMA node): the scheduler's own rules and words.

    A pod that was promised one NUMA node does not fit where the scheduler would give it several.
    """
    found = _allocation(pod, state(capacity))
    if isinstance(found, Refusal):
        return f"Koordinator's scheduler would refuse it: {found}", ()
    bookings = () if found is None else _bookings(found, capacity)
    if pod.single_numa and len(bookings) > 1:
        several = ", ".join(str(zone) for zone, _ in bookings)
        return f"Koordinator's scheduler would give it NUMA nodes {several}, and one was promised", ()
    return "", bookings


def state(capacity: FreeCapacity) -> NodeState:
    """The node as the scheduler would see it: pods that the plan sends there hold what it would give them."""
    return capacity.koordinator.once("after arrivals", lambda: _after_arrivals(capacity))


def _after_arrivals(capacity: FreeCapacity) -> NodeState:
    current = capacity.koordinator
    for pod, _ in capacity.arrivals:
        found = _allocation(pod, current) if concerned(pod, capacity) else None
        if isinstance(found, Allocation):
            current = current.with_pod(found)
    return current


def _allocation(pod: PodView, current: NodeState) -> Allocation | Refusal | None:
    wanted = ask.of(pod.pod)
    return schedule.bind(wanted, current, uid=pod.uid) if isinstance(wanted, ask.PodAsk) else wanted


def _bookings(found: Allocation, capacity: FreeCapacity) -> tuple[Booking, ...]:
    """Amounts by NUMA node; where only CPUs were given, those of each."""
    if found.zones:
        return tuple(found.zones.items())
    split = {zone: len(cpus & found.cpus) for zone, cpus in capacity.node.koordinator.machine.by_node.items()}
    return tuple((zone, {"cpu": Quantity.of(count)}) for zone, count in sorted(split.items()) if count)
