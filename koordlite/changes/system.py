"""Settings of the whole kernel, the CPUs of interrupts, and the oom_score_adj of one process."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.formulas.system_settings import FEATURES, PATHS
from koordlite.model.change import Entry, KernelChange, Standing
from koordlite.model.cpuset import CPUSet
from koordlite.model.place import Place, PlaceKind
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import ForeignWrite

SETTING = PlaceKind.of(
    "system",
    "system/{name}",
    metrics=PATHS,
    metric=lambda parts: FEATURES if parts[0] not in PATHS else parts[0],
    name=rf"{'|'.join(map(re.escape, PATHS))}|{FEATURES}/.+",
)
OOM_SCORE = PlaceKind.of("oom_score_adj", "oom_score_adj/{pid}/{start_time}", pid=r"\d+", start_time=r"\d+")
"""The start tells a process from a later one with the same number."""
OOM_SCORE_AT_CREATION = PlaceKind.of(
    "oom_score_adj_at_creation", "oom_score_adj/at-creation/{cgroup}", metrics=OOM_SCORE.metrics, cgroup=".+"
)
"""A container that was created with a number of ours, until its processes are known."""
INTERRUPT = PlaceKind.of("interrupt", "irq/{number}", metrics=("smp_affinity",), number=r"\d+|default")
"""The CPUs that may take an interrupt of a device, and those of interrupts that are set up later."""


class SystemFileChange(KernelChange, msgspec.Struct, frozen=True):
    """Give the kernel setting `name` (`vm.min_free_kbytes`, a key of `host.system_files`) the text `value`."""

    place_kind: ClassVar[PlaceKind] = SETTING
    rank: ClassVar[int] = 60

    name: str
    value: str
    gives_back: bool = False
    """Same as in `CgroupChange`."""


class OOMScoreChange(KernelChange, msgspec.Struct, frozen=True):
    """Give the process `pid`, started at `start_time` (clock ticks since boot), this `oom_score_adj`."""

    place_kind: ClassVar[PlaceKind] = OOM_SCORE
    rank: ClassVar[int] = 60

    pid: int
    start_time: int
    value: int
    gives_back: bool = False
    """Same as in `CgroupChange`."""


class OOMScoreEntry(Entry, frozen=True, kw_only=True, tag="oomScore"):
    """The oom_score_adj of a process before us."""

    pid: int
    start_time: int
    """Ticks after boot, column 22 of /proc/PID/stat."""
    value: int
    strategy: str = ""

    def undoing(self) -> OOMScoreChange:
        """The change that puts it back."""
        return OOMScoreChange(self.pid, self.start_time, self.value)


class OOMScoreAtCreation(Entry, frozen=True, kw_only=True, tag="oomScoreAtCreation"):
    """The oom_score_adj that the processes of a container would have, which the runtime was asked to create with ours.
    A process forked before the first round about the container has inherited ours as well."""

    group: str
    value: int
    ours: int
    strategy: str = ""

    @property
    def groups(self) -> tuple[str, ...]:
        """The container's."""
        return (self.group,)

    @property
    def place(self) -> Place:
        """The container."""
        return OOM_SCORE_AT_CREATION.place(self.group)

    def describe(self) -> str:
        """The number that comes back."""
        return str(self.value)


class IRQChange(KernelChange, msgspec.Struct, frozen=True):
    """Let these CPUs take the interrupt `number` of `device`."""

    place_kind: ClassVar[PlaceKind] = INTERRUPT
    rank: ClassVar[int] = 62
    watched: ClassVar[bool] = True

    number: str
    device: str
    """An interrupt that has the number later is another one, and is left alone."""
    value: CPUSet
    gives_back: bool = False
    """Same as in `CgroupChange`."""

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


class IRQEntry(Entry, frozen=True, kw_only=True, tag="irqAffinity"):
    """The CPUs that might take an interrupt before us."""

    number: str
    device: str
    cpus: str
    strategy: str = ""

    def undoing(self) -> IRQChange:
        """The change that puts them back."""
        return IRQChange(self.number, self.device, CPUSet.parse(self.cpus), gives_back=True)
