"""Pieces that explanations share: a decision with its numbers, our last write of a place, and who else wrote there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.report import units, view
from koordlite.report.history import DecisionEvent, Remembered, Write
from koordlite.report.json import run_report
from koordlite.report.sentence import headline, terms
from koordlite.report.tick import Tick

RHYTHMS = (
    (60.0, "kubelet sets up its QoS groups at this interval"),
    (10.0, "kubelet's CPU manager corrects sets at this interval"),
)
"""Seconds between writes by which others are known: kubelet's QoS container manager, and cpuManagerReconcilePeriod."""
_TOLERANCE = 0.1


class Answer(msgspec.Struct):
    """Lines for people, and the same facts as plain values for programs."""

    lines: list[str]
    document: dict[str, Any]

    def add_decisions(self, key: str, title: str, decisions: Sequence[Decision], otherwise: str) -> None:
        """Add a section, and its decisions under `key`."""
        self.lines += section(title, decisions, otherwise)
        self.document[key] = documents(decisions)

    def add_places(
        self, key: str, title: str, listed: Sequence[Place], tick: Tick, past: Remembered, *, indent: int = 4
    ) -> None:
        """Add a heading and the places under it, each with its writes below, nothing without any; and all under
        `key`."""
        self.lines += places(title, listed, tick, past, indent)
        self.document[key] = [place_document(place, tick, past) for place in listed]

    def show(self, output: str) -> str:
        """The answer as text, or as JSON where `output` says so."""
        return run_report.encode(self.document).decode() if output == "json" else "\n".join([*self.lines, ""])


def documents(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
    """The decisions as plain values."""
    return [run_report.decided(decision) for decision in decisions]


def section(title: str, decisions: Sequence[Decision], otherwise: str) -> Iterator[str]:
    """A heading and the decisions under it, each in one line with its numbers below; `otherwise` without any."""
    yield f"\n{title}:"
    if not decisions:
        yield f"  {otherwise}"
    for decision in decisions:
        yield f"  {one_line(decision)}"
        yield from (f"      {label}: {value}" for label, value in terms(decision))


def one_line(decision: Decision) -> str:
    """Subject, verdict, reason, sentence and whose decision it is."""
    return f"{headline(decision)}{f' [{decision.strategy}]' if decision.strategy else ''}"


def changed(title: str, events: Sequence[DecisionEvent]) -> Iterator[str]:
    """A heading and the events as lines, in their order; nothing without any."""
    if events:
        yield f"\n{title}"
    yield from (f"  {units.when(event.time, event.wall)}  {headline(event.decision)}" for event in events)


def places(title: str, listed: Sequence[Place], tick: Tick, past: Remembered, indent: int = 4) -> Iterator[str]:
    """A heading and the places under it, each with its writes below; nothing without any."""
    if listed:
        yield f"\n{title}"
    for place in listed:
        yield f"  {place}"
        yield from (f"{'':{indent}}{line}" for line in about_place(place, tick, past))


def written(write: Write) -> Iterator[str]:
    """Our last write of a place, and why it was made."""
    outcome = "" if write.step.ok else f", refused: {printable.one_line(write.step.error)}"
    by = f", set {write.step.origin}" if write.step.origin else ""
    yield f"last write at {units.when(write.time, write.wall)}: {printable.shortened(write.step.value)}{by}{outcome}"
    if write.cause:
        yield f"because of {one_line(write.cause)}"


def about_place(place: Place, tick: Tick, past: Remembered) -> Iterator[str]:
    """All that is known of one place's writes, oldest concern first: our last one, how often another program wrote
    there and which one that suggests, and what was refused."""
    if place in past.writes:
        yield from written(past.writes[place])
    if place in past.foreign:
        foreign = past.foreign[place]
        times = "once" if foreign.count == 1 else f"{foreign.count} times"
        last = units.when(foreign.times[-1], tick.wall and tick.wall - tick.time + foreign.times[-1])
        theirs, ours = printable.shortened(foreign.last.found), printable.shortened(foreign.last.ours)
        rhythm, apart = "", foreign.seconds_apart
        if apart is not None:
            programs = (who for seconds, who in RHYTHMS if abs(apart - seconds) <= seconds * _TOLERANCE)
            rhythm = f", about {apart:.0f} s apart{''.join(f': {who}' for who in programs)}"
        yield f"changed by someone else {times}, the last time at {last}: {theirs} where ours was {ours}{rhythm}"
    for trouble in tick.troubles:
        if trouble.place == place:
            yield from view.trouble(trouble, with_foreign=False)


def place_document(place: Place, tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    write, foreign = past.writes.get(place), past.foreign.get(place)
    return {
        "place": str(place),
        "lastWrite": write
        and {
            "time": write.time,
            "wall": write.wall,
            **run_report.fields(write.step),
            "cause": write.cause and run_report.decided(write.cause),
        },
        "changedByOthers": foreign and {**run_report.fields(foreign), "secondsApart": foreign.seconds_apart},
        "trouble": next((run_report.fields(trouble) for trouble in tick.troubles if trouble.place == place), None),
    }
