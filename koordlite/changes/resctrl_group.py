"""A resctrl group that is made."""

from __future__ import annotations

import dataclasses

from koordlite.model.change import ResctrlChange


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlGroupChange(ResctrlChange):
    """Make the group `group` if it is absent: a control group, or `CONTROL/mon_groups/NAME` for monitoring."""

    group: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}"
