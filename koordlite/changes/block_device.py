"""What a cgroup has of one disk."""

from __future__ import annotations

import dataclasses

from koordlite.model.blocks import BlockField
from koordlite.model.change import KernelChange


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
    def place(self) -> str:
        """What is changed."""
        return f"{BLOCK}{self.group}/{self.device}/{self.field}"


BLOCK = "io:"
"""How places of disks begin. No cgroup is called so."""
