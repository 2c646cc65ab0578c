"""A setting of the whole kernel."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.formulas.system_settings import FEATURES, PATHS
from koordlite.model.change import KernelChange
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="system",
    form="system/%s",
    pattern=re.compile(rf"system/(?P<name>{'|'.join(map(re.escape, PATHS))}|{FEATURES}/.+)"),
    metric=lambda parts: FEATURES if parts[0] not in PATHS else parts[0],
    metrics=frozenset(PATHS),
    update="default",
)


class SystemFileChange(KernelChange, msgspec.Struct, frozen=True):
    """Give the kernel setting `name` (`vm.min_free_kbytes`, a key of `host.system_files`) the text `value`."""

    rank: ClassVar[int] = 60

    name: str
    value: str
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.name)

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)
