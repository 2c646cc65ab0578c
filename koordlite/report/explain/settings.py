"""`explain config`: every setting of the ConfigMap as it holds on the node, its origin, and what was refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from koordlite.model.errors import Problem
from koordlite.model.reading import declared
from koordlite.model.slo import config
from koordlite.model.slo.layers import Section
from koordlite.model.slo.settings import SLO, HostApplication
from koordlite.report.tick import Tick

SUBJECT = "config"
_NOT_SET = "not set"


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigLine:
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


def lines(slo: SLO, subject: str = SUBJECT) -> tuple[ConfigLine, ...]:
    """The settings `subject` names: `config`, `config.KEY`, `config.KEY.beginning.of.name`.

    A key may be written as in the ConfigMap or by the first word of its settings (`colocation`). ValueError lists the
    keys when there is nothing of that name.
    """
    wanted = subject.removeprefix(SUBJECT).removeprefix(".")
    chosen = tuple(line for section in config.SECTIONS for line in _of(slo, section) if _meant(section, line, wanted))
    empty = any(wanted in (section.key, section.name) for section in config.SECTIONS)
    if wanted and not chosen and not empty:
        known = ", ".join(section.key for section in config.SECTIONS)
        raise ValueError(f"no setting is called {wanted!r}; the keys are {known}")
    return chosen


def text(tick: Tick, subject: str = SUBJECT) -> str:
    """The settings as a table for each key, and the problems."""
    chosen = lines(tick.slo, subject)
    shown: list[str] = []
    for section in config.SECTIONS:
        mine = [line for line in chosen if line.key == section.key]
        if mine or subject == SUBJECT:
            shown += [f"{section.key}: {standing(tick.slo, section.key)}", *_table(mine), ""]
    problems = [str(problem) for problem in _problems(tick.slo)]
    shown += ["problems", *(f"  {problem}" for problem in problems)] if problems else ["problems: none"]
    return "\n".join(shown) + "\n"


def document(tick: Tick, subject: str = SUBJECT) -> dict[str, Any]:
    """The same as plain values for JSON."""
    return {
        "version": 1,
        "kind": "koordlite-config",
        "node": tick.node,
        "keys": {section.key: standing(tick.slo, section.key) for section in config.SECTIONS},
        "settings": [dataclasses.asdict(line) for line in lines(tick.slo, subject)],
        "problems": [dataclasses.asdict(problem) for problem in _problems(tick.slo)],
    }


def _problems(slo: SLO) -> Sequence[Problem]:
    return (*slo.problems, *config.unused_problems(slo))


def standing(slo: SLO, key: str) -> str:
    """Whether one key's document is in use."""
    if key in slo.kept:
        return f"cannot be used, {slo.kept[key]}"
    return "as written" if key in slo.good else "not given, the defaults hold"


def _of(slo: SLO, section: Section) -> Iterator[ConfigLine]:
    held = getattr(slo, section.attribute)
    if isinstance(held, tuple):
        yield from _applications(held, section, slo)
        return
    unused = {each.name for each in config.in_vain(slo) if each.key == section.key}
    for path, value in declared.flatten(held):
        name = ".".join(path)
        origin = slo.origins.get(f"{section.name}.{name}", "default")
        yield ConfigLine(section.key, name, value, f"{origin}; no effect here" if name in unused else origin)


def _applications(held: Sequence[HostApplication], section: Section, slo: SLO) -> Iterator[ConfigLine]:
    origin = slo.origins.get(f"{section.name}.applications", "default")
    for index, application in enumerate(held):
        value = {name: str(each) for name, each in dataclasses.asdict(application).items() if each}
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
