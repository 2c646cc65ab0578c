"""A value of a cgroup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, get_args

import msgspec

from koordlite.model.cgroup_fields import MAX_SHARES, MIN_SHARES, CgroupField, shares_of_weight, weight_of_shares
from koordlite.model.change import Change, KernelChange, Standing
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place, PlaceKind
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import ForeignWrite

FIELDS: tuple[CgroupField, ...] = get_args(CgroupField)
PLACE = PlaceKind(
    name="cgroup",
    form="%s/%s",
    pattern=re.compile(rf"(?P<cgroup>.*)/(?P<field>{'|'.join(map(re.escape, FIELDS))})"),
    metric=lambda parts: parts[1],
    metrics=frozenset(FIELDS),
    update="cgroup",
)


def places_of(group: str) -> tuple[Place, ...]:
    """Every place that a group may have."""
    return tuple(PLACE.place(group, field) for field in FIELDS)


UNLIMITED = -1
_UNSET = {"cpu.quota": UNLIMITED, **dict.fromkeys(("memory.high", "memory.limit", "memory.swap.max"), UNLIMITED)}
"""What a kernel has where nobody wrote; 0 for the others."""
_UNSEEN = Cgroup()
_BY_LEVEL = ("memory.high", "memory.low", "memory.min")
_IN_PASSES = frozenset({"cpuset.cpus", "cpu.quota", "cpu.burst", "memory.limit", "memory.swap.max", *_BY_LEVEL})


class CgroupChange(KernelChange, msgspec.Struct, frozen=True):
    """Give `field` of the cgroup `group` (path below the cgroup root, `kubepods/besteffort`) the `value`."""

    place_kind: ClassVar[PlaceKind] = PLACE
    rank: ClassVar[int] = 10
    watched: ClassVar[bool] = True

    group: str
    field: CgroupField
    value: CPUSet | int
    gives_back: bool = False
    """What was found, or what its owner wants, stands there again: from then on the place is not ours any more."""

    @classmethod
    def source(cls, snapshot: Snapshot) -> object:
        """The groups."""
        return snapshot.cgroups

    def compare(self, snapshot: Snapshot) -> ForeignWrite | Standing:
        """A group that is gone takes its values along."""
        cgroup = snapshot.cgroups.get(self.group)
        if cgroup is None:
            return Standing.GONE
        stands = present(cgroup, self.field)
        if stands is None or stands in (self.value, self._kept(snapshot)):
            return Standing.OURS
        return ForeignWrite(self.place, str(self.value), str(stands))

    def _kept(self, snapshot: Snapshot) -> CPUSet | int:
        """Value that is read after it was written: v2 keeps shares as a coarser weight."""
        if self.field != "cpu.shares" or snapshot.layout.version == 1 or not isinstance(self.value, int):
            return self.value
        return shares_of_weight(weight_of_shares(min(max(self.value, MIN_SHARES), MAX_SHARES)))

    @classmethod
    def in_order(cls, changes: Sequence[Change], cgroups: Mapping[str, Cgroup]) -> Iterable[Change]:
        """Sets are widened before they are narrowed, what grows grows from the top, what shrinks from the bottom. Swap
        grows before memory shrinks, so that reclaim has somewhere to put what it takes, and shrinks at last."""
        files = _within_quotas_above([change for change in changes if isinstance(change, CgroupChange)], cgroups)
        more_swap, less_swap = _passes(files, "memory.swap.max", cgroups)
        return (
            *_move_sets([c for c in files if c.field == "cpuset.cpus"], cgroups),
            *_move_bandwidth(files, cgroups),
            *more_swap,
            *(step for way in _passes(files, "memory.limit", cgroups) for step in way),
            *(step for field in _BY_LEVEL for step in _move_levels(files, field, cgroups)),
            *less_swap,
            *_others(files),
        )


def present(cgroup: Cgroup, field: str) -> CPUSet | int | None:
    """Value in the file of `field`; None where it is absent or nobody asked to see it."""
    match field:
        case "cpuset.cpus":
            return cgroup.cpuset
        case "cpu.quota":
            return cgroup.quota_us
        case _:
            return cgroup.values.get(field)


def _depth(change: CgroupChange) -> tuple[int, str]:
    return change.group.count("/"), change.group


def _move_sets(changes: Sequence[CgroupChange], cgroups: Mapping[str, Cgroup]) -> list[CgroupChange]:
    top_down = sorted(changes, key=_depth)
    wide = {c.group: _widened(c, cgroups) for c in top_down}
    widen = [msgspec.structs.replace(c, value=wide[c.group]) for c in top_down if wide[c.group] != _present(c, cgroups)]
    narrow = [c for c in reversed(top_down) if c.value != wide[c.group]]
    return [*widen, *narrow]


def _widened(change: CgroupChange, cgroups: Mapping[str, Cgroup]) -> CPUSet:
    """Old and new together. For an empty set that is the new one: on v1 it is filled from the top as well."""
    assert isinstance(change.value, CPUSet)
    return _present(change, cgroups) | change.value


def _present(change: CgroupChange, cgroups: Mapping[str, Cgroup]) -> CPUSet:
    cgroup = cgroups.get(change.group)
    return (cgroup.cpuset if cgroup else None) or CPUSet()


def _within_quotas_above(files: Sequence[CgroupChange], cgroups: Mapping[str, Cgroup]) -> list[CgroupChange]:
    """Two strategies decide on one picture: where one limits a group and the other a group below it, the lower one is
    no larger than the upper one is about to be, which v1 would refuse. Its owner raises it when it may."""
    quotas = {c.group: c.value for c in files if c.field == "cpu.quota" and isinstance(c.value, int)}
    usual = {group: quota for group, quota in quotas.items() if _has_usual_period(group, cgroups) and quota >= 0}
    return [_no_more_than_above(c, usual) if c.field == "cpu.quota" and c.group in usual else c for c in files]


def _has_usual_period(group: str, cgroups: Mapping[str, Cgroup]) -> bool:
    return cgroups.get(group, _UNSEEN).period_us == _UNSEEN.period_us


def _no_more_than_above(change: CgroupChange, quotas: Mapping[str, int]) -> CgroupChange:
    names = change.group.split("/")
    least = min(quotas.get("/".join(names[:depth]), quotas[change.group]) for depth in range(1, len(names) + 1))
    return change if least == change.value else msgspec.structs.replace(change, value=least, gives_back=False)


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
    """Order the changes: what grows from the top, and what shrinks from the bottom."""
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
