"""The values of one resource of a resctrl group."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from koordlite.model.change import ResctrlChange


@dataclasses.dataclass(frozen=True, slots=True)
class SchemataChange(ResctrlChange):
    """Give `resource` (L3, L3CODE, L3DATA, L2, MB, SMBA) of resctrl group `group` these values by cache id."""

    group: str
    resource: str
    values: Mapping[int, int]

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/{self.resource}"
