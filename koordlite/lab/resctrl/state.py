"""State of the emulated resctrl: its groups, who is in them, and what is mounted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.rdt import RDT, driven
from koordlite.lab.resctrl.layout import DomainLayout
from koordlite.lab.resctrl.rmids import RMIDs
from koordlite.lab.resctrl.schema import Columns, Schema
from koordlite.lab.resctrl.status import LastStatus
from koordlite.model.cpuset import EMPTY, CPUSet


class RDTGroup(msgspec.Struct, eq=False):
    """A control group, or a monitor group when it has a parent. `cpus` of the root are those no other group took."""

    name: str
    closid: int = 0
    rmid: int = 0
    parent: RDTGroup | None = None
    cpus: CPUSet = EMPTY
    mode: str = "shareable"
    monitors: dict[str, RDTGroup] = msgspec.field(default_factory=dict)
    removed: bool = False

    @property
    def control(self) -> RDTGroup:
        """The control group: itself, or the one it monitors a part of."""
        return self.parent or self


class Caller(msgspec.Struct, frozen=True):
    """A caller that reads and writes: thread, user, and how his PID namespace numbers the threads (None: as the machine
    does)."""

    tid: int = 0
    """0: no thread of the emulated machine."""
    uid: int = 0
    pids: Mapping[int, int] | None = None
    """Number inside → thread id."""

    def find(self, pid: int) -> int | None:
        """The thread that the caller means; None when he sees none of that number."""
        return pid if self.pids is None else self.pids.get(pid)

    def shown(self, tids: Iterator[int]) -> Iterator[int]:
        """These threads as the caller sees them."""
        if self.pids is None:
            return tids
        inside = {tid: pid for pid, tid in self.pids.items()}
        return (inside[tid] for tid in tids if tid in inside)


class State:
    """The driver's memory. Groups and schemas live as long as the mount, RMIDs and status as long as the machine."""

    def __init__(self, machine: Machine, rdt: RDT, processes: Processes, now: Callable[[], float]) -> None:
        self.rdt = driven(rdt)
        self.layout = DomainLayout(machine, rdt)
        self.columns = Columns(self.rdt)
        self.status = LastStatus()
        self.processes = processes
        monitoring = self.rdt.monitoring
        self.rmids = RMIDs(self.rdt, monitoring, self.layout, now) if monitoring else None
        self.caller = Caller()
        self.counted: dict[str, dict[int, int]] = {}
        """What each configurable event counts, by cache id, where it was chosen; survives unmounting."""
        self.options: frozenset[str] | None = None
        """What it is mounted with; None while it is not."""
        self.read_only = False
        self.schemas: dict[str, Schema] = {}
        self.root = RDTGroup("")
        self.controls: dict[str, RDTGroup] = {"": self.root}
        """The root (without a name) and the control groups by name."""
        self.home: dict[int, RDTGroup] = {}
        """Group of each thread that was moved."""

    def groups(self) -> Iterator[RDTGroup]:
        """Control groups, each followed by its monitor groups."""
        for control in self.controls.values():
            yield control
            yield from control.monitors.values()

    def home_of(self, tid: int) -> RDTGroup:
        """The group of a thread."""
        return self.home.get(tid, self.root)

    def empty(self, group: RDTGroup, into: RDTGroup) -> None:
        """Move every thread of a group."""
        for tid, home in self.home.items():
            if home is group:
                self.home[tid] = into

    @property
    def fresh(self) -> RDTGroup:
        """A root group as it is after mounting."""
        return RDTGroup("", cpus=self.layout.online)
