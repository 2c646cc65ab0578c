"""State of the emulated resctrl: its groups, who is in them, and what is mounted."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping

import msgspec

from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.rdt import RDT, driven
from koordlite.lab.machine.tree import refusal
from koordlite.lab.resctrl.rmids import RMIDs
from koordlite.lab.resctrl.rules import Rejected
from koordlite.lab.resctrl.schema import Columns, DomainLayout, Schema
from koordlite.model.cpuset import EMPTY, CPUSet

BUFFER_BYTES = 512

_WHOLE = frozenset(
    (
        "Bad CPU list/mask",
        "CDP enabled",
        "Can only add CPUs to mongroup that belong to parent",
        "Can only assign online CPUs",
        "Can't drop CPUs from default group",
        "Can't move task to different control group",
        "Cannot be exclusive without CAT/CDP",
        "Cannot move a MON group that monitors CPUs",
        "Cannot pseudo-lock default group",
        "Destination must be a mon_groups subdirectory",
        "Mask out of range",
        "Missing ':'",
        "Missing '=' or non-numeric domain",
        "Missing '=' or non-numeric domain id",
        "Non-numeric event configuration value",
        "Out of CLOSIDs",
        "Out of RMIDs",
        "Overlaps with exclusive group",
        "Overlaps with other group",
        "Pseudo-locking in progress",
        "Pseudo-locking not supported",
        "Schemata overlaps",
        "Source must be a MON group",
        "Unknown or unsupported mode",
    )
)
"""Messages that are copied as a whole or not at all; those with a value in them are cut where the buffer ends."""


class LastStatus:
    """The driver's buffer of 512 bytes: messages are appended, and after one that did not fit no other is added."""

    def __init__(self) -> None:
        self._text = ""
        self._full = False

    def __str__(self) -> str:
        return self._text or "ok\n"

    def clear(self) -> None:
        """Clear the status, as commands do that start afresh."""
        self._text, self._full = "", False

    def add(self, message: str, *, end: str = "\n") -> None:
        """Append one line as far as it fits with its closing NUL."""
        if self._full:
            return
        text = self._text + message + end
        self._full = len(text) >= BUFFER_BYTES
        if not self._full or message not in _WHOLE:
            self._text = text[: BUFFER_BYTES - 1]

    def refusal(self, code: int, message: str) -> OSError:
        """The errno of a command that failed, after its message was noted; an empty one is none."""
        if message:
            self.add(message)
        return refusal(code)

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        """Turn what a rule rejects into EINVAL, and note its text."""
        try:
            yield
        except Rejected as error:
            raise self.refusal(errno.EINVAL, str(error)) from error


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
