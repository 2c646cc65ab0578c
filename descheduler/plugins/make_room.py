"""Pods move so that one which waits for a node fits: the fewest and cheapest moves, all of them or none.

For each pod that the scheduler could not place, the most important first, the moves are looked for by which it would
fit: also a move that makes room for another move, and by NUMA node where promises ask for it. A pod moves only where it
has a place, never for a less important one, and only as guards, budgets and limits allow. By default it only reports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from descheduler.arguments.common import PodChoice
from descheduler.framework import Conversation, Finding, Handle, Note, PodView, Rooms, Together, View
from koordlite.model import duration
from koordlite.model.settings import bounded, duration_text

NAME = "MakeRoom"
POINT = "deschedule"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PodChoice):
    """Arguments of `MakeRoom`. `namespaces` and `labelSelector` choose the pods that room is made for."""

    min_pending: str = duration_text("2m")
    """Only for pods that have waited so long."""
    min_priority: int | None = None
    """Only for pods of this priority or above; null: any."""
    max_moves: int = bounded(3, ge=1, le=5)
    """Maximum number of pods that move for one."""
    max_pods: int = bounded(5, ge=1)
    """Maximum number of pods that room is made for in one cycle."""
    evict: bool = False
    """Let pods go; false only reports which ones would."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """The moves for each pod that waits, and a note on each."""
    waiting = sorted(_waiting(view, config), key=lambda pod: (-(pod.pod.priority or 0), pod.started or 0, pod.key))
    for pod in waiting[: config.max_pods]:
        rooms = handle.rooms(pod, config.max_moves)
        best = rooms.best
        if best is None:
            yield Note(reason="NoRoomCanBeMade", text=f"{pod.key} waits for a node: {_why_not(rooms, config)}")
        elif best.moves:
            moves = ", ".join(f"{one.key} from {one.node} to {home}" for one, home in best.moves)
            sure = "" if rooms.exact else "; there may be fewer or cheaper moves"
            yield Note(node=best.node, reason="RoomCanBeMade", text=f"{pod.key} would fit after: {moves}{sure}")
            findings = tuple(_finding(one, home, pod, best.node, config) for one, home in best.moves)
            homes = tuple(home for _, home in best.moves)
            yield Together(findings=findings, homes=homes, waiting=pod, node=best.node)
    if len(waiting) > config.max_pods:
        text = f"{len(waiting) - config.max_pods} more pods wait for a node: maxPods is {config.max_pods}"
        yield Note(reason="MorePodsWait", text=text)


def _waiting(view: View, config: Config) -> Iterator[PodView]:
    """Pods that the scheduler looked at and could not place."""
    least = duration.seconds(config.min_pending)
    for pod in view.unbound:
        age, value = view.age(pod), pod.pod
        refused = any(
            (one.type, one.status, one.reason) == ("PodScheduled", "False", "Unschedulable")
            for one in pod.object.status.conditions or ()
        )
        important = config.min_priority is None or (value.priority or 0) >= config.min_priority
        if not refused or not important or pod.node or value.deleting or age is None or age < least:
            continue
        if config.namespaces.chosen(value.namespace) and (
            config.label_selector is None or config.label_selector.matches(value.labels)
        ):
            yield pod


def _why_not(rooms: Rooms[PodView], config: Config) -> str:
    counts = sorted(rooms.why_not.items(), key=lambda item: (-item[1], item[0]))
    why = "; ".join(f"{count} × {text}" for text, count in counts) or "no node would take it, if it were empty"
    return why if rooms.exact else f"{why}; not all moves up to {config.max_moves} were tried"


def _finding(pod: PodView, home: str, waiting: PodView, node: str, config: Config) -> Finding:
    return Finding(
        pod=pod.uid,
        reason="MakesRoom",
        severity="hard" if config.evict else "exposed",
        promise=f"{waiting.key}, of priority {waiting.pod.priority or 0}, waits for a node",
        fact=f"it would fit on {node} if this pod were on {home}",
        cure=f"it leaves, and its successor fits on {home}" if config.evict else "evict of MakeRoom is off: it stays",
        evidence={"waiting": waiting.key, "node": node, "home": home},
        home="elsewhere",
    )
