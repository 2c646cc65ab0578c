"""Rounds of the agent as reports get them, with whatever values a test is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.snapshot import Snapshot
from koordlite.report.node_figures import Figures
from koordlite.report.tick import Tick

_FIELDS = {field.name for field in dataclasses.fields(Tick)}
_OF_THE_PICTURE = {"slo", "ages", "watches", "node_percentiles"}
_FIGURES = {field.name for field in dataclasses.fields(Figures)} - {"time"}


def tick_with(tick: Tick, **values: Any) -> Tick:
    """`tick` with these values: fields of it, parts of its picture, figures, or what else follows from them."""
    settled: dict[str, Any] = dict(vars(tick).get("settled", {}))
    picture = {name: values.pop(name) for name in _OF_THE_PICTURE & values.keys()}
    figures = {name: values.pop(name) for name in _FIGURES & values.keys()}
    if "be_cpuset" in values:
        values["best_effort"] = CPUSet.parse(values.pop("be_cpuset"))
    snapshot = values.pop("snapshot", tick.snapshot)
    if "node_memory" in values:
        picture["usage"] = Usage(Use(figures.get("node_cpu", 0), values.pop("node_memory")), {}, {})
    fields = {name: values.pop(name) for name in _FIELDS & values.keys()}
    if picture:
        snapshot = dataclasses.replace(snapshot, **picture)
    changed = dataclasses.replace(tick, snapshot=snapshot, **fields)
    if figures or "figures" in settled:
        before = settled.get("figures", changed.figures)
        settled["figures"] = dataclasses.replace(before, time=changed.time, **figures)
    settled |= values
    vars(changed).update(settled, settled=settled)
    return changed


def tick_of(**values: Any) -> Tick:
    """A tick of nothing but these values, as in `tick_with`."""
    return tick_with(Tick(), **values)


def tick_built(
    picture: Snapshot, decisions: Sequence[Decision], *, modes: Mapping[str, str], started: float = 0.0, **fields: Any
) -> Tick:
    """The tick that `picture` was judged in; `started` is the time of the first."""
    time = picture.time - started
    return Tick(time=time, snapshot=picture, decisions=tuple(decisions), modes=modes, **fields)
