"""The last minutes of a running agent as JSON, and back again: what `/recent` serves and `koordlite top` draws.

version    1
kind       "koordlite-recent"
rows       numbers of the last ticks: time, nodeCpu, prodCpu, beCpu, beLimit, beBudget, batchCpu, batchMemory,
           thresholdMilli
decisions  recent decisions, the newest last: time, wall, and the decision as in `/state`
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import msgspec

from koordlite import changes
from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.report.history import DecisionEvent, Row
from koordlite.report.json import run_report
from koordlite.report.past import Remembered
from koordlite.report.tick import Tick

MAX_EVENTS = 50
_ELSEWHERE = frozenset({"decisions", "slo", "watches", "picture"})
"""Parts of a tick that `/state` words in another way, or not at all."""
_HINTS = {name: hint for name, hint in get_type_hints(Tick).items() if name not in _ELSEWHERE}
_ROW = get_type_hints(Row)


def document(past: Remembered) -> dict[str, Any]:
    """What `/recent` serves."""
    events = list(past.events)[-MAX_EVENTS:]
    return {
        "version": run_report.VERSION,
        "kind": "koordlite-recent",
        "rows": [run_report.fields(row) for row in past.rows],
        "decisions": [{"time": e.time, "wall": e.wall, **run_report.decided(e.decision)} for e in events],
    }


def tick(state: Mapping[str, Any]) -> Tick:
    """The tick of a `/state` answer, without the changes of its decisions; ValueError when it is none of ours."""
    if (
        not isinstance(state, Mapping)
        or state.get("kind") != "koordlite-state"
        or state.get("version") != run_report.VERSION
    ):
        raise ValueError("this is no state of an agent of this version")
    read = _read(state, _HINTS)
    return dataclasses.replace(Tick(time=0.0), **read, decisions=tuple(map(_decision, state.get("decisions", ()))))


def rows(recent: Mapping[str, Any]) -> Sequence[Tick]:
    """The rows of a `/recent` answer as ticks that know only these numbers."""
    return [dataclasses.replace(Tick(time=0.0), **_read(row, _ROW)) for row in recent.get("rows", ())]


def events(recent: Mapping[str, Any]) -> Sequence[DecisionEvent]:
    """The decisions of a `/recent` answer."""
    found = recent.get("decisions", ())
    return [DecisionEvent(float(one["time"]), float(one["wall"]), _decision(one)) for one in found]


def _read(given: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `hints` that are given; msgspec says what is wrong with one, as a ValueError."""
    named = {_snake(name): value for name, value in given.items()}
    return {
        n: msgspec.convert(named[n], hint, str_keys=True, dec_hook=_place) for n, hint in hints.items() if n in named
    }


def _place(kind: type, text: Any) -> Any:
    """A place, which JSON holds as its text."""
    if kind is not Place or not isinstance(text, str):
        raise NotImplementedError
    return changes.parse(text)


def _decision(given: Mapping[str, Any]) -> Decision:
    return Decision(
        str(given["subject"]),
        given["verdict"],
        str(given["reason"]),
        dict(given.get("evidence", {})),
        strategy=str(given.get("strategy", "")),
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
