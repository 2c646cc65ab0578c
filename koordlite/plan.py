"""Changes of all strategies merged and put in an order in which every state on the way is legal.

Rules (docs/design.md, "Every step on the way is legal"): a set that moves is first widened to the union of old and new,
parents before children, then narrowed, children before parents; a limit that grows grows from the top, one that shrinks
shrinks from the bottom; a burst is at no step above its quota; shares are not written while a group is idle; a resctrl
group exists before its schemata, its schemata before its tasks; the cluster is told last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from koordlite.changes.block_device import BlockChange
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.eviction import EvictPod
from koordlite.changes.node_annotation import NodeAnnotationChange
from koordlite.changes.node_resource import NodeResourceChange
from koordlite.changes.oom_score import OOMScoreChange
from koordlite.changes.resctrl_group import ResctrlGroupChange
from koordlite.changes.resctrl_mount import ResctrlMountChange
from koordlite.changes.resctrl_return import ResctrlReturn
from koordlite.changes.resctrl_schemata import SchemataChange
from koordlite.changes.resctrl_tasks import TasksChange
from koordlite.changes.system_file import SystemFileChange
from koordlite.changes.topology_annotation import TopologyChange
from koordlite.changes.topology_label import TopologyLabelChange
from koordlite.changes.zone_resource import ZoneResourceChange
from koordlite.changes.zones import ZonesChange
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.errors import PlanConflict
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place

UNLIMITED = -1
_RESCTRL = (ResctrlMountChange, ResctrlGroupChange, SchemataChange, TasksChange, ResctrlReturn)
"""In this order: threads that leave a group of ours for another are out before the group is given back."""
_UNSET = {"cpu.quota": UNLIMITED, "memory.high": UNLIMITED}
"""What a kernel has where nobody wrote; 0 for the others."""
_BY_LEVEL = ("memory.high", "memory.low", "memory.min")
_IN_PASSES = frozenset({"cpuset.cpus", "cpu.quota", "cpu.burst", *_BY_LEVEL})


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order to take them, and the claims that lost because another strategy had the place already."""

    steps: tuple[Change, ...] = ()
    conflicts: tuple[PlanConflict, ...] = ()
    owners: Mapping[Place, str] = dataclasses.field(default_factory=dict)
    """Which strategy wants the change, by place."""


def make(decisions: Iterable[Decision], cgroups: Mapping[str, Cgroup]) -> Plan:
    """The plan for `decisions`, given the present values of the cgroups."""
    changes, conflicts, owners = merge(decisions)
    return Plan(order(changes, cgroups), conflicts, owners)


def merge(decisions: Iterable[Decision]) -> tuple[list[Change], tuple[PlanConflict, ...], dict[Place, str]]:
    """One change a place: the first strategy that claims a place keeps it, a different later claim is a conflict."""
    chosen: dict[Place, Change] = {}
    owners: dict[Place, str] = {}
    conflicts: list[PlanConflict] = []
    for decision in decisions:
        for change in decision.changes:
            held = chosen.setdefault(change.place, change)
            owner = owners.setdefault(change.place, decision.strategy)
            # Two strategies may want one pod gone for different reasons: it goes once.
            if held != change and not isinstance(held, EvictPod):
                conflicts.append(PlanConflict(change.place, owner, decision.strategy))
    return list(chosen.values()), tuple(conflicts), owners


def order(changes: Sequence[Change], cgroups: Mapping[str, Cgroup]) -> tuple[Change, ...]:
    """`changes` as steps whose every intermediate state the kernel accepts."""
    files = [c for c in changes if isinstance(c, CgroupChange)]
    return (
        *_move_sets([c for c in files if c.field == "cpuset.cpus"], cgroups),
        *_move_bandwidth(files, cgroups),
        *(step for field in _BY_LEVEL for step in _move_levels(files, field, cgroups)),
        *_others(files),
        # A kernel weighs the use of a disk only after it was told how to.
        *sorted((c for c in changes if isinstance(c, BlockChange)), key=lambda change: change.group.count("/")),
        *(c for kind in _RESCTRL for c in changes if isinstance(c, kind)),
        *(c for c in changes if isinstance(c, NodeResourceChange)),
        *(c for c in changes if isinstance(c, NodeAnnotationChange)),
        *(c for c in changes if isinstance(c, TopologyChange | TopologyLabelChange | ZonesChange)),
        # The zones have to be there before their resources.
        *(c for c in changes if isinstance(c, ZoneResourceChange)),
        *(c for c in changes if isinstance(c, SystemFileChange | OOMScoreChange)),
        # What cannot be undone comes last, when all else has been tried.
        *(c for c in changes if isinstance(c, EvictPod)),
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


def _move_bandwidth(files: Sequence[CgroupChange], cgroups: Mapping[str, Cgroup]) -> list[CgroupChange]:
    """The kernel refuses a burst above the quota, whichever of the two is written last."""
    more_quota, less_quota = _passes(files, "cpu.quota", cgroups)
    more_burst, less_burst = _passes(files, "cpu.burst", cgroups)
    return [*more_quota, *less_burst, *less_quota, *more_burst]


def _move_levels(files: Sequence[CgroupChange], field: str, cgroups: Mapping[str, Cgroup]) -> list[CgroupChange]:
    """First what shrinks: one child may take what another gives up, while their parent has no more for both."""
    grow, shrink = _passes(files, field, cgroups)
    return [*shrink, *grow]


def _passes(
    files: Sequence[CgroupChange], field: str, cgroups: Mapping[str, Cgroup]
) -> tuple[list[CgroupChange], list[CgroupChange]]:
    """What grows, from the top, and what shrinks, from the bottom."""
    top_down = sorted((c for c in files if c.field == field), key=_depth)
    growing = [_grows(c, cgroups) for c in top_down]
    grow = [c for c, grows in zip(top_down, growing, strict=True) if grows]
    shrink = [c for c, grows in zip(top_down, growing, strict=True) if not grows]
    return grow, shrink[::-1]


def _grows(change: CgroupChange, cgroups: Mapping[str, Cgroup]) -> bool:
    assert isinstance(change.value, int)
    present = _present_number(change, cgroups.get(change.group))
    if UNLIMITED in (change.value, present):
        return change.value == UNLIMITED
    return change.value > present


def _present_number(change: CgroupChange, cgroup: Cgroup | None) -> int:
    unset = _UNSET.get(change.field, 0)
    if cgroup is None:
        return unset
    if change.field == "cpu.quota":
        return unset if cgroup.quota_us is None else cgroup.quota_us
    return cgroup.values.get(change.field, unset)


def _others(files: Sequence[CgroupChange]) -> list[CgroupChange]:
    """From the top. An idle group takes no shares: it stops being idle before, and becomes idle after."""
    plain = sorted((c for c in files if c.field not in _IN_PASSES), key=_depth)
    waking = [c for c in plain if c.field == "cpu.idle" and c.value == 0]
    resting = [c for c in plain if c.field == "cpu.idle" and c.value != 0]
    return [*waking, *(c for c in plain if c.field != "cpu.idle"), *resting]
