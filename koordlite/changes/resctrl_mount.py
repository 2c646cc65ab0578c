"""The mount of the resctrl file system."""

from __future__ import annotations

import dataclasses

from koordlite.model.change import ResctrlChange


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlMountChange(ResctrlChange):
    """Mount the resctrl file system where it belongs, without options."""

    @property
    def place(self) -> str:
        """What is changed."""
        return "resctrl/mount"
