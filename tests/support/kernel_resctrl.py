"""The emulated resctrl with all that the kernel's driver does: modes, CPUs, hotplug, mount options, faulty counters.

`koordlite.lab` has what an agent uses; the rest is here, for the recorded sessions that both are held to and for tests
in which others work on the same file system.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import kernel_masks
import msgspec
from kernel_processes import KernelCoreScheduling, KernelProcesses

from koordlite.lab.load.workloads import Workload
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import RDT, Cache, Machine, Monitoring
from koordlite.lab.machine.tree import Entry, File, Folder, refusal
from koordlite.lab.pods.managers import Managers
from koordlite.lab.resctrl.filesystem import (
    MOST_PID,
    OPTIONS,
    EmulatedResctrl,
    LastStatus,
    RDTGroup,
    Reader,
    Writer,
    no_groups,
)
from koordlite.lab.resctrl.rmids import OCCUPANCY, CounterKey, Counters, RMIDs
from koordlite.lab.resctrl.schemata import BLANKS, DECIMAL, HEX, DomainLayout, Rejected, Schema, lowest_run
from koordlite.lab.sandbox import Sandbox
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.wire import objects

BUFFER_BYTES = 512
WORKER_SECONDS = 1.0
EXCLUSIVE, SHAREABLE = "exclusive", "shareable"
_CONFIGURABLE_BITS = 0x7F
_CONFIG_DEFAULTS = {"mbm_total_bytes": 0x7F, "mbm_local_bytes": 0x15}

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


class KernelStatus(LastStatus):
    """The driver's buffer of 512 bytes: messages are appended, and after one that did not fit no other is added."""

    _full = False

    def clear(self) -> None:
        super().clear()
        self._full = False

    def add(self, message: str, *, end: str = "\n") -> None:
        """Append one line as far as it fits with its closing NUL."""
        if self._full:
            return
        text = self.text + message + end
        self._full = len(text) >= BUFFER_BYTES
        if not self._full or message not in _WHOLE:
            self.text = text[: BUFFER_BYTES - 1]


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


class FaultyCounters(Counters):
    """Counters that can be set, and be made to fail."""

    def __init__(self, monitoring: Monitoring, unit_bytes: int) -> None:
        super().__init__(monitoring, unit_bytes)
        self._broken: dict[CounterKey, int] = {}

    def set(self, place: CounterKey, count: int) -> None:
        """Count that the hardware shows, in its own unit."""
        self.raw[place] = count & self.width
        self.repair(place)

    def break_(self, place: CounterKey, code: int) -> None:
        """Let the hardware answer Unavailable (EINVAL) or Error (EIO) until the counter is set again."""
        self._broken[place] = code

    def repair(self, place: CounterKey) -> None:
        """Let the hardware answer again, with what it counted meanwhile."""
        self._broken.pop(place, None)

    def forget(self, cache_id: int) -> None:
        """The driver forgets what it read of the bandwidth at a cache: the next read counts from the hardware's 0."""
        self.moved |= {place: (0, 0) for place in self.moved if place[0] == cache_id}

    def bytes(self, place: CounterKey) -> int:
        """OSError EINVAL or EIO when the hardware cannot say."""
        if place in self._broken:
            raise refusal(self._broken[place])
        return super().bytes(place)


class HotplugLayout(DomainLayout):
    """The caches with online CPUs. A cache whose last CPU goes offline is gone until one comes back."""

    def __init__(self, machine: Machine, rdt: RDT) -> None:
        super().__init__(machine, rdt)
        self.online = machine.cpuset
        self._places: Mapping[int, Mapping[int, int | None]] = {
            2: machine.l2_ids(),
            3: {cpu.id: cpu.l3 for cpu in machine.cpus},
        }
        self._node_of = {cpu.id: cpu.node for cpu in machine.cpus}

    def ids(self, level: int) -> tuple[int, ...]:
        places = {self._places[level].get(cpu) for cpu in self.online}
        return tuple(sorted(place for place in places if place is not None))

    def parts(self, l3: int) -> tuple[int, ...]:
        nodes = {self._node_of[cpu] for cpu in self.online}
        return tuple(number for number, node in enumerate(self.clusters(l3)) if node in nodes) or (0,)


class KernelRMIDs(RMIDs):
    """RMIDs that are kept in limbo while a cache may still hold their lines.

    Follows `monitor.c` of Linux 6.1 and 6.12. A freed RMID waits for the worker, which checks each cache every second;
    it is free again when every cache holds less of it than `max_threshold_occupancy`.
    """

    def __init__(self, rdt: RDT, monitoring: Monitoring, layout: DomainLayout, now: Callable[[], float]) -> None:
        super().__init__(rdt, monitoring, layout)
        self.counters: FaultyCounters = FaultyCounters(monitoring, self.counters.unit_bytes)
        self.now, self.unit, self.most = now, monitoring.unit_bytes, rdt.limit_bytes(layout.machine.l3_bytes)
        self._has_occupancy, self._always = OCCUPANCY in monitoring.events, rdt.since(6, 9)
        self._limbo: dict[int, set[int]] = {}
        self._due = 0.0

    def take(self) -> int:
        """The next free one; OSError EBUSY while the last ones are in limbo, ENOSPC when none is left at all."""
        self.work()
        if not self.free and self._limbo:
            raise refusal(errno.EBUSY)
        return super().take()

    def give_back(self, rmid: int) -> None:
        """A group is gone. Up to Linux 6.8 the cache next to the caller is checked right away."""
        self.work()
        waiting = set(self.layout.ids(3)) if self._has_occupancy else set()
        if waiting and not self._always and self._occupancy(min(waiting), rmid) <= self.threshold:
            waiting.remove(min(waiting))
        if not waiting:
            super().give_back(rmid)
            return
        if not self._limbo:
            self._due = self.now() + WORKER_SECONDS
        self._limbo[rmid] = waiting

    def work(self) -> None:
        """Do the worker's job up to now."""
        while self._limbo and self.now() >= self._due:
            self._due += WORKER_SECONDS
            before = set(self._limbo)
            present = set(self.layout.ids(3))
            for rmid in sorted(self._limbo):
                waiting = self._limbo[rmid] & present
                self._limbo[rmid] = {i for i in waiting if self._occupancy(i, rmid) >= self.threshold}
                if not self._limbo[rmid]:
                    del self._limbo[rmid]
                    self.free.append(rmid)
            if set(self._limbo) == before:
                # It finds the same again and again, until a counter changes.
                self._due = max(self._due, self.now() + WORKER_SECONDS)

    def _occupancy(self, cache_id: int, rmid: int) -> int:
        try:
            return max(self.counters.bytes((cache_id, each, OCCUPANCY)) for each in self.hardware(cache_id, rmid))
        except OSError:
            return self.most


class KernelResctrl(EmulatedResctrl):
    """The whole file system."""

    def __init__(
        self, machine: Machine, rdt: RDT, processes: KernelProcesses, now: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.caller = Caller()
        self.users = 0
        """Open files and current folders inside, which keep it from being unmounted."""
        self.read_only = False
        self.size = len(machine.cpus)
        self.cpus: dict[RDTGroup, CPUSet] = {}
        """CPUs by group; those of the root are the ones that no other control group took."""
        self.removed: set[RDTGroup] = set()
        self._counted: dict[str, dict[int, int]] = {}
        """What each configurable event counts, by cache id, where it was chosen; survives unmounting."""
        super().__init__(msgspec.structs.replace(machine, resctrl=None), rdt, processes)
        processes.born.append(self._inherit)
        self.status: KernelStatus = KernelStatus()
        self.layout: HotplugLayout = HotplugLayout(machine, rdt)
        monitoring = self.rdt.monitoring
        self.rmids: KernelRMIDs | None = KernelRMIDs(self.rdt, monitoring, self.layout, now) if monitoring else None
        self._empty()
        if machine.resctrl is not None:
            self.mount(machine.resctrl)

    @property
    def counters(self) -> FaultyCounters | None:
        """The monitoring hardware; None where there is none."""
        return self.rmids.counters if self.rmids else None

    @property
    def mounted(self) -> bool:
        return self.options is not None

    # ── mounting ──

    def mount(self, options: str = "", *, read_only: bool = False) -> None:
        """mount(2): OSError EINVAL for options this machine has not, EBUSY when it is mounted already."""
        words = self._words(options)
        if self.mounted:
            raise refusal(errno.EBUSY)
        local = self.rdt.monitoring is not None and "mbm_local_bytes" in self.rdt.monitoring.events
        possible = {
            "cdp": self.rdt.l3 is not None and self.rdt.l3.cdp,
            "cdpl2": self.rdt.l2 is not None and self.rdt.l2.cdp,
            "mba_MBps": self.rdt.mb is not None
            and self.rdt.mb.linear
            and local
            and self.layout.clusters_per_cache == 1,
        }
        if any(word in words and not can for word, can in possible.items()):
            raise refusal(errno.EINVAL)
        self.read_only = "ro" in words or (read_only and "rw" not in words)
        self.cpus = {}
        super().mount(options)
        self.cpus[self.root] = self.layout.online

    def remount(self, options: str = "", *, read_only: bool = False) -> None:
        """mount(2) with MS_REMOUNT: only reading and writing changes, the driver's options do not."""
        words = self._words(options)
        if not self.mounted:
            raise refusal(errno.EINVAL)
        self.read_only = "ro" in words or (read_only and "rw" not in words)

    def umount(self) -> None:
        """umount(2): groups vanish, masks and bandwidth are free again. EINVAL when it is not mounted, EBUSY in use."""
        if not self.mounted:
            raise refusal(errno.EINVAL)
        if self.users:
            raise refusal(errno.EBUSY)
        for group in self.everyone():
            if group is self.root:
                self.removed.add(group)
            else:
                self.remove(group, self.root)
        self.home.clear()
        self.options, self.schemas = None, {}
        self._empty()

    @property
    def mount_options(self) -> str:
        shown = super().mount_options
        return f"ro{shown[2:]}" if shown and self.read_only else shown

    def _words(self, options: str) -> set[str]:
        words = {word for word in options.split(",") if word}
        known = {*OPTIONS, "rw", "ro"} - (set() if self.rdt.since(6, 7) else {"debug"})
        if not words <= known:
            raise refusal(errno.EINVAL)
        return words

    def _empty(self) -> None:
        """The bare mount point in sysfs."""

        def absent(_name: str) -> None:
            raise refusal(errno.ENOENT)

        self.folder.entries.clear()
        self.folder.make, self.folder.remove = absent, None

    # ── groups and files ──

    def everyone(self) -> list[RDTGroup]:
        """Control groups, each followed by its monitor groups."""
        return [each for control in self.groups.values() for each in (control, *control.monitors.values())]

    def check_name(self, name: str) -> None:
        self._check_writable()
        super().check_name(name)

    def remove(self, group: RDTGroup, into: RDTGroup) -> None:
        cpus = self.cpus.pop(group, EMPTY)
        if group.parent is None:
            self.cpus[self.root] |= cpus
        self.removed.add(group)
        super().remove(group, into)

    def _remove_control(self, name: str) -> None:
        self._check_writable()
        super()._remove_control(name)

    def _remove_monitor(self, folder: Folder, control: RDTGroup, name: str) -> None:
        self._check_writable()
        super()._remove_monitor(folder, control, name)

    def _check_writable(self) -> None:
        if self.read_only:
            raise refusal(errno.EROFS)

    def group_files(self, group: RDTGroup) -> dict[str, Entry]:
        files = super().group_files(group)
        files["cpus"] = self.file(
            group,
            lambda: f"{kernel_masks.hex_mask(self._cpus(group), self.size)}\n",
            self._cpu_writer(group, False),
        )
        files["cpus_list"] = self.file(group, lambda: f"{self._cpus(group)}\n", self._cpu_writer(group, True))
        options = self.options or frozenset()
        if group.parent is None:
            files["mode"] = self.file(group, lambda: f"{group.mode}\n", lambda data: self._write_mode(group, data))
            files["size"] = self.file(group, lambda: self._sizes(group))
        if "debug" in options and group.parent is None:
            files["ctrl_hw_id"] = self.file(group, lambda: f"{group.closid}\n")
        if "debug" in options and self.rmids:
            files["mon_hw_id"] = self.file(group, lambda: f"{group.rmid}\n")
        if group.parent is None and "mba_MBps" in options and self.rdt.since(6, 14):
            files["mba_MBps_event"] = self.file(group, lambda: "mbm_local_bytes\n")
        return files

    def file(self, group: RDTGroup, read: Reader, write: Writer | None = None) -> File:
        """A file that is dead when its group is, and cannot be written when mounted read-only."""

        def reads() -> str:
            self._check_alive(group)
            return read()

        def writes(data: bytes) -> None:
            self._check_alive(group)
            if write:
                write(data)

        return self._guarded(super().file(group, reads, writes if write else None))

    def _check_alive(self, group: RDTGroup) -> None:
        if group in self.removed:
            raise refusal(errno.ENODEV)

    def _guarded(self, file: File) -> File:
        write = file.write

        def writes(data: bytes) -> None:
            self._check_writable()
            if write:
                write(data)

        return File(file.read, writes if write else None)

    def _sizes(self, group: RDTGroup) -> str:
        """The content of `size`: bytes of cache each mask stands for; bandwidth as it is."""
        text = ""
        for schema in self.schemas.values():
            size = self.layout.machine.l3_bytes if schema.level == 3 else self.layout.machine.l2_bytes
            each = size // schema.cache.bits if schema.cache else 0
            values = schema.values(group.closid).items()
            shown = (f"{i}={each * value.bit_count() if schema.cache else value}" for i, value in values)
            text += self.columns.line(schema, shown)
        return text

    # ── threads ──

    def _inherit(self, tid: int, maker: int) -> None:
        """A thread starts in the group of the one that made it."""
        if maker in self.home:
            self.home[tid] = self.home[maker]

    def tasks(self, group: RDTGroup) -> str:
        """The threads that the reader can see."""
        if self.caller.pids is None:
            return super().tasks(group)
        inside = {tid: pid for pid, tid in self.caller.pids.items()}
        return "".join(f"{inside[tid]}\n" for tid in map(int, super().tasks(group).split()) if tid in inside)

    def write_tasks(self, group: RDTGroup, data: bytes) -> None:
        """Up to Linux 6.6 one number a write, later a list that is carried out until the first failure."""
        written = data.decode("utf-8", "replace").split("\0")[0]
        if self.rdt.since(6, 7):
            self._write_list(group, written)
            return
        pid = _number(written, low=0)
        if pid is None:
            raise refusal(errno.EINVAL)
        self.status.clear()
        self._check_unlocked(group)
        self._move(group, pid)

    def _write_list(self, group: RDTGroup, written: str) -> None:
        self.status.clear()
        self._check_unlocked(group)
        rest: str | None = written
        while rest and rest[0] != "\n":
            piece, _, rest = rest.partition(",")
            piece = piece.strip(BLANKS)
            pid = _number(piece, low=-MOST_PID - 1)
            if pid is None:
                raise self.status.refusal(errno.EINVAL, f"Task list parsing error pid {piece}")
            if pid < 0:
                raise self.status.refusal(errno.EINVAL, f"Invalid pid {pid}")
            try:
                self._move(group, pid)
            except OSError:
                self.status.add(f"Error while processing task {pid}")
                raise

    def _check_unlocked(self, group: RDTGroup) -> None:
        if group.mode.startswith("pseudo"):
            raise self.status.refusal(errno.EINVAL, "Pseudo-locking in progress")

    def _move(self, group: RDTGroup, pid: int) -> None:
        """One thread; 0 is the writer itself."""
        tid = self.caller.find(pid) if pid else self.caller.tid
        if tid is None or (pid and self.processes.find(tid) is None):
            raise self.status.refusal(errno.ESRCH, f"No task {pid}")
        if self.caller.uid:
            # Every thread of the emulated machine is root's.
            raise self.status.refusal(errno.EPERM, f"No permission to move task {pid}")
        self.move(group, tid)
        if not tid:
            del self.home[tid]

    # ── CPUs ──

    def _cpus(self, group: RDTGroup) -> CPUSet:
        return self.cpus.get(group, EMPTY)

    def _cpu_writer(self, group: RDTGroup, as_list: bool) -> Writer:
        parse = kernel_text.cpu_list if as_list else kernel_masks.cpu_mask

        def write(data: bytes) -> None:
            """The status is never cleared by these files, and failures are appended."""
            self._check_unlocked(group)
            try:
                cpus = parse(data.decode("latin-1").split("\0")[0], self.size)
            except OSError as error:
                raise self.status.refusal(error.errno or errno.EINVAL, "Bad CPU list/mask") from error
            if not cpus <= self.layout.online:
                raise self.status.refusal(errno.EINVAL, "Can only assign online CPUs")
            self._assign(group, cpus)

        return write

    def _assign(self, group: RDTGroup, cpus: CPUSet) -> None:
        """CPUs come from the group that had them; those no longer assigned go to the root. Monitor groups lose
        theirs."""
        if group.parent:
            if not cpus <= self._cpus(group.parent):
                message = "Can only add CPUs to mongroup that belong to parent"
                raise self.status.refusal(errno.EINVAL, message)
            others = list(group.parent.monitors.values())
        else:
            if group is self.root and not self._cpus(group) <= cpus:
                raise self.status.refusal(errno.EINVAL, "Can't drop CPUs from default group")
            self.cpus[self.root] |= self._cpus(group) - cpus
            others = [each for each in self.everyone() if each.control is not group]
        self.cpus |= {other: self._cpus(other) - cpus for other in others}
        self.cpus |= dict.fromkeys(group.monitors.values(), EMPTY)
        self.cpus[group] = cpus

    def offline(self, cpu: int) -> None:
        """A CPU leaves its group, and its caches go with their last CPU."""
        self.layout.online -= CPUSet([cpu])
        self.cpus = {group: cpus - CPUSet([cpu]) for group, cpus in self.cpus.items()}
        self._follow()

    def online(self, cpu: int) -> None:
        """A CPU comes back into the root group, a cache with no limit for any group and counting from 0."""
        if cpu in self.layout.online:
            return
        before = self._counting()
        self.layout.online |= CPUSet([cpu])
        self.cpus[self.root] = self._cpus(self.root) | CPUSet([cpu])
        self._follow()
        for cache, part in self._counting() - before if self.rmids else ():
            for group in self.everyone():
                self.rmids.counters.start(cache, self.hardware_rmid(group, cache, part))

    def _counting(self) -> set[tuple[int, int]]:
        """The caches, and the NUMA nodes below each, that something is counted for."""
        return {(cache, part) for cache in self.layout.ids(3) for part in self.layout.parts(cache)}

    def _follow(self) -> None:
        for schema in self.schemas.values():
            free = [schema.full] * schema.closids
            schema.domains = {i: schema.domains.get(i) or [*free] for i in self.layout.ids(schema.level)}

    def counter_folder(self, group: RDTGroup) -> Folder:
        """Caches come and go with their CPUs."""

        def names() -> dict[str, int]:
            return {f"mon_L3_{i:02}": i for i in self.layout.ids(3)}

        return Folder(
            make=no_groups,
            lookup=lambda name: self.cache_counters(group, names()[name]) if name in names() else None,
            folders=names,
        )

    # ── sharing of cache bits ──

    def _write_mode(self, group: RDTGroup, data: bytes) -> None:
        if not data.endswith(b"\n"):
            raise refusal(errno.EINVAL)
        self.status.clear()
        mode = data[:-1].decode("utf-8", "replace").split("\0")[0]
        if mode == group.mode:
            return
        with self.status.judging():
            if mode == "pseudo-locksetup":
                raise Rejected(self._why_not_locked(group))
            if mode not in (SHAREABLE, EXCLUSIVE):
                raise Rejected("Unknown or unsupported mode")
            if mode == EXCLUSIVE:
                caches = [schema for schema in self.schemas.values() if schema.cache]
                if not caches:
                    raise Rejected("Cannot be exclusive without CAT/CDP")
                for schema in caches:
                    if any(self._shares(group, schema, i, bits) for i, bits in schema.values(group.closid).items()):
                        raise Rejected("Schemata overlaps")
            group.mode = mode

    def _why_not_locked(self, group: RDTGroup) -> str:
        if group is self.root:
            return "Cannot pseudo-lock default group"
        if any(name.endswith("CODE") for name in self.schemas):
            return "CDP enabled"
        # Only some old Intel models can do it, and those are not emulated.
        return "Pseudo-locking not supported"

    def check_mask(self, group: RDTGroup, schema: Schema, cache_id: int, bits: int) -> None:
        if any(other.mode == EXCLUSIVE for other in self._overlapping(group, schema, cache_id, bits)):
            raise Rejected("Overlaps with exclusive group")
        if group.mode == EXCLUSIVE and self._shares(group, schema, cache_id, bits):
            raise Rejected("Overlaps with other group")

    def first_values(self, schema: Schema) -> dict[int, int]:
        """In a cache the lowest run of bits that are not exclusive to a group."""
        cache = schema.cache
        if cache is None:
            return super().first_values(schema)
        masks = {i: lowest_run(self._free_bits(schema, cache, i)) for i in schema.domains}
        for cache_id, bits in masks.items():
            if bits.bit_count() < cache.min_bits:
                raise self.status.refusal(errno.ENOSPC, f"No space on {schema.name}:{cache_id}")
        return masks

    def _used(self, group: RDTGroup, schema: Schema, cache_id: int) -> int:
        """Bits of the group in a cache, for code or for data."""
        used = 0
        for half in self.schemas.values():
            used |= half.domains[cache_id][group.closid] if half.name[:2] == schema.name[:2] else 0
        return used

    def _free_bits(self, schema: Schema, cache: Cache, cache_id: int) -> int:
        """Unused bits, bits of hardware, and of groups that share."""
        kept, shared = 0, cache.shareable
        for group in self.groups.values():
            used = self._used(group, schema, cache_id)
            kept |= used
            shared |= used if group.mode == SHAREABLE else 0
        return shared | (cache.full & ~(kept | cache.shareable))

    def _shares(self, group: RDTGroup, schema: Schema, cache_id: int, bits: int) -> bool:
        """Another group or other hardware uses some of these bits."""
        hardware = schema.cache.shareable if schema.cache else 0
        return bool(hardware & bits) or bool(self._overlapping(group, schema, cache_id, bits))

    def _overlapping(self, group: RDTGroup, schema: Schema, cache_id: int, bits: int) -> list[RDTGroup]:
        """Other control groups that use some of these bits, for code or for data."""
        others = (other for other in self.groups.values() if other is not group)
        return [other for other in others if self._used(other, schema, cache_id) & bits]

    def _letters(self, schema: Schema, cache: Cache, cache_id: int) -> str:
        """One letter per bit, the highest first: X hardware and groups, H hardware only, S shared by groups, E
        exclusive, 0 unused."""
        used = {SHAREABLE: 0, EXCLUSIVE: 0}
        for group in self.groups.values():
            used[group.mode] |= schema.domains[cache_id][group.closid]
        letters = ""
        for bit in reversed(range(cache.bits)):
            hardware, shared, own = (bits >> bit & 1 for bits in (cache.shareable, used[SHAREABLE], used[EXCLUSIVE]))
            letters += ("X" if shared else "H") if hardware else "S" if shared else "E" if own else "0"
        return letters

    # ── info and counters ──

    def schema_info(self, schema: Schema) -> dict[str, Entry]:
        cache, entries = schema.cache, super().schema_info(schema)
        if cache:
            entries["bit_usage"] = File(
                lambda: ";".join(f"{i}={self._letters(schema, cache, i)}" for i in schema.domains) + "\n"
            )
        return entries

    def monitoring_info(self, rmids: RMIDs, monitoring: Monitoring) -> dict[str, Entry]:
        assert isinstance(rmids, KernelRMIDs)

        def set_threshold(data: bytes) -> None:
            """Round down to what the hardware counts in; EINVAL above the cache's size."""
            number = kernel_text.integer(data, high=2**64 - 1)
            if not 0 <= number < 1 << 32:
                raise refusal(errno.EINVAL if number < 0 else errno.ERANGE)
            rmids.work()
            if number > rmids.most:
                raise refusal(errno.EINVAL)
            rmids.threshold = number // rmids.unit * rmids.unit

        entries = super().monitoring_info(rmids, monitoring)
        entries["max_threshold_occupancy"] = self._guarded(File(lambda: f"{rmids.threshold}\n", set_threshold))
        configurable = [event for event in monitoring.events if monitoring.configurable and event in _CONFIG_DEFAULTS]
        features = [
            name for event in monitoring.events for name in (event, *[f"{event}_config"] * (event in configurable))
        ]
        entries["mon_features"] = File(lambda: "".join(f"{name}\n" for name in features))
        return entries | {f"{event}_config": self._config(event) for event in configurable}

    def _config(self, event: str) -> File:
        """Kinds of traffic that a bandwidth event of AMD counts, by cache: BMEC. A change makes the counters of both
        events begin again."""
        chosen = self._counted.setdefault(event, {})

        def value(cache_id: int) -> int:
            return chosen.get(cache_id, _CONFIG_DEFAULTS[event])

        def write(data: bytes) -> None:
            if not data.endswith(b"\n"):
                raise refusal(errno.EINVAL)
            self.status.clear()
            with self.status.judging():
                for cache_id, bits in _choices(data[:-1].decode("utf-8", "replace").split("\0")[0]):
                    if cache_id not in self.layout.ids(3):
                        raise Rejected("")
                    if bits != value(cache_id) and self.counters:
                        chosen[cache_id] = bits
                        self.counters.forget(cache_id)

        return self._guarded(File(lambda: ";".join(f"{i}=0x{value(i):02x}" for i in self.layout.ids(3)) + "\n", write))

    def total(self, group: RDTGroup, cache_id: int, parts: Sequence[int], event: str) -> str:
        """The sum over those that can be read, or the word for why there is none: that of the last."""
        values: list[int] = []
        code: int | None = errno.EINVAL
        for place in self.places(group, cache_id, parts, event):
            try:
                values.append(self.counters.bytes(place) if self.counters else 0)
            except OSError as error:
                code = error.errno
        if values:
            return str(sum(values))
        # A sum over NUMA nodes that fails is Unavailable, whatever the hardware answered.
        return "Error" if code == errno.EIO and len(parts) == 1 else "Unavailable"


class GivingManagers(Managers):
    """Managers of kubelet that give a pod, under the static policy, the CPUs that a test names."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.given: dict[str, CPUSet] = {}
        """By pod uid, for its first container."""

    def admit(self, pod: objects.PodObject) -> bool:
        uid = pod.metadata.uid
        if self.node and uid in self.given and pod.spec.containers:
            cpus = self.node.cpus.with_cpus(uid, pod.spec.containers[0].name, self.given[uid])
            self.node = msgspec.structs.replace(self.node, cpus=cpus)
        return super().admit(pod)


class KernelSandbox(Sandbox):
    """An emulated node with the whole resctrl."""

    process_table = KernelProcesses
    core_scheduling = KernelCoreScheduling
    resctrl_driver = KernelResctrl
    processes: KernelProcesses
    resctrl: KernelResctrl | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.resctrl and self.resctrl.rmids:
            self.resctrl.rmids.now = self.clock.monotonic
        self.managers = self.kubelet.managers = GivingManagers(self.machine)
        self.files.place("/var/lib/kubelet/cpu_manager_state", File(self.managers.checkpoint))

    def stats(self, uid: str) -> Stats:
        """Demand and use of the pod; KeyError for a pod that was never started."""
        return Stats(self.kubelet.running[uid].workloads)

    def fail(self, path: str, code: int, times: int = 1) -> None:
        """Let the next `times` accesses of `path` fail with errno `code`."""
        before, left = self.files.trouble, [code] * times

        def trouble(verb: str, at: str) -> int | None:
            return left.pop() if at == path and left else before(verb, at) if before else None

        self.files.trouble = trouble


class Stats:
    """Of the containers of a pod: millicores in the last step, CPU-µs since the start."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self.used_milli = sum(each.used_milli for each in workloads)
        self.wanted_us = sum(each.wanted_us for each in workloads)
        self.used_us = sum(each.used_us for each in workloads)
        self.unmet_us = self.wanted_us - self.used_us


def _number(written: str, *, low: int) -> int | None:
    try:
        return kernel_text.integer(written.encode("latin-1", "replace"), low=low, high=MOST_PID, outside=errno.EINVAL)
    except OSError:
        return None


def _choices(text: str) -> Iterator[tuple[int, int]]:
    """`ID=HEX;ID=HEX`: each piece takes effect as it is read."""
    pieces = text.split(";")
    if pieces[-1] == "":
        pieces.pop()
    for piece in pieces:
        number, equals, value = piece.strip(BLANKS).partition("=")
        if not DECIMAL.match(number):
            raise Rejected("Missing '=' or non-numeric domain id")
        match = HEX.match(value) if equals else None
        if match is None:
            raise Rejected("Non-numeric event configuration value")
        if int(match[1], 16) > _CONFIGURABLE_BITS:
            raise Rejected(f"Invalid event configuration: max valid mask is 0x{_CONFIGURABLE_BITS:02x}")
        yield int(number), int(match[1], 16)
