"""A value of a cgroup."""

from __future__ import annotations

import dataclasses
import re
from typing import get_args

from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.change import KernelChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place, PlaceKind

FIELDS: tuple[CgroupField, ...] = get_args(CgroupField)
PLACE = PlaceKind(
    name="cgroup",
    form="{}/{}",
    pattern=re.compile(rf"(?P<cgroup>.*)/(?P<field>{'|'.join(map(re.escape, FIELDS))})"),
    metric=lambda parts: parts[1],
    metrics=frozenset(FIELDS),
    update="cgroup",
)


@dataclasses.dataclass(frozen=True, slots=True)
class CgroupChange(KernelChange):
    """Give `field` of the cgroup `group` (path below the cgroup root, `kubepods/besteffort`) the `value`."""

    group: str
    field: CgroupField
    value: CPUSet | int
    gives_back: bool = False
    """What was found, or what its owner wants, stands there again: from then on the place is not ours any more."""

    @property
    def place(self) -> Place:
        """What is changed, for messages and for finding two writers of one file."""
        return PLACE.place(self.group, self.field)


def present(cgroup: Cgroup, field: str) -> CPUSet | int | None:
    """What stands in the file of `field`; None where it is absent or nobody asked to see it."""
    match field:
        case "cpuset.cpus":
            return cgroup.cpuset
        case "cpu.quota":
            return cgroup.quota_us
        case _:
            return cgroup.values.get(field)
