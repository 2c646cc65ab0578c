"""`koordlite explain file PATH`: which decision is behind a file, our last write of it, and who else wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.report.explain import pieces, places
from koordlite.report.json import run_report
from koordlite.report.past import Remembered
from koordlite.report.tick import Tick

SUBJECT = "file "
"""Prefix of such a question."""
MAX_PLACES = 20
MAX_KNOWN = 8


def text(path: str, tick: Tick, past: Remembered) -> str:
    """The answer as lines; ValueError when no path is given, or one of something that is not there."""
    found, groups = matching(path, tick, past), places.groups(tick.picture)
    shown = [(place, places.pod_of(place, groups)) for place in found[:MAX_PLACES]]
    lines = [line for place, pod in shown for line in (*_about(place, pod, tick, past), "")]
    if len(found) > MAX_PLACES:
        lines.append(f"and {len(found) - MAX_PLACES} more files; name a group or a pod: explain file POD/FILE")
    return "\n".join(lines or _nothing(path, tick, past)).rstrip("\n") + "\n"


def document(path: str, tick: Tick, past: Remembered) -> list[dict[str, Any]]:
    """The same as plain values, every file."""
    groups = places.groups(tick.picture)
    return [
        {
            **pieces.place_document(place, tick, past),
            "pod": places.pod_of(place, groups),
            "decisions": [run_report.decided(decision) for decision in behind(place, tick, past)],
        }
        for place in matching(path, tick, past)
    ]


def matching(path: str, tick: Tick, past: Remembered) -> list[Place]:
    """The places that `path` means, those that another program wrote or that were refused first.

    ValueError when nothing on the node has the name that `path` calls it by.
    """
    if not path:
        raise ValueError("name a file: explain file PATH")
    fought = {*past.foreign, *(found.place for found in tick.troubles)}
    groups = places.groups(tick.picture)
    spelled = (path, *places.spellings(path, tick.picture))
    found = [p for p in known(tick, past) if any(places.concerns(each, p, groups) for each in spelled)]
    if not found and tick.picture:
        places.check(path, tick.picture)
    return sorted(found, key=lambda place: (place not in fought, place))


def known(tick: Tick, past: Remembered) -> set[Place]:
    """Every place some decision asks for, or that was written or fought over."""
    asked = {change.place for decision in tick.decisions for change in decision.changes}
    return {*asked, *past.writes, *past.foreign, *(found.place for found in tick.troubles)}


def behind(place: Place, tick: Tick, past: Remembered) -> list[Decision]:
    """The decisions of this tick that ask for the place, else the present ones of whoever asked for the last write."""
    asking = [d for d in tick.decisions if any(change.place == place for change in d.changes)]
    cause = past.writes[place].cause if place in past.writes else None
    if asking or cause is None:
        return asking
    return [d for d in tick.decisions if (d.strategy, d.subject) == (cause.strategy, cause.subject)]


def _about(place: Place, pod: str, tick: Tick, past: Remembered) -> Iterator[str]:
    yield f"{place}{f'  (pod {pod})' if pod else ''}"
    decisions = behind(place, tick, past)
    for decision in decisions:
        yield f"  at present: {pieces.one_line(decision)}"
    if not decisions:
        yield "  at present no strategy asks for it"
    history = list(pieces.about_place(place, tick, past))
    yield from (f"  {line}" for line in history or ["not written in this run"])


def _nothing(path: str, tick: Tick, past: Remembered) -> Sequence[str]:
    """Also an answer: then another program wrote it."""
    return [
        f"{path}: no strategy asks for it and this agent has not written it in this run; "
        "if it changed, another program changed it",
        *_some(known(tick, past)),
    ]


def _some(found: Iterable[Place]) -> Iterator[str]:
    listed = sorted(map(str, found))
    if listed:
        more = f" and {len(listed) - MAX_KNOWN} more" if len(listed) > MAX_KNOWN else ""
        yield f"files and objects this agent deals with: {', '.join(listed[:MAX_KNOWN])}{more}"
