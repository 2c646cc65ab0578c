"""`koordlite explain pod NAME`: everything that was decided about one pod, and what may yet be done to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from koordlite.model.decision import Decision
from koordlite.report import units
from koordlite.report.history import DecisionEvent
from koordlite.report.sentence import headline, terms
from koordlite.report.tick import Tick

SUBJECT = "pod "
"""How such a question begins."""
BEST_EFFORT = "besteffort"
_EVICT = "evict"


def decisions(name: str, found: Iterable[Decision]) -> list[Decision]:
    """Decisions that name the pod `name`, or `namespace/name`: as their subject, or in a place they change."""
    return [decision for decision in found if _names(name, decision)]


def text(name: str, tick: Tick, events: Iterable[DecisionEvent] = ()) -> str:
    """Why the pod was evicted, is held back, or stays; ValueError when the name is empty."""
    if not name:
        raise ValueError("name a pod: explain pod NAME")
    own = decisions(name, tick.decisions)
    return "\n".join(
        [
            f"pod {name}",
            *_section("decided about it", own, "nothing: no rule has anything to do with it at present"),
            *_section("evictions", _rules(tick.decisions), "no strategy that evicts pods is at work"),
            *_section("best-effort pods as a whole", _best_effort(tick.decisions), "nothing was decided"),
            *_earlier(name, events),
            "",
        ]
    )


def document(name: str, tick: Tick) -> dict[str, list[Decision]]:
    """The same as decisions, by section."""
    return {
        "pod": decisions(name, tick.decisions),
        "evictions": _rules(tick.decisions),
        "bestEffort": _best_effort(tick.decisions),
    }


def _names(name: str, decision: Decision) -> bool:
    places = [decision.subject, *(change.place for change in decision.changes)]
    wanted = f"/{name}/"
    return any(wanted in f"/{place}/" for place in places if place.startswith("pod/"))


def _rules(found: Sequence[Decision]) -> list[Decision]:
    return [d for d in found if d.subject == _EVICT or d.subject.startswith(f"{_EVICT}/")]


def _best_effort(found: Sequence[Decision]) -> list[Decision]:
    return [d for d in found if d.subject.split("/")[0] == BEST_EFFORT]


def _section(title: str, found: Sequence[Decision], otherwise: str) -> Iterator[str]:
    yield f"\n{title}:"
    if not found:
        yield f"  {otherwise}"
    for decision in found:
        by = f" [{decision.strategy}]" if decision.strategy else ""
        yield f"  {headline(decision)}{by}"
        yield from (f"      {label}: {value}" for label, value in terms(decision))


def _earlier(name: str, events: Iterable[DecisionEvent]) -> Iterator[str]:
    found = [event for event in events if _names(name, event.decision)]
    if found:
        yield "\nearlier:"
    for event in found:
        yield f"  {units.clock(event.time)}  {headline(event.decision)}"
