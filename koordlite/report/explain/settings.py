"""`explain config`: every setting of the ConfigMap as it holds on the node, its origin, and what was refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from koordlite.model.reading import declared
from koordlite.model.slo import config
from koordlite.model.slo.config import Section
from koordlite.model.slo.settings import SLO
from koordlite.model.slo.without_effect import OFF
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import Remembered
from koordlite.report.tick import Tick

SUBJECT = "config"


class ConfigLine(msgspec.Struct, frozen=True):
    """One setting."""

    key: str
    """Key of the ConfigMap."""
    name: str
    """Path inside a strategy: `beClass.resctrlQOS.mbaPercent`."""
    value: Any
    """Value as JSON; None where it is not set."""
    origin: str
    """`default`, `cluster`, `node strategy NAME`, `annotation …`, `label …`; `off: …` for what does not count;
    with `no effect here` where nothing acts on it."""


def answer(subject: str, tick: Tick, _past: Remembered) -> Answer:
    """The settings as a table for each key, and the problems."""
    slo, off = tick.snapshot.slo, frozenset(name for name, mode in tick.modes.items() if mode == "off")
    settings, problems = lines(slo, subject, off=off), (*slo.problems, *config.unused_problems(slo, off=off))
    states = {
        section.key: f"cannot be used, {slo.kept[section.key]}"
        if section.key in slo.kept
        else "as written"
        if section.key in slo.good
        else "not given, the defaults hold"
        for section in config.SECTIONS
    }
    text: list[str] = []
    for key, state in states.items():
        rows = [(line.name, _shown(line.value), line.origin) for line in settings if line.key == key]
        if rows or subject == SUBJECT:
            name_width, value_width = (max((len(row[at]) for row in rows), default=0) for at in (0, 1))
            value_width = min(value_width, 40)
            table = (f"  {name:<{name_width}}  {value:<{value_width}}  {origin}" for name, value, origin in rows)
            text += [f"{key}: {state}", *table, ""]
    text += ["problems", *(f"  {problem}" for problem in problems)] if problems else ["problems: none"]
    return Answer(
        text,
        {
            "keys": states,
            "settings": [msgspec.structs.asdict(line) for line in settings],
            "problems": [dataclasses.asdict(problem) for problem in problems],
        },
    )


def lines(slo: SLO, subject: str = SUBJECT, *, off: Collection[str] = OFF) -> tuple[ConfigLine, ...]:
    """The settings `subject` names: `config`, `config.KEY`, `config.KEY.beginning.of.name`. `off` are the strategies
    that are off.

    A key may be written as in the ConfigMap or by the first word of its settings (`colocation`). ValueError lists the
    keys when there is nothing of that name.
    """
    path = subject.removeprefix(SUBJECT).removeprefix(".")
    every = ((section, line) for section in config.SECTIONS for line in _of(slo, section, off))
    matches = tuple(line for section, line in every if _means(path, section, line))
    if path and not matches and not any(path in (section.key, section.name) for section in config.SECTIONS):
        keys = ", ".join(section.key for section in config.SECTIONS)
        raise ValueError(f"no setting is called {path!r}; the keys are {keys}")
    return matches


def _of(slo: SLO, section: Section, off: Collection[str]) -> Iterator[ConfigLine]:
    settings = getattr(slo, section.attribute)
    if isinstance(settings, tuple):
        origin = slo.origins.get(f"{section.name}.applications", "default")
        for index, application in enumerate(settings):
            value = {name: str(each) for name, each in msgspec.structs.asdict(application).items() if each}
            yield ConfigLine(section.key, f"applications[{index}]", value, origin)
        return
    unused = {each.name for each in config.in_vain(slo, off) if each.key == section.key}
    for path, value in declared.flatten(settings):
        name = ".".join(path)
        origin = slo.origins.get(f"{section.name}.{name}", "default")
        yield ConfigLine(section.key, name, value, f"{origin}; no effect here" if name in unused else origin)


def _means(path: str, section: Section, line: ConfigLine) -> bool:
    names = (section.key, f"{section.key}.{line.name}", section.name, f"{section.name}.{line.name}")
    return not path or path in names or any(name.startswith((f"{path}.", f"{path}[")) for name in names)


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
