"""What the present configuration would program into resctrl, and what would be refused: `koordlite resctrl plan`."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from koordlite.changes.resctrl import ResctrlGroupChange, ResctrlMountChange, ResctrlReturn, SchemataChange, TasksChange
from koordlite.model.decision import Decision
from koordlite.report.sentence import sentence
from koordlite.resctrl import schemata
from koordlite.resctrl.values import ROOT, ControlGroup, Resctrl

_REFUSALS = ("refuse", "skip")


def planned(machine: Resctrl, decisions: Iterable[Decision]) -> Resctrl:
    """The machine as it would be: groups made, values written, groups of ours gone."""
    groups = dict(machine.groups)
    for change in (c for decision in decisions for c in decision.changes):
        match change:
            case ResctrlGroupChange(group) if "/" not in group:
                groups.setdefault(group, _fresh(machine))
            case SchemataChange(group, resource, values):
                held = groups.get(group) or _fresh(machine)
                lines = {**held.schemata, resource: {**held.schemata.get(resource, {}), **values}}
                groups[group] = dataclasses.replace(held, schemata=lines)
            case TasksChange(group, tids) if group in groups:
                tasks = (groups[group].tasks or frozenset()) | frozenset(tids)
                groups[group] = dataclasses.replace(groups[group], tasks=tasks)
            case ResctrlReturn(group):
                groups.pop(group, None)
    return dataclasses.replace(
        machine, groups={ROOT: groups.pop(ROOT), **dict(sorted(groups.items()))} if groups else {}
    )


def text(decisions: Sequence[Decision], overlaps: Sequence[str] = (), *, width: int = 80) -> str:
    """Every decision: first what would be done, then what holds already, then what would be refused and why.

    `overlaps` lists writes that the kernel would refuse, see `resctrl_overlap`.
    """
    todo = [d for d in decisions if d.changes]
    not_done = refused(decisions)
    rest = [d for d in decisions if d not in todo and d not in not_done]
    reasons = [*_section(not_done, width), *(_indented(overlap, width) for overlap in overlaps)]
    sections = (
        ("would be written", list(_section(todo, width))),
        ("as it is", list(_section(rest, width))),
        ("refused or not possible", reasons),
    )
    return "\n".join(line for title, lines in sections if lines for line in (f"{title}:", *lines, ""))


def refused(decisions: Iterable[Decision]) -> list[Decision]:
    """The decisions that cannot be carried out."""
    return [decision for decision in decisions if not decision.changes and decision.verdict in _REFUSALS]


def document(decisions: Iterable[Decision]) -> list[dict[str, object]]:
    """The decisions as plain values, each with the steps it asks for."""
    return [
        {
            "subject": decision.subject,
            "verdict": decision.verdict,
            "reason": decision.reason,
            "evidence": dict(decision.evidence),
            "steps": list(_steps(decision)),
        }
        for decision in decisions
    ]


def _fresh(machine: Resctrl) -> ControlGroup:
    """A group just made: the root's cache ids, everything of each."""
    ids = machine.groups[ROOT].schemata
    caches = {name: dict.fromkeys(ids.get(name, ()), cap.cbm_mask) for name, cap in machine.caches.items()}
    limits = {name: dict.fromkeys(ids.get(name, ()), cap.maximum) for name, cap in machine.bandwidths.items()}
    return ControlGroup({**caches, **limits}, frozenset())


def _section(decisions: Iterable[Decision], width: int) -> Iterator[str]:
    for decision in decisions:
        yield _indented(f"{decision.subject}: {sentence(decision)}", width)
        for step in _steps(decision):
            yield textwrap.fill(step, width, initial_indent="    - ", subsequent_indent="      ")


def _indented(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    ")


def _steps(decision: Decision) -> Iterator[str]:
    for change in decision.changes:
        match change:
            case ResctrlMountChange():
                yield "mount resctrl"
            case ResctrlGroupChange(group):
                yield f"make group {group}"
            case SchemataChange(group, resource, values):
                yield f"write {schemata.line(resource, values)} to {group}"
            case TasksChange(group, tids):
                yield f"move {len(tids)} threads into {group or 'the root group'}"
            case ResctrlReturn(group):
                yield f"give {group} back as it was found"
