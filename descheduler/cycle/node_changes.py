"""What a plan does to the nodes it touches: pods and requests before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from descheduler.cycle import zone_changes
from descheduler.fit.free_capacity import Room
from descheduler.fit.search import Rooms
from descheduler.framework import View
from descheduler.plan.outcome import Load, NodeChange, Outcome
from koordlite.model.quantity import NANO


def changes(view: View, decided: Mapping[str, Outcome], rooms: Rooms) -> Iterator[NodeChange]:
    """The nodes that lose a pod, get one, or keep one that a plugin named; by name."""
    misplaced = [o for o in decided.values() if o.main.severity == "hard" and not o.pod.pod.finished]
    wrong = Counter(o.pod.node for o in misplaced)
    stays = Counter(o.pod.node for o in misplaced if o.verdict == "spare")
    touched = {o.pod.node for o in decided.values()} | {o.target for o in decided.values() if o.target}
    concerned = {o.pod.node for o in decided.values() if o.pod.containers}
    concerned |= {o.target for o in decided.values() if o.target and o.pod.containers}
    for name in sorted(touched):
        before, after = Room.of(view.nodes[name]), rooms.by_node[name]
        cpu, memory = (after.allocatable.get(resource) for resource in ("cpu", "memory"))
        yield NodeChange(
            node=name,
            cpu_milli=cpu.milli if cpu else 0,
            memory=memory.value if memory else 0,
            before=_load(before, wrong[name]),
            after=_load(after, stays[name]),
            zones=zone_changes.zones(before, after) if name in concerned else (),
        )


def _load(room: Room, wrong: int) -> Load:
    return Load(
        pods=room.count,
        cpu_milli=room.requested.get("cpu", 0) // 10**6,
        memory=room.requested.get("memory", 0) // NANO,
        wrong=wrong,
    )
