"""The resctrl file system of the emulated node, as Linux 5.15 to 6.14 with the hardware an `RDT` describes.

Behaves as recorded on Linux 6.1 and 6.12: every refusal has the kernel's errno and its words in `last_cmd_status`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.rdt import RDT
from koordlite.lab.machine.tree import Folder, refusal
from koordlite.lab.resctrl import cpus, schema
from koordlite.lab.resctrl import groups as resctrl_groups
from koordlite.lab.resctrl.rmids import Counters
from koordlite.lab.resctrl.schema import Schema
from koordlite.lab.resctrl.state import Caller, RDTGroup, State

POINT = "/sys/fs/resctrl"

_OPTIONS = ("cdp", "cdpl2", "mba_MBps", "debug")
"""What can be asked for when mounting, in the order of /proc/mounts."""


class EmulatedResctrl:
    """The file system, mounted or not; `folder` goes to /sys/fs/resctrl."""

    def __init__(
        self, machine: Machine, rdt: RDT, processes: Processes, now: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._state = State(machine, rdt, processes, now)
        self.folder = Folder()
        self._groups = resctrl_groups.Groups(self._state, self.folder)
        self.users = 0
        """Open files and current folders inside, which keep it from being unmounted."""
        processes.born.append(self._inherit)
        self._empty()
        if machine.resctrl is not None:
            self.mount(machine.resctrl)

    @property
    def mounted(self) -> bool:
        """It is there."""
        return self._state.options is not None

    @property
    def options(self) -> str:
        """Its options as /proc/mounts shows them; empty while it is not mounted."""
        if self._state.options is None:
            return ""
        access = "ro" if self._state.read_only else "rw"
        return ",".join([access, "relatime", *(word for word in _OPTIONS if word in self._state.options)])

    @property
    def groups(self) -> Mapping[str, RDTGroup]:
        """Control groups by name; the root's is empty."""
        return self._state.controls

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """Resources that can be allocated, with the registers' values by cache id and CLOSID."""
        return self._state.schemas

    @property
    def counters(self) -> Counters | None:
        """The monitoring hardware, for the code that lets it count; None where there is none."""
        return self._state.rmids.counters if self._state.rmids else None

    @property
    def caller(self) -> Caller:
        """The caller that reads and writes; the machine's root by default."""
        return self._state.caller

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self._state.caller = caller

    def group_of(self, tid: int) -> str:
        """The control group a thread is in; the root's name is empty."""
        return self._state.home_of(tid).control.name

    def home_of(self, tid: int) -> RDTGroup:
        """The control or monitor group a thread is in."""
        return self._state.home_of(tid)

    def parts(self, cache_id: int) -> int:
        """Into how many NUMA nodes a cache is counted."""
        return max(1, len(self._state.layout.clusters(cache_id)))

    def hardware_rmid(self, group: RDTGroup, cache_id: int, part: int = 0) -> int:
        """The number by which the hardware counts a group, in one of the NUMA nodes of a cache."""
        rmids = self._state.rmids.hardware(cache_id, group.rmid) if self._state.rmids else [0]
        return rmids[min(part, len(rmids) - 1)]

    def proc_text(self, tid: int) -> str:
        """The content of /proc/TID/cpu_resctrl_groups."""
        if not self.mounted:
            return "res:\nmon:\n"
        home = self._state.home_of(tid)
        return f"res:{home.control.name or '/'}\nmon:{home.name if home.parent else ''}\n"

    def mount(self, options: str = "", *, read_only: bool = False) -> None:
        """mount(2): OSError EINVAL for options this machine has not, EBUSY when it is mounted already."""
        words = _words(options)
        self._check_known(words)
        if self.mounted:
            raise refusal(errno.EBUSY)
        self._check_possible(words)
        state = self._state
        state.options = frozenset(words & set(_OPTIONS))
        state.read_only = "ro" in words or (read_only and "rw" not in words)
        state.schemas = schema.mounted(state.rdt, state.layout, state.options)
        state.status.clear()
        self._groups.begin()
        self.folder.mount_point, self.folder.mode = True, 0o555

    def remount(self, options: str = "", *, read_only: bool = False) -> None:
        """mount(2) with MS_REMOUNT: only reading and writing changes, the driver's options do not."""
        words = _words(options)
        self._check_known(words)
        if not self.mounted:
            raise refusal(errno.EINVAL)
        self._state.read_only = "ro" in words or (read_only and "rw" not in words)

    def umount(self) -> None:
        """umount(2): groups vanish, masks and bandwidth are free again. EINVAL when it is not mounted, EBUSY in use."""
        if not self.mounted:
            raise refusal(errno.EINVAL)
        if self.users:
            raise refusal(errno.EBUSY)
        self._groups.end()
        self._state.options, self._state.schemas = None, {}
        self._empty()

    def offline(self, cpu: int) -> None:
        """Take a CPU from the machine."""
        cpus.go_offline(self._state, cpu)

    def online(self, cpu: int) -> None:
        """Give it back."""
        cpus.come_online(self._state, cpu)

    def _empty(self) -> None:
        """The bare mount point in sysfs."""
        self.folder.entries.clear()
        self.folder.make, self.folder.remove, self.folder.move = _no_entry, None, None
        self.folder.mount_point, self.folder.mode = False, 0o755

    def _inherit(self, tid: int, maker: int) -> None:
        """A thread starts in the group of the one that made it."""
        home = self._state.home.get(maker)
        if home is not None:
            self._state.home[tid] = home

    def _check_known(self, words: set[str]) -> None:
        known = {*_OPTIONS, "rw", "ro"} - (set() if self._state.rdt.since(6, 7) else {"debug"})
        if not words <= known:
            raise refusal(errno.EINVAL)

    def _check_possible(self, words: set[str]) -> None:
        rdt = self._state.rdt
        local = rdt.monitoring is not None and "mbm_local_bytes" in rdt.monitoring.events
        possible = {
            "cdp": rdt.l3 is not None and rdt.l3.cdp,
            "cdpl2": rdt.l2 is not None and rdt.l2.cdp,
            "mba_MBps": rdt.mb is not None and rdt.mb.linear and local and self._state.layout.clusters_per_cache == 1,
        }
        if any(word in words and not can for word, can in possible.items()):
            raise refusal(errno.EINVAL)


def _words(options: str) -> set[str]:
    return {word for word in options.split(",") if word}


def _no_entry(_name: str) -> None:
    raise refusal(errno.ENOENT)
