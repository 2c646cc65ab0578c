"""The mount of the resctrl file system."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.model.change import ResctrlChange
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="resctrl mount",
    form="resctrl mount",
    pattern=re.compile("resctrl mount"),
    metric=lambda parts: "resctrl mount",
    metrics=frozenset({"resctrl mount"}),
    update="resctrl-schema",
)


class ResctrlMountChange(ResctrlChange, msgspec.Struct, frozen=True):
    """Mount the resctrl file system where it belongs, without options."""

    rank: ClassVar[int] = 30

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place()

    def describe(self) -> str:
        """The value in one line."""
        return "mounted"


class MountMade(Entry, frozen=True, kw_only=True, tag="mount"):
    """resctrl was not mounted before us; undone by unmounting it."""

    point: str

    @property
    def strategy(self) -> str:
        """One strategy alone programs resctrl."""
        return "resctrl"

    @property
    def place(self) -> Place:
        """The place as `ResctrlMountChange` names it."""
        return PLACE.place()

    def describe(self) -> str:
        """What comes back, in one line."""
        return "(unmounted)"
