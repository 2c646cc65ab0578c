"""Changes of all strategies merged and put in an order in which every state on the way is legal.

Rules (docs/design.md, "Every step on the way is legal"): a set that moves is first widened to the union of old and new,
parents before children, then narrowed, children before parents; a limit that grows grows from the top, one that shrinks
shrinks from the bottom; a resctrl group exists before its schemata, its schemata before its tasks; the cluster is told
last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import (
    CgroupChange,
    Change,
    Decision,
    NodeAnnotationChange,
    NodeResourceChange,
    ResctrlGroupChange,
    SchemataChange,
    TasksChange,
    TopologyChange,
    TopologyLabelChange,
    ZoneResourceChange,
    ZonesChange,
)
from koordlite.model.errors import PlanConflict
from koordlite.model.snapshot import Cgroup

UNLIMITED = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order to take them, and the claims that lost because another strategy had the place already."""

    steps: tuple[Change, ...] = ()
    conflicts: tuple[PlanConflict, ...] = ()
    owners: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Which strategy wants the change, by place."""


def make(decisions: Iterable[Decision], cgroups: Mapping[str, Cgroup]) -> Plan:
    """The plan for `decisions`, given the present values of the cgroups."""
    changes, conflicts, owners = merge(decisions)
    return Plan(order(changes, cgroups), conflicts, owners)


def merge(decisions: Iterable[Decision]) -> tuple[list[Change], tuple[PlanConflict, ...], dict[str, str]]:
    """One change a place: the first strategy that claims a place keeps it, a different later claim is a conflict."""
    chosen: dict[str, Change] = {}
    owners: dict[str, str] = {}
    conflicts: list[PlanConflict] = []
    for decision in decisions:
        for change in decision.changes:
            held = chosen.setdefault(change.place, change)
            owner = owners.setdefault(change.place, decision.strategy)
            if held != change:
                conflicts.append(PlanConflict(change.place, owner, decision.strategy))
    return list(chosen.values()), tuple(conflicts), owners


def order(changes: Sequence[Change], cgroups: Mapping[str, Cgroup]) -> tuple[Change, ...]:
    """`changes` as steps whose every intermediate state the kernel accepts."""
    sets = [c for c in changes if isinstance(c, CgroupChange) and c.field == "cpuset.cpus"]
    quotas = [c for c in changes if isinstance(c, CgroupChange) and c.field == "cpu.quota"]
    return (
        *_move_sets(sets, cgroups),
        *_move_quotas(quotas, cgroups),
        *(c for c in changes if isinstance(c, ResctrlGroupChange)),
        *(c for c in changes if isinstance(c, SchemataChange)),
        *(c for c in changes if isinstance(c, TasksChange)),
        *(c for c in changes if isinstance(c, NodeResourceChange)),
        *(c for c in changes if isinstance(c, NodeAnnotationChange)),
        *(c for c in changes if isinstance(c, TopologyChange | TopologyLabelChange | ZonesChange)),
        # The zones have to be there before their resources.
        *(c for c in changes if isinstance(c, ZoneResourceChange)),
    )


def _depth(change: CgroupChange) -> tuple[int, str]:
    return change.group.count("/"), change.group


def _move_sets(changes: Sequence[CgroupChange], cgroups: Mapping[str, Cgroup]) -> list[CgroupChange]:
    top_down = sorted(changes, key=_depth)
    wide = {c.group: _widened(c, cgroups) for c in top_down}
    widen = [dataclasses.replace(c, value=wide[c.group]) for c in top_down if wide[c.group] != _present(c, cgroups)]
    narrow = [c for c in reversed(top_down) if c.value != wide[c.group]]
    return [*widen, *narrow]


def _widened(change: CgroupChange, cgroups: Mapping[str, Cgroup]) -> CPUSet:
    """Old and new together. For an empty set that is the new one: on v1 it is filled from the top as well."""
    assert isinstance(change.value, CPUSet)
    return _present(change, cgroups) | change.value


def _present(change: CgroupChange, cgroups: Mapping[str, Cgroup]) -> CPUSet:
    cgroup = cgroups.get(change.group)
    return (cgroup.cpuset if cgroup else None) or CPUSet()


def _move_quotas(changes: Sequence[CgroupChange], cgroups: Mapping[str, Cgroup]) -> list[CgroupChange]:
    top_down = sorted(changes, key=_depth)
    grow = [c for c in top_down if _grows(c, cgroups)]
    return [*grow, *(c for c in reversed(top_down) if c not in grow)]


def _grows(change: CgroupChange, cgroups: Mapping[str, Cgroup]) -> bool:
    cgroup = cgroups.get(change.group)
    present = cgroup.quota_us if cgroup and cgroup.quota_us is not None else UNLIMITED
    if UNLIMITED in (change.value, present):
        return change.value == UNLIMITED
    assert isinstance(change.value, int)
    return change.value > present
