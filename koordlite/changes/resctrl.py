"""The resctrl file system: its mount, groups that are made or given back, their values and their threads."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from koordlite.model.change import Entry, ResctrlChange
from koordlite.model.place import Place, PlaceKind
from koordlite.resctrl import schemata
from koordlite.resctrl.values import BANDWIDTHS, CACHES, MON_GROUPS

RESOURCES = (*CACHES, *BANDWIDTHS)
_GROUP = f"[^/]*(?:{MON_GROUPS}[^/]+)?"
"""A control group, or `CONTROL/mon_groups/NAME`; the root group has no name."""
_resctrl = functools.partial(PlaceKind.of, update="resctrl-schema")
MOUNT = _resctrl("resctrl mount", "resctrl mount")
GROUP = _resctrl("resctrl group", "resctrl/{group}", group=_GROUP)
RETURN = _resctrl("resctrl return", "resctrl/{group}/return", group=_GROUP)
TASKS = _resctrl("resctrl tasks", "resctrl/{group}/tasks", group=_GROUP)
THREAD = _resctrl(
    "resctrl thread",
    "resctrl/{group}/tasks/{tid}@{start_time}",
    metrics=TASKS.metrics,
    group=_GROUP,
    tid=r"\d+",
    start_time=r"\d+",
)
"""One thread: those of one group may have come from several. The start tells it from a later one of the same id."""
SCHEMATA = _resctrl(
    "resctrl schemata",
    "resctrl/{group}/{resource}",
    metrics=[f"resctrl {resource}" for resource in RESOURCES],
    metric=lambda parts: f"resctrl {parts[1]}",
    group=_GROUP,
    resource="|".join(RESOURCES),
)


class ResctrlMountChange(ResctrlChange, msgspec.Struct, frozen=True):
    """Mount the resctrl file system where it belongs, without options."""

    place_kind: ClassVar[PlaceKind] = MOUNT
    rank: ClassVar[int] = 30

    def describe(self) -> str:
        """The deed."""
        return "mounted"


class ResctrlGroupChange(ResctrlChange, msgspec.Struct, frozen=True):
    """Make the group `group` if it is absent: a control group, or `CONTROL/mon_groups/NAME` for monitoring."""

    place_kind: ClassVar[PlaceKind] = GROUP
    rank: ClassVar[int] = 31

    group: str

    def describe(self) -> str:
        """The deed."""
        return "made"


class SchemataChange(ResctrlChange, msgspec.Struct, frozen=True):
    """Give `resource` (L3, L3CODE, L3DATA, L2, MB, SMBA) of resctrl group `group` these values by cache id."""

    place_kind: ClassVar[PlaceKind] = SCHEMATA
    rank: ClassVar[int] = 32

    group: str
    resource: str
    values: Mapping[int, int]

    def describe(self) -> str:
        """The values as in the file `schemata`."""
        return schemata.line(self.resource, self.values).partition(":")[2]


class TasksChange(ResctrlChange, msgspec.Struct, frozen=True):
    """Move these threads into resctrl group `group` (empty: the root group)."""

    place_kind: ClassVar[PlaceKind] = TASKS
    rank: ClassVar[int] = 33

    group: str
    tids: tuple[int, ...]
    cgroups: tuple[str, ...] = ()
    """Original cgroups: threads that begin there while the others are moved follow."""

    def describe(self) -> str:
        """The number of threads."""
        return f"{len(self.tids)} threads"


class ResctrlReturn(ResctrlChange, msgspec.Struct, frozen=True):
    """Undo what we did to resctrl group `group`: threads to where they were found, values as found, and the group is
    removed if we made it."""

    place_kind: ClassVar[PlaceKind] = RETURN
    # Threads that leave a group of ours for another are out before the group is given back.
    rank: ClassVar[int] = 34

    group: str

    def describe(self) -> str:
        """The state that comes back."""
        return "as found"


class _ResctrlEntry(Entry, frozen=True, kw_only=True):
    @property
    def strategy(self) -> str:
        """The strategy that alone programs resctrl."""
        return "resctrl"


class MountEntry(_ResctrlEntry, frozen=True, kw_only=True, tag="mount"):
    """resctrl was not mounted before us; undone by unmounting it."""

    point: str

    @property
    def place(self) -> Place:
        """The mount."""
        return MOUNT.place()

    def describe(self) -> str:
        """The state that comes back."""
        return "(unmounted)"


class GroupEntry(_ResctrlEntry, frozen=True, kw_only=True, tag="group"):
    """A resctrl group that was not there before us; undone by removing it."""

    group: str

    @property
    def groups(self) -> tuple[str, ...]:
        """The group itself."""
        return (below_root(self.group),)

    @property
    def place(self) -> Place:
        """The group."""
        return GROUP.place(self.group)

    def describe(self) -> str:
        """The state that comes back."""
        return "(removed)"


class ThreadEntry(_ResctrlEntry, frozen=True, kw_only=True, tag="task"):
    """A thread and the resctrl group it was in; `start_time` tells it from a later thread of the same id."""

    tid: int
    start_time: int
    """Ticks after boot, column 22 of /proc/TID/stat."""
    group: str
    """Original group; empty is the root group."""
    into: str = ""
    """Group that it is moved into. A thread that another program has moved since is not put back."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Its group before us, and ours."""
        return (below_root(self.group), below_root(self.into))

    @property
    def place(self) -> Place:
        """A place for each thread: threads of one group may have come from several."""
        return THREAD.place(self.into, str(self.tid), str(self.start_time))

    def describe(self) -> str:
        """The group that it returns to."""
        return self.group or "root group"


def below_root(group: str) -> str:
    """The group without the empty name of the root group: `/mon_groups/NAME` monitors the root."""
    return group.removeprefix(MON_GROUPS)
