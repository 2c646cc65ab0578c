"""What a cgroup has of one disk."""

from __future__ import annotations

import dataclasses
import re
from typing import get_args

from koordlite.model.change import KernelChange
from koordlite.model.picture.blocks import BlockField
from koordlite.model.place import Place, PlaceKind

FIELDS: tuple[BlockField, ...] = get_args(BlockField)
PLACE = PlaceKind(
    name="disk",
    form="io:{}/{}/{}",
    pattern=re.compile(rf"io:(?P<cgroup>.*)/(?P<device>\d+:\d+)/(?P<field>{'|'.join(map(re.escape, FIELDS))})"),
    metric=lambda parts: parts[2],
    metrics=frozenset(FIELDS),
    update="cgroup",
)


@dataclasses.dataclass(frozen=True, slots=True)
class BlockChange(KernelChange):
    """Give `field` of the cgroup `group` the `value` for the disk `device` (`MAJOR:MINOR`)."""

    group: str
    device: str
    field: BlockField
    value: str | None
    """None: what was found before us."""
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.group, self.device, self.field)
