"""`explain config`: every setting of the ConfigMap as it holds on the node, its origin, and what was refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from koordlite.model.errors import Problem
from koordlite.model.reading import declared
from koordlite.model.slo import config
from koordlite.model.slo.config import Section
from koordlite.model.slo.settings import SLO, HostApplication
from koordlite.model.slo.without_effect import OFF
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.tick import Tick

SUBJECT = "config"
_NOT_SET = "not set"


class ConfigLine(msgspec.Struct, frozen=True):
    """One setting."""

    key: str
    """Of the ConfigMap."""
    name: str
    """Path inside a strategy: `beClass.resctrlQOS.mbaPercent`."""
    value: Any
    """As JSON writes it; None where it is not set."""
    origin: str
    """`default`, `cluster`, `node strategy NAME`, `annotation …`, `label …`; `off: …` for what does not count;
    with `no effect here` where nothing acts on it."""


def lines(slo: SLO, subject: str = SUBJECT, *, off: Collection[str] = OFF) -> tuple[ConfigLine, ...]:
    """The settings `subject` names: `config`, `config.KEY`, `config.KEY.beginning.of.name`. `off` are the strategies
    that are off.

    A key may be written as in the ConfigMap or by the first word of its settings (`colocation`). ValueError lists the
    keys when there is nothing of that name.
    """
    wanted = subject.removeprefix(SUBJECT).removeprefix(".")
    every = ((section, line) for section in config.SECTIONS for line in _of(slo, section, off))
    chosen = tuple(line for section, line in every if _meant(section, line, wanted))
    empty = any(wanted in (section.key, section.name) for section in config.SECTIONS)
    if wanted and not chosen and not empty:
        known = ", ".join(section.key for section in config.SECTIONS)
        raise ValueError(f"no setting is called {wanted!r}; the keys are {known}")
    return chosen


def text(subject: str, tick: Tick, _past: Remembered = NOTHING) -> str:
    """The settings as a table for each key, and the problems."""
    chosen = lines(tick.snapshot.slo, subject, off=_off(tick))
    shown: list[str] = []
    for section in config.SECTIONS:
        mine = [line for line in chosen if line.key == section.key]
        if mine or subject == SUBJECT:
            shown += [f"{section.key}: {standing(tick.snapshot.slo, section.key)}", *_table(mine), ""]
    problems = [str(problem) for problem in _problems(tick)]
    shown += ["problems", *(f"  {problem}" for problem in problems)] if problems else ["problems: none"]
    return "\n".join(shown) + "\n"


def document(subject: str, tick: Tick, _past: Remembered = NOTHING) -> dict[str, Any]:
    """The same as plain values for JSON."""
    return {
        "keys": {section.key: standing(tick.snapshot.slo, section.key) for section in config.SECTIONS},
        "settings": [msgspec.structs.asdict(line) for line in lines(tick.snapshot.slo, subject, off=_off(tick))],
        "problems": [dataclasses.asdict(problem) for problem in _problems(tick)],
    }


def _problems(tick: Tick) -> Sequence[Problem]:
    return (*tick.snapshot.slo.problems, *config.unused_problems(tick.snapshot.slo, off=_off(tick)))


def _off(tick: Tick) -> frozenset[str]:
    return frozenset(name for name, mode in tick.modes.items() if mode == "off")


def standing(slo: SLO, key: str) -> str:
    """Tell whether one key's document is in use."""
    if key in slo.kept:
        return f"cannot be used, {slo.kept[key]}"
    return "as written" if key in slo.good else "not given, the defaults hold"


def _of(slo: SLO, section: Section, off: Collection[str]) -> Iterator[ConfigLine]:
    held = getattr(slo, section.attribute)
    if isinstance(held, tuple):
        yield from _applications(held, section, slo)
        return
    unused = {each.name for each in config.in_vain(slo, off) if each.key == section.key}
    for path, value in declared.flatten(held):
        name = ".".join(path)
        origin = slo.origins.get(f"{section.name}.{name}", "default")
        yield ConfigLine(section.key, name, value, f"{origin}; no effect here" if name in unused else origin)


def _applications(held: Sequence[HostApplication], section: Section, slo: SLO) -> Iterator[ConfigLine]:
    origin = slo.origins.get(f"{section.name}.applications", "default")
    for index, application in enumerate(held):
        value = {name: str(each) for name, each in msgspec.structs.asdict(application).items() if each}
        yield ConfigLine(section.key, f"applications[{index}]", value, origin)


def _meant(section: Section, line: ConfigLine, wanted: str) -> bool:
    names = (section.key, f"{section.key}.{line.name}", section.name, f"{section.name}.{line.name}")
    return not wanted or wanted in names or any(name.startswith((f"{wanted}.", f"{wanted}[")) for name in names)


def _table(mine: Sequence[ConfigLine]) -> Iterator[str]:
    rows = [(line.name, _shown(line.value), line.origin) for line in mine]
    wide = max((len(name) for name, _, _ in rows), default=0)
    value = max((len(value) for _, value, _ in rows), default=0)
    yield from (f"  {name:<{wide}}  {held:<{min(value, 40)}}  {origin}" for name, held, origin in rows)


def _shown(value: Any) -> str:
    if value is None or value == "":
        return _NOT_SET
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
