"""`koordlite explain node`: the whole node in sentences, and what to ask next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koordlite import strategies
from koordlite.model.decision import Decision
from koordlite.report import view
from koordlite.report.explain import pieces
from koordlite.report.json import run_report
from koordlite.report.past import Remembered
from koordlite.report.sentence import headline
from koordlite.report.tick import Tick

SUBJECT = "node"
NEWEST = 8


def text(tick: Tick, past: Remembered) -> str:
    """The answer as lines."""
    lines = [
        f"{view.node(tick)}: {tick.status}{view.because(tick)}",
        *(line for each in strategies.discover() if each.overview for line in _part(each.name, *each.overview, tick)),
        *_changes(past),
        *_fights(tick, past),
        "\nfurther: explain pod NAME | cpu N | file PATH | config | any strategy, reason or subject",
    ]
    return "\n".join(lines) + "\n"


def document(tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "node": tick.node,
        "status": tick.status,
        "because": tick.because,
        "decisions": [
            run_report.decided(d) for each in strategies.discover() if each.overview for d in _of(each.name, tick)
        ],
        "newest": [{"time": e.time, **run_report.decided(e.decision)} for e in list(past.events)[-NEWEST:]],
        "changedByOthers": [pieces.place_document(place, tick, past) for place in past.foreign],
    }


def _of(strategy: str, tick: Tick) -> list[Decision]:
    """Decisions of a strategy about the node as a whole."""
    return [d for d in tick.decisions if d.strategy == strategy and d.kind != "pod"]


def _part(strategy: str, title: str, ask: str, tick: Tick) -> Iterator[str]:
    found = _of(strategy, tick)
    if not found:
        return
    yield f"\n{title} [{strategy}, {tick.modes.get(strategy, 'observe')}]"
    for decision in found:
        yield f"  {headline(decision)}"
    yield f"  → explain {ask}"


def _changes(past: Remembered) -> Iterator[str]:
    if past.events:
        yield "\nrecent decisions, the newest last"
        yield from pieces.changed(list(past.events)[-NEWEST:])


def _fights(tick: Tick, past: Remembered) -> Iterator[str]:
    places = view.disputed(tick, past)
    if places:
        yield "\ndisputed files"
    for place in places[:NEWEST]:
        yield f"  {place}"
        yield from (f"    {line}" for line in pieces.about_place(place, tick, past))
