"""Threads that move into a resctrl group."""

from __future__ import annotations

import dataclasses

from koordlite.model.change import ResctrlChange


@dataclasses.dataclass(frozen=True, slots=True)
class TasksChange(ResctrlChange):
    """Move these threads into resctrl group `group` (empty: the root group)."""

    group: str
    tids: tuple[int, ...]
    cgroups: tuple[str, ...] = ()
    """Where they were found: threads that begin there while the others are moved follow."""

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/tasks"
