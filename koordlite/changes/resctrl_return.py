"""A resctrl group that is given back as it was found."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.changes.resctrl_group import NAME
from koordlite.model.change import ResctrlChange
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="resctrl return",
    form="resctrl/%s/return",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})/return"),
    metric=lambda parts: "resctrl return",
    metrics=frozenset({"resctrl return"}),
    update="resctrl-schema",
)


class ResctrlReturn(ResctrlChange, msgspec.Struct, frozen=True):
    """Undo what we did to resctrl group `group`: threads to where they were found, values as found, and the group is
    removed if we made it."""

    # Threads that leave a group of ours for another are out before the group is given back.
    rank: ClassVar[int] = 34

    group: str

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.group)

    def describe(self) -> str:
        """The value in one line."""
        return "as found"
