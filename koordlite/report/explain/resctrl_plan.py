"""Writes to resctrl under the present configuration, and those to be refused: `koordlite resctrl plan`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from koordlite.changes.resctrl import ResctrlGroupChange, ResctrlMountChange, ResctrlReturn, SchemataChange, TasksChange
from koordlite.model.decision import Decision
from koordlite.report import paragraph
from koordlite.report.sentence import sentence
from koordlite.resctrl import masks, schemata
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

    `overlaps` lists writes that the kernel would refuse, as the function of that name finds them.
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
            yield paragraph.fill(step, width, first="    - ", rest="      ")


def _indented(text: str, width: int) -> str:
    return paragraph.fill(text, width, first="  ", rest="    ")


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


_EXCLUSIVE = "exclusive"


def overlaps(machine: Resctrl, decisions: Iterable[Decision]) -> Iterator[str]:
    """A sentence for each write that the kernel would refuse because it overlaps an exclusive group.

    `machine` has the groups' modes. Source: Linux resctrl document, "mode"; under CDP both code and data of the other
    group count.
    """
    for change in (change for decision in decisions for change in decision.changes):
        if isinstance(change, SchemataChange) and change.resource in machine.caches:
            for name, group in machine.groups.items():
                taken = _taken(change, group)
                if name != change.group and taken and _is_alone(machine, name, change.group):
                    yield _sentence(change, name or "the root group", taken)


def _is_alone(machine: Resctrl, *names: str) -> bool:
    """One of the two groups is exclusive; a group that is about to be made shares."""
    return any(name in machine.groups and machine.groups[name].mode == _EXCLUSIVE for name in names)


def _taken(change: SchemataChange, group: ControlGroup) -> dict[int, int]:
    """The ways of each cache that both have."""
    level = change.resource[:2]
    found = dict.fromkeys(change.values, 0)
    for resource, held in group.schemata.items():
        if resource.startswith(level):
            for cache, mask in change.values.items():
                found[cache] |= mask & held.get(cache, 0)
    return {cache: ways for cache, ways in found.items() if ways}


def _sentence(change: SchemataChange, name: str, taken: dict[int, int]) -> str:
    where = "; ".join(f"ways {masks.format_ways(ways)} of cache {cache}" for cache, ways in taken.items())
    ours = change.group or "the root group"
    return f"{change.resource} of {ours} overlaps {name}, and one of them is exclusive: {where}"
