"""Threads that move into a resctrl group."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.changes.resctrl_group import NAME, below_root
from koordlite.model.change import ResctrlChange
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="resctrl tasks",
    form="resctrl/%s/tasks",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})/tasks"),
    metric=lambda parts: "resctrl tasks",
    metrics=frozenset({"resctrl tasks"}),
    update="resctrl-schema",
)

THREAD = PlaceKind(
    name="resctrl thread",
    form="resctrl/%s/tasks/%s@%s",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})/tasks/(?P<tid>\d+)@(?P<start_time>\d+)"),
    metric=lambda parts: "resctrl tasks",
    metrics=frozenset({"resctrl tasks"}),
    update="resctrl-schema",
)
"""One thread: those of one group may have come from several. The start tells it from a later one of the same id."""


class TasksChange(ResctrlChange, msgspec.Struct, frozen=True):
    """Move these threads into resctrl group `group` (empty: the root group)."""

    rank: ClassVar[int] = 33

    group: str
    tids: tuple[int, ...]
    cgroups: tuple[str, ...] = ()
    """Where they were found: threads that begin there while the others are moved follow."""

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.group)

    def describe(self) -> str:
        """The value in one line."""
        return f"{len(self.tids)} threads"


class TasksMoved(Entry, frozen=True, kw_only=True, tag="task"):
    """A thread and the resctrl group it was in; `start_time` tells it from a later thread of the same id."""

    tid: int
    start_time: int
    """Ticks after boot, column 22 of /proc/TID/stat."""
    group: str
    """Where it was found; empty is the root group."""
    into: str = ""
    """Where we put it. A thread that another program has moved since is not put back."""

    @property
    def strategy(self) -> str:
        """One strategy alone programs resctrl."""
        return "resctrl"

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of resctrl."""
        return (below_root(self.group), below_root(self.into))

    @property
    def place(self) -> Place:
        """One place a thread: threads of one group may have come from several."""
        return THREAD.place(self.into, str(self.tid), str(self.start_time))

    def describe(self) -> str:
        """What comes back, in one line."""
        return self.group or "root group"
