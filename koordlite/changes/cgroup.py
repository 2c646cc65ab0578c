"""A value of a cgroup."""

from __future__ import annotations

import dataclasses

from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.change import KernelChange
from koordlite.model.cpuset import CPUSet


@dataclasses.dataclass(frozen=True, slots=True)
class CgroupChange(KernelChange):
    """Give `field` of the cgroup `group` (path below the cgroup root, `kubepods/besteffort`) the `value`."""

    group: str
    field: CgroupField
    value: CPUSet | int
    gives_back: bool = False
    """What was found, or what its owner wants, stands there again: from then on the place is not ours any more."""

    @property
    def place(self) -> str:
        """What is changed, for messages and for finding two writers of one file."""
        return f"{self.group}/{self.field}"
