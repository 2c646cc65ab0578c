"""The oom_score_adj of a process."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.model.change import KernelChange
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="oom_score_adj",
    form="oom_score_adj/%s/%s",
    pattern=re.compile(r"oom_score_adj/(?P<pid>\d+)/(?P<start_time>\d+)"),
    metric=lambda parts: "oom_score_adj",
    metrics=frozenset({"oom_score_adj"}),
    update="default",
)


class OOMScoreChange(KernelChange, msgspec.Struct, frozen=True):
    """Give the process `pid`, started at `start_time` (clock ticks since boot), this `oom_score_adj`."""

    rank: ClassVar[int] = 60

    pid: int
    start_time: int
    value: int
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> Place:
        """What is changed; the start tells a process from a later one with the same number."""
        return PLACE.place(str(self.pid), str(self.start_time))

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)


class OOMScoreFound(Entry, frozen=True, kw_only=True, tag="oomScore"):
    """The oom_score_adj of a process before us; `start_time` tells it from a later process of the same id."""

    pid: int
    start_time: int
    """Ticks after boot, column 22 of /proc/PID/stat."""
    value: int
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `OOMScoreChange` names it."""
        return PLACE.place(str(self.pid), str(self.start_time))

    def describe(self) -> str:
        """What comes back, in one line."""
        return str(self.value)

    def undoing(self) -> OOMScoreChange:
        """The change that puts it back."""
        return OOMScoreChange(self.pid, self.start_time, self.value)
