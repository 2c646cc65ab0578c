"""The CPUs that may take an interrupt of a device, and those of interrupts that are set up later."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.model.change import Entry, KernelChange, Standing
from koordlite.model.cpuset import CPUSet
from koordlite.model.place import PlaceKind
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import ForeignWrite

PLACE = PlaceKind(
    name="interrupt",
    form="irq/%s",
    pattern=re.compile(r"irq/(?P<number>\d+|default)"),
    metrics=frozenset({"smp_affinity"}),
    update="default",
)


class IRQChange(KernelChange, msgspec.Struct, frozen=True):
    """Let these CPUs take the interrupt `number` of `device`."""

    place_kind: ClassVar[PlaceKind] = PLACE
    rank: ClassVar[int] = 62
    watched: ClassVar[bool] = True

    number: str
    device: str
    """An interrupt that has the number later is another one, and is left alone."""
    value: CPUSet
    gives_back: bool = False
    """As in `CgroupChange`."""

    @classmethod
    def source(cls, snapshot: Snapshot) -> object:
        """The interrupts."""
        return snapshot.irqs

    def compare(self, snapshot: Snapshot) -> ForeignWrite | Standing:
        """An interrupt that ended takes its CPUs along."""
        if not snapshot.irqs:
            return Standing.UNSEEN
        irq = snapshot.irqs.get(self.number)
        if irq is None or irq.device != self.device:
            return Standing.GONE
        return Standing.OURS if irq.cpus == self.value else ForeignWrite(self.place, str(self.value), str(irq.cpus))


class IRQFound(Entry, frozen=True, kw_only=True, tag="irqAffinity"):
    """The CPUs that might take an interrupt before us."""

    number: str
    device: str
    cpus: str
    strategy: str = ""

    def undoing(self) -> IRQChange:
        """The change that puts them back."""
        return IRQChange(self.number, self.device, CPUSet.parse(self.cpus), gives_back=True)
