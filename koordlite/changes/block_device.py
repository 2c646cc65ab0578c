"""Limits and weights of a cgroup at one disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, get_args

import msgspec

from koordlite.formulas import blkio
from koordlite.model.change import Change, KernelChange, Standing
from koordlite.model.picture.blocks import BlockField
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import PlaceKind
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import ForeignWrite

FIELDS: tuple[BlockField, ...] = get_args(BlockField)
PLACE = PlaceKind.of(
    "disk",
    "io:{cgroup}/{device}/{field}",
    cgroup=".*",
    device=r"\d+:\d+",
    field="|".join(map(re.escape, FIELDS)),
    metric=lambda parts: parts[2],
    metrics=FIELDS,
    update="cgroup",
)


class BlockChange(KernelChange, msgspec.Struct, frozen=True):
    """Give `field` of the cgroup `group` the `value` for the disk `device` (`MAJOR:MINOR`)."""

    place_kind: ClassVar[PlaceKind] = PLACE
    # A kernel weighs the use of a disk only once it has a cost model or a latency target.
    rank: ClassVar[int] = 20
    watched: ClassVar[bool] = True

    group: str
    device: str
    field: BlockField
    value: str | None
    """None: what was found before us."""
    gives_back: bool = False
    """Same as in `CgroupChange`."""

    @classmethod
    def source(cls, snapshot: Snapshot) -> object:
        """Limits and weights of groups, by disk."""
        return snapshot.blocks

    def compare(self, snapshot: Snapshot) -> ForeignWrite | Standing:
        """A disk without a line has what the kernel gives it."""
        lines = snapshot.blocks.values.get(self.group, {}).get(self.field)
        if lines is None:
            return Standing.UNSEEN
        present = lines.get(self.device, blkio.UNSET[self.field])
        if blkio.holds(present, self.value or ""):
            return Standing.OURS
        return ForeignWrite(self.place, self.value or "", present)

    @classmethod
    def in_order(cls, changes: Sequence[Change], cgroups: Mapping[str, Cgroup]) -> Iterable[Change]:
        """Order from the top: the root has the model that weights need."""
        return sorted(changes, key=lambda change: change.place.part("cgroup").count("/"))
