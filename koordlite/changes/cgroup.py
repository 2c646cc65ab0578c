"""A value of a cgroup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
PLACE = PlaceKind.of(
    "cgroup",
    "{cgroup}/{field}",
    cgroup=".*",
    field="|".join(map(re.escape, FIELDS)),
    metric=lambda parts: parts[1],
    metrics=FIELDS,
    update="cgroup",
)


def places_of(group: str) -> tuple[Place, ...]:
    """Every place that a group may have."""
    return tuple(PLACE.place(group, field) for field in FIELDS)


UNLIMITED = -1
_UNSET = {"cpu.quota": UNLIMITED, **dict.fromkeys(("memory.high", "memory.limit", "memory.swap.max"), UNLIMITED)}
"""Initial values of the kernel; 0 for the other fields."""
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
    """True for the original value, or the one its owner wants: from then on the place is not ours any more."""

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
        settled = self.value
        if self.field == "cpu.shares" and snapshot.layout.version == 2 and isinstance(self.value, int):
            # v2 keeps shares as a coarser weight, and that is what is read.
            settled = shares_of_weight(weight_of_shares(min(max(self.value, MIN_SHARES), MAX_SHARES)))
        if stands is None or stands in (self.value, settled):
            return Standing.OURS
        return ForeignWrite(self.place, str(self.value), str(stands))

    @classmethod
    def in_order(cls, changes: Sequence[Change], cgroups: Mapping[str, Cgroup]) -> Iterable[Change]:
        """Sets are widened before they are narrowed, what grows grows from the top, what shrinks from the bottom. Swap
        grows before memory shrinks, so that reclaim has somewhere to put what it takes, and shrinks at last."""
        own = [change for change in changes if isinstance(change, CgroupChange)]
        files = list(_within_quotas_above(own, cgroups))
        more_swap, less_swap = _passes(files, "memory.swap.max", cgroups)
        more_quota, less_quota = _passes(files, "cpu.quota", cgroups)
        more_burst, less_burst = _passes(files, "cpu.burst", cgroups)
        plain = sorted((c for c in files if c.field not in _IN_PASSES), key=_depth)
        return (
            *_move_sets((c for c in files if c.field == "cpuset.cpus"), cgroups),
            # The kernel refuses a burst above the quota, whichever of the two is written last.
            *(*more_quota, *less_burst, *less_quota, *more_burst),
            *more_swap,
            *(step for way in _passes(files, "memory.limit", cgroups) for step in way),
            # First what shrinks: one child may take what another gives up, while their parent has no more for both.
            *(step for field in _BY_LEVEL for way in reversed(_passes(files, field, cgroups)) for step in way),
            *less_swap,
            # An idle group takes no shares: it stops being idle before, and becomes idle after.
            *(c for c in plain if c.field == "cpu.idle" and c.value == 0),
            *(c for c in plain if c.field != "cpu.idle"),
            *(c for c in plain if c.field == "cpu.idle" and c.value != 0),
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


def _move_sets(changes: Iterable[CgroupChange], cgroups: Mapping[str, Cgroup]) -> list[CgroupChange]:
    """Each set becomes old and new together, from the top, and then what it is to be, from the bottom. For an empty set
    the former is the new one: on v1 it is filled from the top as well."""
    widen, narrow = list[CgroupChange](), list[CgroupChange]()
    for change in sorted(changes, key=_depth):
        before = cgroups.get(change.group, _UNSEEN).cpuset or CPUSet()
        assert isinstance(change.value, CPUSet)
        wide = before | change.value
        if wide != before:
            widen.append(msgspec.structs.replace(change, value=wide))
        if wide != change.value:
            narrow.append(change)
    return [*widen, *narrow[::-1]]


def _within_quotas_above(files: Sequence[CgroupChange], cgroups: Mapping[str, Cgroup]) -> Iterator[CgroupChange]:
    """Two strategies decide on one picture: where one limits a group and the other a group below it, the lower one is
    no larger than the upper one is about to be, which v1 would refuse. Its owner raises it when it may."""
    quotas = {
        c.group: c.value
        for c in files
        if c.field == "cpu.quota" and isinstance(c.value, int) and c.value >= 0
        if cgroups.get(c.group, _UNSEEN).period_us == _UNSEEN.period_us
    }
    for change in files:
        least = quotas.get(change.group) if change.field == "cpu.quota" else None
        if least is not None:
            names = change.group.split("/")
            above = ("/".join(names[:depth]) for depth in range(1, len(names)))
            least = min([least, *(quotas.get(group, least) for group in above)])
        unchanged = least in (None, change.value)
        yield change if unchanged else msgspec.structs.replace(change, value=least, gives_back=False)


def _passes(
    files: Iterable[CgroupChange], field: str, cgroups: Mapping[str, Cgroup]
) -> tuple[list[CgroupChange], list[CgroupChange]]:
    """Order the changes: what grows from the top, and what shrinks from the bottom."""
    grow, shrink = list[CgroupChange](), list[CgroupChange]()
    for change in sorted((c for c in files if c.field == field), key=_depth):
        before = present(cgroups.get(change.group, _UNSEEN), field)
        before = _UNSET.get(field, 0) if before is None else before
        assert isinstance(change.value, int) and isinstance(before, int)
        grows = change.value > before
        if UNLIMITED in (change.value, before):
            grows = change.value == UNLIMITED
        (grow if grows else shrink).append(change)
    return grow, shrink[::-1]
