"""A resctrl group that is made."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar

from koordlite.model.change import ResctrlChange
from koordlite.model.place import Place, PlaceKind
from koordlite.resctrl.values import MON_GROUPS

NAME = rf"[^/]*(?:{MON_GROUPS}[^/]+)?"
"""A control group, or `CONTROL/mon_groups/NAME`, as a pattern; the root group has no name."""
PLACE = PlaceKind(
    name="resctrl group",
    form="resctrl/{}",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})"),
    metric=lambda parts: "resctrl group",
    metrics=frozenset({"resctrl group"}),
    update="resctrl-schema",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlGroupChange(ResctrlChange):
    """Make the group `group` if it is absent: a control group, or `CONTROL/mon_groups/NAME` for monitoring."""

    rank: ClassVar[int] = 31

    group: str

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.group)

    def describe(self) -> str:
        """The value in one line."""
        return "made"
