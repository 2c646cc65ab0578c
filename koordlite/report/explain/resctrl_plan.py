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


def planned(machine: Resctrl, decisions: Iterable[Decision]) -> Resctrl:
    """The machine as it would be: groups made, values written, groups of ours gone. A new group has the root's cache
    ids, everything of each."""
    ids = machine.groups[ROOT].schemata if machine.groups else {}
    caches = {name: dict.fromkeys(ids.get(name, ()), cap.cbm_mask) for name, cap in machine.caches.items()}
    limits = {name: dict.fromkeys(ids.get(name, ()), cap.maximum) for name, cap in machine.bandwidths.items()}
    groups, new = dict(machine.groups), ControlGroup({**caches, **limits}, frozenset())
    for change in (change for decision in decisions for change in decision.changes):
        match change:
            case ResctrlGroupChange(name) if "/" not in name:
                groups.setdefault(name, new)
            case SchemataChange(name, resource, values):
                group = groups.get(name, new)
                lines = {**group.schemata, resource: {**group.schemata.get(resource, {}), **values}}
                groups[name] = dataclasses.replace(group, schemata=lines)
            case TasksChange(name, tids) if name in groups:
                tasks = (groups[name].tasks or frozenset()) | frozenset(tids)
                groups[name] = dataclasses.replace(groups[name], tasks=tasks)
            case ResctrlReturn(name):
                groups.pop(name, None)
    return dataclasses.replace(
        machine, groups={ROOT: groups.pop(ROOT), **dict(sorted(groups.items()))} if groups else {}
    )


def text(decisions: Sequence[Decision], overlaps: Sequence[str] = (), *, width: int = 80) -> str:
    """Every decision: first what would be done, then what holds already, then what would be refused and why.

    `overlaps` lists writes that the kernel would refuse, as the function of that name finds them.
    """
    refusals = refused(decisions)
    lines: list[str] = []
    for title, listed, sentences in (
        ("would be written", [d for d in decisions if d.changes], ()),
        ("as it is", [d for d in decisions if not d.changes and d not in refusals], ()),
        ("refused or not possible", refusals, overlaps),
    ):
        lines += [f"{title}:"] if listed or sentences else []
        for decision in listed:
            words = f"{decision.subject}: {sentence(decision)}"
            lines.append(paragraph.fill(words, width, first="  ", hanging="    "))
            lines += (paragraph.fill(step, width, first="    - ", hanging="      ") for step in _steps(decision))
        lines += (paragraph.fill(overlap, width, first="  ", hanging="    ") for overlap in sentences)
        lines += [""] if listed or sentences else []
    return "\n".join(lines)


def refused(decisions: Iterable[Decision]) -> list[Decision]:
    """The decisions that cannot be carried out."""
    return [decision for decision in decisions if not decision.changes and decision.verdict in ("refuse", "skip")]


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


def overlaps(machine: Resctrl, decisions: Iterable[Decision]) -> Iterator[str]:
    """A sentence for each write that the kernel would refuse because it overlaps an exclusive group.

    `machine` has the groups' modes; a group that is about to be made shares. Source: Linux resctrl document, "mode";
    under CDP both code and data of the other group count.
    """
    for change in (change for decision in decisions for change in decision.changes):
        if not isinstance(change, SchemataChange) or change.resource not in machine.caches:
            continue
        own = machine.groups.get(change.group)
        for name, group in machine.groups.items():
            shared = dict.fromkeys(change.values, 0)
            for resource, masks_by_cache in group.schemata.items():
                if resource.startswith(change.resource[:2]):
                    for cache, mask in change.values.items():
                        shared[cache] |= mask & masks_by_cache.get(cache, 0)
            where = "; ".join(
                f"ways {masks.format_ways(ways)} of cache {cache}" for cache, ways in shared.items() if ways
            )
            if name != change.group and where and "exclusive" in (group.mode, own.mode if own else ""):
                ours, theirs = change.group or "the root group", name or "the root group"
                yield f"{change.resource} of {ours} overlaps {theirs}, and one of them is exclusive: {where}"
