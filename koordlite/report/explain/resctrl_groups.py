"""`koordlite explain resctrl`: what each group has, why, what it uses, and how its writes went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.report import present, units
from koordlite.report.explain import pieces
from koordlite.report.json import run_report
from koordlite.report.past import Remembered
from koordlite.report.present import OwnedUse
from koordlite.report.tick import Tick

SUBJECT = "resctrl"


def text(tick: Tick, past: Remembered) -> str:
    """The answer as lines; ValueError when the strategy is off and the machine has no groups."""
    decisions = _decisions(tick)
    lines = [
        "groups as they are",
        *(f"  {group:<8} {line}" for group, line in tick.schemata.items()),
        *([] if tick.schemata else ["  none: this machine has no resctrl, or it is not mounted"]),
        *_uses(tick),
        *pieces.section("decided", decisions, "nothing: the strategy is off"),
        *_places(tick, past),
    ]
    return "\n".join(lines) + "\n"


def document(tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "schemata": dict(tick.schemata),
        "use": [run_report.fields(use) for use in tick.cache_use],
        "decisions": [run_report.decided(decision) for decision in _decisions(tick)],
        "places": [pieces.place_document(place, tick, past) for place in _written(tick, past)],
    }


def _decisions(tick: Tick) -> list[Decision]:
    return [decision for decision in tick.decisions if decision.strategy == SUBJECT]


def _uses(tick: Tick) -> Iterator[str]:
    if tick.cache_use:
        yield "\nused"
        yield from (f"  {_use(use)}" for use in tick.cache_use)


def _use(owned: OwnedUse) -> str:
    who = f"pod {owned.namespace}/{owned.pod}" if owned.pod else f"class {owned.qos}"
    occupied = owned.use.occupancy_bytes
    parts = [f"{units.size(occupied)} of cache"] if occupied is not None else []
    parts += [f"{word} {units.size(rate)}/s" for word, rate in present.bandwidths(owned.use)]
    return f"{who}, cache {owned.cache}: {', '.join(parts) or 'not counted by this hardware'}"


def _written(tick: Tick, past: Remembered) -> list[Place]:
    troubles = (found.place for found in tick.troubles)
    return sorted({place for place in (*past.writes, *past.foreign, *troubles) if place.kind.is_resctrl})


def _places(tick: Tick, past: Remembered) -> Iterator[str]:
    places = _written(tick, past)
    if places:
        yield "\nwritten"
    for place in places:
        yield f"  {place}"
        yield from (f"    {line}" for line in pieces.about_place(place, tick, past))
