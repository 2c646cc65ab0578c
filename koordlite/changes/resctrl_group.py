"""A resctrl group that is made."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.model.change import ResctrlChange
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind
from koordlite.resctrl.values import MON_GROUPS

NAME = rf"[^/]*(?:{MON_GROUPS}[^/]+)?"
"""A control group, or `CONTROL/mon_groups/NAME`, as a pattern; the root group has no name."""
PLACE = PlaceKind(
    name="resctrl group",
    form="resctrl/%s",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})"),
    metric=lambda parts: "resctrl group",
    metrics=frozenset({"resctrl group"}),
    update="resctrl-schema",
)


class ResctrlGroupChange(ResctrlChange, msgspec.Struct, frozen=True):
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


class GroupMade(Entry, frozen=True, kw_only=True, tag="group"):
    """A resctrl group that was not there before us; undone by removing it."""

    group: str

    @property
    def strategy(self) -> str:
        """One strategy alone programs resctrl."""
        return "resctrl"

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of resctrl."""
        return (below_root(self.group),)

    @property
    def place(self) -> Place:
        """The place as `ResctrlGroupChange` names it."""
        return PLACE.place(self.group)

    def describe(self) -> str:
        """What comes back, in one line."""
        return "(removed)"


def below_root(group: str) -> str:
    """The group without the empty name of the root group: `/mon_groups/NAME` monitors the root."""
    return group.removeprefix(MON_GROUPS)
