"""Pieces that explanations share: a decision with its numbers, our last write of a place, and who else wrote there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.report import units, view
from koordlite.report.history import DecisionEvent, ForeignWrites, Remembered, Write
from koordlite.report.json import run_report
from koordlite.report.sentence import headline, terms
from koordlite.report.tick import Tick

RHYTHMS = (
    (60.0, "kubelet sets up its QoS groups at this interval"),
    (10.0, "kubelet's CPU manager corrects sets at this interval"),
)
"""Seconds between writes by which others are known: kubelet's QoS container manager, and cpuManagerReconcilePeriod."""
_TOLERANCE = 0.1


def section(title: str, found: Sequence[Decision], otherwise: str) -> Iterator[str]:
    """A heading and the decisions under it, each with its numbers."""
    yield f"\n{title}:"
    if not found:
        yield f"  {otherwise}"
    for decision in found:
        yield from with_numbers(decision)


def with_numbers(decision: Decision) -> Iterator[str]:
    """A decision in one line, its evidence below."""
    yield f"  {one_line(decision)}"
    yield from (f"      {label}: {value}" for label, value in terms(decision))


def one_line(decision: Decision) -> str:
    """Subject, verdict, reason, sentence and whose decision it is."""
    return f"{headline(decision)}{f' [{decision.strategy}]' if decision.strategy else ''}"


def changed(events: Iterable[DecisionEvent]) -> Iterator[str]:
    """The events as lines, in their order."""
    yield from (f"  {units.when(event.time, event.wall)}  {headline(event.decision)}" for event in events)


def written(write: Write) -> Iterator[str]:
    """Our last write of a place, and why it was made."""
    outcome = "" if write.step.ok else f", refused: {printable.one_line(write.step.error)}"
    by = f", set {write.step.origin}" if write.step.origin else ""
    yield f"last write at {units.when(write.time, write.wall)}: {printable.shortened(write.step.value)}{by}{outcome}"
    if write.cause:
        yield f"because of {one_line(write.cause)}"


def others(found: ForeignWrites, tick: Tick) -> str:
    """Frequency of another program's writes to a place, and which program that suggests."""
    times = "once" if found.count == 1 else f"{found.count} times"
    wall = tick.wall and tick.wall - tick.time + found.times[-1]
    last = f"the last time at {units.when(found.times[-1], wall)}: {printable.shortened(found.last.found)}"
    ours = printable.shortened(found.last.ours)
    return f"changed by someone else {times}, {last} where ours was {ours}{_rhythm(found)}"


def about_place(place: Place, tick: Tick, past: Remembered) -> Iterator[str]:
    """All that is known of one place's writes, oldest concern first."""
    if place in past.writes:
        yield from written(past.writes[place])
    if place in past.foreign:
        yield others(past.foreign[place], tick)
    for found in tick.troubles:
        if found.place == place:
            yield from view.trouble(found, with_foreign=False)


def place_document(place: Place, tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    write, other = past.writes.get(place), past.foreign.get(place)
    return {
        "place": str(place),
        "lastWrite": _write_document(write) if write else None,
        "changedByOthers": {**run_report.fields(other), "secondsApart": other.seconds_apart} if other else None,
        "trouble": next((run_report.fields(found) for found in tick.troubles if found.place == place), None),
    }


def _write_document(write: Write) -> dict[str, Any]:
    cause = run_report.decided(write.cause) if write.cause else None
    return {"time": write.time, "wall": write.wall, **run_report.fields(write.step), "cause": cause}


def _rhythm(found: ForeignWrites) -> str:
    apart = found.seconds_apart
    if apart is None:
        return ""
    known = (who for seconds, who in RHYTHMS if abs(apart - seconds) <= seconds * _TOLERANCE)
    return f", about {apart:.0f} s apart{''.join(f': {who}' for who in known)}"
