"""A setting of the whole kernel."""

from __future__ import annotations

import dataclasses

from koordlite.model.change import KernelChange


@dataclasses.dataclass(frozen=True, slots=True)
class SystemFileChange(KernelChange):
    """Give the kernel setting `name` (`vm.min_free_kbytes`, a key of `host.system_files`) the text `value`."""

    name: str
    value: str
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> str:
        """What is changed."""
        return f"system/{self.name}"
