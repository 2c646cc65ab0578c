"""A resctrl group that is given back as it was found."""

from __future__ import annotations

import dataclasses

from koordlite.model.change import ResctrlChange


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlReturn(ResctrlChange):
    """Undo what we did to resctrl group `group`: threads to where they were found, values as found, and the group is
    removed if we made it."""

    group: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/return"
