"""The values of one resource of a resctrl group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from koordlite.changes.resctrl_group import NAME
from koordlite.model.change import ResctrlChange
from koordlite.model.place import Place, PlaceKind
from koordlite.resctrl import schemata
from koordlite.resctrl.values import BANDWIDTHS, CACHES

RESOURCES = (*CACHES, *BANDWIDTHS)
PLACE = PlaceKind(
    name="resctrl schemata",
    form="resctrl/%s/%s",
    pattern=re.compile(rf"resctrl/(?P<group>{NAME})/(?P<resource>{'|'.join(RESOURCES)})"),
    metric=lambda parts: f"resctrl {parts[1]}",
    metrics=frozenset(f"resctrl {resource}" for resource in RESOURCES),
    update="resctrl-schema",
)


class SchemataChange(ResctrlChange, msgspec.Struct, frozen=True):
    """Give `resource` (L3, L3CODE, L3DATA, L2, MB, SMBA) of resctrl group `group` these values by cache id."""

    rank: ClassVar[int] = 32

    group: str
    resource: str
    values: Mapping[int, int]

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.group, self.resource)

    def describe(self) -> str:
        """The value in one line."""
        return schemata.line(self.resource, self.values).partition(":")[2]
