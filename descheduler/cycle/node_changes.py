"""Effects of a plan on nodes and their NUMA nodes: pods, requests, CPUs and memory, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from descheduler.fit.free_capacity import FreeCapacity
from descheduler.fit.search import FitSearch
from descheduler.framework import View
from descheduler.plan import Load, NodeChange, Outcome, ZoneChange, ZoneLoad
from koordlite.model.quantity import NANO, ZERO
from koordlite.model.topology import NUMANode


def changes(view: View, decided: Mapping[str, Outcome], fit: FitSearch) -> Iterator[NodeChange]:
    """The nodes that lose a pod, get one, or keep one that a plugin named; by name."""
    wrong, stays, touched, concerned = Counter[str](), Counter[str](), set[str](), set[str]()
    for outcome in decided.values():
        pod = outcome.pod
        touched.add(pod.node)
        touched.add(outcome.target)
        if pod.containers:
            concerned.update((pod.node, outcome.target))
        if outcome.main.severity == "hard" and not pod.pod.finished:
            wrong[pod.node] += 1
            stays[pod.node] += outcome.verdict == "kept"
    touched.discard("")  # No target.
    last: dict[str, tuple[tuple[object, ...], NodeChange]] = {}
    if view.cache is not None:
        last = view.cache.setdefault(NodeChange, last)
    for name in last.keys() - touched:
        del last[name]
    for name in sorted(touched):
        before, after = FreeCapacity.of(view.nodes[name]), fit.capacity(name)
        counts = wrong[name], stays[name], name in concerned
        inputs, change = last.get(name, ((), None))
        if change is None or inputs[2:] != counts or inputs[0] is not before or inputs[1] is not after:
            cpu, memory = (after.allocatable.get(resource) for resource in ("cpu", "memory"))
            change = NodeChange(
                node=name,
                cpu_milli=cpu.milli if cpu else 0,
                memory=memory.value if memory else 0,
                before=_load(before, wrong[name]),
                after=_load(after, stays[name]),
                zones=tuple(_zone_changes(before, after)) if name in concerned else (),
            )
            last[name] = (before, after, *counts), change
        yield change


def _load(capacity: FreeCapacity, wrong: int) -> Load:
    return Load(
        pods=capacity.count,
        cpu_milli=capacity.requested.get("cpu", 0) // 10**6,
        memory=capacity.requested.get("memory", 0) // NANO,
        wrong=wrong,
    )


def _zone_changes(before: FreeCapacity, after: FreeCapacity) -> Iterator[ZoneChange]:
    """The change of each NUMA node; none where nobody reports them."""
    for zone in before.node.topology.nodes:
        reserved = zone.cpus & before.node.reserved.cpus
        yield ZoneChange(
            zone=zone.id,
            cpus=len(zone.cpus),
            reserved=len(reserved),
            before=_zone_load(before, zone),
            after=_zone_load(after, zone),
        )


def _zone_load(capacity: FreeCapacity, zone: NUMANode) -> ZoneLoad:
    """Successors count with what was booked for them: which CPUs they will get, nobody knows yet."""
    usable = zone.cpus - capacity.node.reserved.cpus
    pinned = capacity.pinned & usable
    booked = [amounts for _, bookings in capacity.arrivals for number, amounts in bookings if number == zone.id]
    exclusive = len(pinned) + sum(amounts.get("cpu", ZERO).value for amounts in booked)
    reported = (c.memory_by_numa.get(zone.id, 0) for pod in capacity.residents for c in pod.containers)
    return ZoneLoad(
        exclusive=exclusive,
        shared=max(0, len(usable) - exclusive),
        memory=sum(reported) + sum(amounts.get("memory", ZERO).value for amounts in booked),
    )
