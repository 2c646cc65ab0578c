"""The mount of the resctrl file system."""

from __future__ import annotations

import dataclasses
import re

from koordlite.model.change import ResctrlChange
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="resctrl mount",
    form="resctrl mount",
    pattern=re.compile("resctrl mount"),
    metric=lambda parts: "resctrl mount",
    metrics=frozenset({"resctrl mount"}),
    update="resctrl-schema",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlMountChange(ResctrlChange):
    """Mount the resctrl file system where it belongs, without options."""

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place()
