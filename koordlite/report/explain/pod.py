"""`koordlite explain pod NAME`: everything that was decided about one pod, and what may yet be done to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from koordlite.changes import eviction
from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.report.explain import file, pieces
from koordlite.report.history import NOTHING, DecisionEvent, Remembered
from koordlite.report.json import run_report
from koordlite.report.tick import UNSEEN, Tick

SUBJECT = "pod "
"""Prefix of such a question."""
BEST_EFFORT = "besteffort"
_EVICT = "evict"


def decisions(name: str, found: Iterable[Decision]) -> list[Decision]:
    """Decisions that name the pod `name`, or `namespace/name`: as their subject, or in a place they change."""
    return [decision for decision in found if _names(name, decision)]


def text(name: str, tick: Tick, past: Remembered = NOTHING) -> str:
    """Explain why the pod was evicted, is held back, or stays; ValueError when the name is empty, or no pod's."""
    own = _own(name, tick, past)
    return "\n".join(
        [
            f"pod {name}",
            *pieces.section("decided about it", own, "nothing: no strategy acts on it at present"),
            *pieces.section("evictions", _rules(tick.decisions), "no strategy that evicts pods is on"),
            *pieces.section("best-effort pods as a whole", _best_effort(tick.decisions), "nothing was decided"),
            *_files(name, tick, past),
            *earlier(name, past.events),
            "",
        ]
    )


def document(name: str, tick: Tick, past: Remembered = NOTHING) -> dict[str, Any]:
    """The same as plain values, by section."""
    parts = {
        "pod": _own(name, tick, past),
        "evictions": _rules(tick.decisions),
        "bestEffort": _best_effort(tick.decisions),
    }
    return {
        "subject": name,
        **{part: [run_report.decided(decision) for decision in decisions] for part, decisions in parts.items()},
        "files": [pieces.place_document(place, tick, past) for place in _written(name, tick, past)],
    }


def _own(name: str, tick: Tick, past: Remembered) -> list[Decision]:
    """Decisions about the pod. ValueError when there is no such pod, and none is remembered."""
    if not name:
        raise ValueError("name a pod: explain pod NAME")
    own, snapshot = decisions(name, tick.decisions), tick.snapshot
    if own or snapshot is UNSEEN or any(f"/{pod.key}".endswith(f"/{name}") for pod in snapshot.pods):
        return own
    if not _written(name, tick, past) and not any(earlier(name, past.events)):
        here = file.pod_names(snapshot)
        raise ValueError(f"there is no pod {name!r} on this node, and none is remembered; its pods: {here}")
    return own


def _names(name: str, decision: Decision) -> bool:
    evicted = (change.place for change in decision.changes if change.place.kind is eviction.PLACE)
    named = [decision.name] if decision.kind == "pod" else []
    return any(f"/{name}/" in f"/{each}/" for each in (*named, *evicted))


def _rules(found: Sequence[Decision]) -> list[Decision]:
    return [d for d in found if d.kind == _EVICT]


def _best_effort(found: Sequence[Decision]) -> list[Decision]:
    return [d for d in found if d.kind == BEST_EFFORT]


def _written(name: str, tick: Tick, past: Remembered) -> list[Place]:
    """Files of the pod that were written in this run, or fought over; by its cgroup, or by whose decision it was."""
    groups = file.pod_groups(tick.snapshot)
    mine = {pod for pod in groups if f"/{pod}".endswith(f"/{name}")}
    wrote = {place for place, write in past.writes.items() if write.cause and _names(name, write.cause)}
    theirs = {place for place in file.known(tick, past) if file.pod_of(place, groups) in mine}
    return sorted(wrote | {place for place in theirs if place in past.writes or place in past.foreign})


def _files(name: str, tick: Tick, past: Remembered) -> Iterator[str]:
    found = _written(name, tick, past)
    if found:
        yield "\nits files:"
    for place in found:
        yield f"  {place}"
        yield from (f"      {line}" for line in pieces.about_place(place, tick, past))


def earlier(name: str, events: Iterable[DecisionEvent]) -> Iterator[str]:
    """The lines about changes that `events` remember of the pod."""
    found = [event for event in events if _names(name, event.decision)]
    if found:
        yield "\nearlier:"
        yield from pieces.changed(found)
