"""What the kernel would refuse of a plan because a group is exclusive.

Source: Linux resctrl document, "mode"; under CDP both code and data of the other group count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordlite.changes.resctrl import SchemataChange
from koordlite.model.decision import Decision
from koordlite.resctrl import masks
from koordlite.resctrl.values import ControlGroup, Resctrl

_EXCLUSIVE = "exclusive"


def refused(machine: Resctrl, decisions: Iterable[Decision]) -> Iterator[str]:
    """A sentence for each write that overlaps an exclusive group; `machine` has the groups' modes."""
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
