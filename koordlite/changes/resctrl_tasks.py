"""Threads that move into a resctrl group."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar

from koordlite.changes.resctrl_group import NAME
from koordlite.model.change import ResctrlChange
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="resctrl tasks",
    form="resctrl/{}/tasks",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})/tasks"),
    metric=lambda parts: "resctrl tasks",
    metrics=frozenset({"resctrl tasks"}),
    update="resctrl-schema",
)

THREAD = PlaceKind(
    name="resctrl thread",
    form="resctrl/{}/tasks/{}@{}",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})/tasks/(?P<tid>\d+)@(?P<start_time>\d+)"),
    metric=lambda parts: "resctrl tasks",
    metrics=frozenset({"resctrl tasks"}),
    update="resctrl-schema",
)
"""One thread: those of one group may have come from several. The start tells it from a later one of the same id."""


@dataclasses.dataclass(frozen=True, slots=True)
class TasksChange(ResctrlChange):
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
