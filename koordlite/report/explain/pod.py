"""`koordlite explain pod NAME`: everything that was decided about one pod, and what may yet be done to it."""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.changes import eviction
from koordlite.model.decision import Decision
from koordlite.model.snapshot import pod_names
from koordlite.report.explain import file, pieces
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import NOTHING, DecisionEvent, Remembered
from koordlite.report.tick import UNSEEN, Tick


def answer(name: str, tick: Tick, past: Remembered = NOTHING) -> Answer:
    """Explain why the pod was evicted, is held back, or stays. ValueError when the name is empty, or there is no such
    pod and none is remembered."""
    if not name:
        raise ValueError("name a pod: explain pod NAME")
    own, snapshot, earlier = decisions(name, tick.decisions), tick.snapshot, events(name, past.events)
    # Its files that were written in this run, or fought over: by its cgroup, or by whose decision it was.
    groups = file.pod_groups(snapshot)
    pods = {pod for pod in groups if f"/{pod}".endswith(f"/{name}")}
    files = {place for place, write in past.writes.items() if write.cause and _names(name, write.cause)}
    files |= {place for place in (*past.writes, *past.foreign) if file.pod_of(place, groups) in pods}
    places = sorted(files)
    is_present = snapshot is UNSEEN or any(f"/{pod.key}".endswith(f"/{name}") for pod in snapshot.pods)
    if not (own or is_present or places or earlier):
        here = pod_names(snapshot)
        raise ValueError(f"there is no pod {name!r} on this node, and none is remembered; its pods: {here}")
    rules = [decision for decision in tick.decisions if decision.kind == "evict"]
    best_effort = [decision for decision in tick.decisions if decision.kind == "besteffort"]
    explanation = Answer([f"pod {name}"], {"subject": name})
    explanation.add_decisions("pod", "decided about it", own, "nothing: no strategy acts on it at present")
    explanation.add_decisions("evictions", "evictions", rules, "no strategy that evicts pods is on")
    explanation.add_decisions("bestEffort", "best-effort pods as a whole", best_effort, "nothing was decided")
    explanation.add_places("files", "its files:", places, tick, past, indent=6)
    explanation.lines += pieces.changed("earlier:", earlier)
    return explanation


def decisions(name: str, every: Iterable[Decision]) -> list[Decision]:
    """Decisions that name the pod `name`, or `namespace/name`: as their subject, or in a place they change."""
    return [decision for decision in every if _names(name, decision)]


def events(name: str, every: Iterable[DecisionEvent]) -> list[DecisionEvent]:
    """Changes of decisions that name the pod."""
    return [event for event in every if _names(name, event.decision)]


def _names(name: str, decision: Decision) -> bool:
    evicted = (change.place for change in decision.changes if change.place.kind is eviction.PLACE)
    own = [decision.name] if decision.kind == "pod" else []
    return any(f"/{name}/" in f"/{each}/" for each in (*own, *evicted))
