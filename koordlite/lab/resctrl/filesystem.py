"""The resctrl file system of the emulated node, as Linux 5.15 to 6.14 with the hardware an `RDT` describes.

As far as an agent uses it: control and monitor groups, `schemata`, `tasks`, `info` and counters. Behaves as recorded on
Linux 6.1 and 6.12 (`rdtgroup.c`): every refusal has the kernel's errno and its words in `last_cmd_status`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence

import msgspec

from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import RDT, Bandwidth, Cache, Machine, Monitoring, driven
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import Entry, File, Folder, constant, refusal
from koordlite.lab.resctrl import schemata
from koordlite.lab.resctrl.rmids import RMIDs
from koordlite.lab.resctrl.schemata import Columns, DomainLayout, Rejected, Schema

POINT = "/sys/fs/resctrl"
OPTIONS = ("cdp", "cdpl2", "mba_MBps", "debug")
"""Options for mounting, in the order of /proc/mounts."""
MONITORS = "mon_groups"
LONGEST_WRITE = 4096
MOST_PID = 2**31 - 1


class RDTGroup(msgspec.Struct, eq=False):
    """A control group, or a monitor group when it has a parent."""

    name: str
    closid: int = 0
    rmid: int = 0
    parent: RDTGroup | None = None
    mode: str = "shareable"
    monitors: dict[str, RDTGroup] = msgspec.field(default_factory=dict)

    @property
    def control(self) -> RDTGroup:
        """The control group: itself, or the one it monitors a part of."""
        return self.parent or self


class LastStatus:
    """The messages of the last command."""

    def __init__(self) -> None:
        self.text = ""

    def __str__(self) -> str:
        return self.text or "ok\n"

    def clear(self) -> None:
        """Clear the status, as commands do that start afresh."""
        self.text = ""

    def add(self, message: str) -> None:
        """Append one line."""
        self.text += f"{message}\n"

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


Reader = Callable[[], str]
Writer = Callable[[bytes], None]


class EmulatedResctrl:
    """The file system, mounted or not; `folder` goes to /sys/fs/resctrl. `options` are what it is mounted with, None
    while it is not."""

    def __init__(self, machine: Machine, rdt: RDT, processes: Processes) -> None:
        self.rdt = driven(rdt)
        self.layout = DomainLayout(machine, rdt)
        self.columns = Columns(self.rdt)
        self.processes, self.status = processes, LastStatus()
        monitoring = self.rdt.monitoring
        self.rmids = RMIDs(self.rdt, monitoring, self.layout) if monitoring else None
        self.options: frozenset[str] | None = None
        self.schemas: dict[str, Schema] = {}
        """Resources that can be allocated, with the registers' values by cache id and CLOSID."""
        self.root = RDTGroup("")
        self.groups: dict[str, RDTGroup] = {"": self.root}
        """Control groups by name; the root's is empty."""
        self.home: dict[int, RDTGroup] = {}
        """Group of each thread that was moved."""
        self.folder = Folder()
        if machine.resctrl is not None:
            self.mount(machine.resctrl)

    def mount(self, options: str = "") -> None:
        """Mount it with options that this machine has: the root group with everything in it."""
        self.options = frozenset(options.split(",")) & set(OPTIONS)
        self.schemas = schemata.mounted(self.rdt, self.layout, self.options)
        self.status.clear()
        self.root, self.home = RDTGroup(""), {}
        self.groups = {"": self.root}
        self.fill(self.folder, self.root)
        self.folder.entries["info"] = self._info()
        self.folder.make, self.folder.remove = self._make_control, self._remove_control
        if self.rmids:
            self.rmids.start(0)

    @property
    def mount_options(self) -> str:
        """Its options as /proc/mounts shows them; empty while it is not mounted."""
        if self.options is None:
            return ""
        return ",".join(["rw", "relatime", *(word for word in OPTIONS if word in self.options)])

    def home_of(self, tid: int) -> RDTGroup:
        """The control or monitor group a thread is in."""
        return self.home.get(tid, self.root)

    def hardware_rmid(self, group: RDTGroup, cache_id: int, part: int = 0) -> int:
        """The number by which the hardware counts a group, in one of the NUMA nodes of a cache."""
        rmids = self.rmids.hardware(cache_id, group.rmid) if self.rmids else [0]
        return rmids[min(part, len(rmids) - 1)]

    def proc_text(self, tid: int) -> str:
        """The content of /proc/TID/cpu_resctrl_groups."""
        if self.options is None:
            return "res:\nmon:\n"
        home = self.home_of(tid)
        return f"res:{home.control.name or '/'}\nmon:{home.name if home.parent else ''}\n"

    # ── groups ──

    def fill(self, folder: Folder, group: RDTGroup) -> None:
        """Put the files and folders of a group into its folder."""
        folder.entries.update(self.group_files(group))
        if self.rmids is None:
            return
        folder.entries["mon_data"] = self.counter_folder(group)
        if group.parent is None:
            monitors = Folder()
            monitors.make = lambda name: self._make_monitor(monitors, group, name)
            monitors.remove = lambda name: self._remove_monitor(monitors, group, name)
            folder.entries[MONITORS] = monitors

    def _make_control(self, name: str) -> None:
        """mkdir in the root: takes a CLOSID and an RMID; 6.9 and later take the CLOSID before the RMID."""
        self.check_name(name)
        if not self.rdt.can_allocate:
            raise refusal(errno.EPERM)
        group = RDTGroup(name)
        if self.rdt.since(6, 9):
            group.closid = self._closid()
        group.rmid = self._rmid()
        try:
            if not self.rdt.since(6, 9):
                group.closid = self._closid()
            for schema in self.schemas.values():
                schema.put(group.closid, self.first_values(schema))
        except OSError:
            self._free_rmid(group)
            raise
        self.groups[name] = group
        self.folder.entries[name] = self._new_folder(group)

    def _make_monitor(self, folder: Folder, control: RDTGroup, name: str) -> None:
        self.check_name(name)
        if name == MONITORS:
            raise refusal(errno.EPERM)
        group = control.monitors[name] = RDTGroup(name, control.closid, self._rmid(), control)
        folder.entries[name] = self._new_folder(group)

    def _new_folder(self, group: RDTGroup) -> Folder:
        folder = Folder(make=no_groups)
        self.fill(folder, group)
        return folder

    def check_name(self, name: str) -> None:
        """Refuse a group that cannot be made."""
        if "\n" in name:
            raise refusal(errno.EINVAL)

    def _rmid(self) -> int:
        if self.rmids is None:
            return 0
        try:
            return self.rmids.take()
        except OSError as error:
            raise self.status.refusal(error.errno or errno.ENOSPC, "Out of RMIDs") from error

    def _closid(self) -> int:
        in_use = {group.closid for group in self.groups.values()}
        free = set(range(schemata.closids(self.schemas.values()))) - in_use
        if not free:
            raise self.status.refusal(errno.ENOSPC, "Out of CLOSIDs")
        return min(free)

    def first_values(self, schema: Schema) -> dict[int, int]:
        """The values of a new group, by cache id; OSError ENOSPC when there are none."""
        return dict.fromkeys(schema.domains, schema.full)

    def _remove_control(self, name: str) -> None:
        """rmdir: threads go to the root, monitor groups go with it."""
        group = self.groups.get(name) if name else None
        if group is None:
            raise refusal(errno.EPERM)
        for each in (group, *group.monitors.values()):
            self.remove(each, self.root)
        del self.groups[name], self.folder.entries[name]

    def _remove_monitor(self, folder: Folder, control: RDTGroup, name: str) -> None:
        """rmdir: threads stay in the control group."""
        self.remove(control.monitors[name], control)
        del control.monitors[name], folder.entries[name]

    def remove(self, group: RDTGroup, into: RDTGroup) -> None:
        """The group is gone: its threads go into another one."""
        self.home |= {tid: into for tid, home in self.home.items() if home is group}
        self._free_rmid(group)

    def _free_rmid(self, group: RDTGroup) -> None:
        if self.rmids:
            self.rmids.give_back(group.rmid)

    # ── files ──

    def group_files(self, group: RDTGroup) -> dict[str, Entry]:
        """The files of a control or monitor group, without its folders."""
        files: dict[str, Entry] = {
            "tasks": self.file(group, lambda: self.tasks(group), lambda data: self.write_tasks(group, data))
        }
        if group.parent is None:
            files["mode"] = self.file(group, lambda: f"{group.mode}\n")
            files["schemata"] = self.file(
                group,
                lambda: self.columns.schemata(self.schemas.values(), group.closid),
                lambda data: self._write_schemata(group, data),
            )
        return files

    def file(self, group: RDTGroup, read: Reader, write: Writer | None = None) -> File:
        """A file of a group; at most a page can be written."""

        def writes(data: bytes) -> None:
            if len(data) > LONGEST_WRITE:
                raise refusal(errno.E2BIG)
            if write:
                write(data)

        return File(read, writes if write else None)

    def tasks(self, group: RDTGroup) -> str:
        """The threads of a group, those of its monitor groups included. A machine that only monitors lists nothing in
        its root group."""
        if group.parent is None and not self.rdt.can_allocate:
            return ""
        homes = {id(group), *(id(each) for each in group.monitors.values())}
        return "".join(f"{tid}\n" for tid in self.processes.tids() if id(self.home_of(tid)) in homes)

    def write_tasks(self, group: RDTGroup, data: bytes) -> None:
        """Move one thread, as every kernel understands it."""
        pid = kernel_text.integer(data, low=0, high=MOST_PID, outside=errno.EINVAL)
        self.status.clear()
        if self.processes.find(pid) is None:
            raise self.status.refusal(errno.ESRCH, f"No task {pid}")
        self.move(group, pid)

    def move(self, group: RDTGroup, tid: int) -> None:
        """Move a thread that is there: to a monitor group only within its control group."""
        if group.parent and self.home_of(tid).control is not group.parent:
            raise self.status.refusal(errno.EINVAL, "Can't move task to different control group")
        self.home[tid] = group

    def _write_schemata(self, group: RDTGroup, data: bytes) -> None:
        """All or nothing: what is asked for is read and checked before anything is set."""
        if not data.endswith(b"\n"):
            raise refusal(errno.EINVAL)
        self.status.clear()
        text = data[:-1].decode("utf-8", "replace").split("\0")[0]
        with self.status.judging():
            for name, values in self._requests(group, text).items():
                self.schemas[name].put(group.closid, values)

    def _requests(self, group: RDTGroup, text: str) -> dict[str, dict[int, int]]:
        """Every value a write asks for, by resource and cache id."""
        requests: dict[str, dict[int, int]] = {}
        for line in text.split("\n"):
            name, colon, values_text = line.partition(":")
            name = name.strip(schemata.BLANKS)
            if not colon:
                raise Rejected("Missing ':'")
            if not values_text:
                raise Rejected(f"Missing '{name}' value")
            schema = self.schemas.get(name)
            if schema is None:
                raise Rejected(f"Unknown or unsupported resource name '{name}'")
            values = requests.setdefault(name, {})
            for cache_id, piece in schemata.pieces(values_text):
                if cache_id not in schema.domains:
                    raise Rejected("")
                if schema.mbps:
                    # The software controller takes each value as soon as it is read, duplicates too.
                    schema.put(group.closid, {cache_id: schema.read(piece)})
                    continue
                if cache_id in values:
                    raise Rejected(f"Duplicate domain {cache_id}")
                values[cache_id] = schema.read(piece)
                if schema.cache:
                    self.check_mask(group, schema, cache_id, values[cache_id])
        return requests

    def check_mask(self, group: RDTGroup, schema: Schema, cache_id: int, bits: int) -> None:
        """Rejected for a mask that other groups stand against: none, where all share."""

    # ── counters ──

    def counter_folder(self, group: RDTGroup) -> Folder:
        """The folder of counters: one folder for each cache."""
        caches: dict[str, Entry] = {f"mon_L3_{i:02}": self.cache_counters(group, i) for i in self.layout.ids(3)}
        return Folder(caches, make=no_groups)

    def cache_counters(self, group: RDTGroup, cache_id: int) -> Folder:
        """Counters of a cache over all its NUMA nodes, and a folder for each node where they are counted apart."""
        parts, clusters = self.layout.parts(cache_id), self.layout.clusters(cache_id)
        folder = Folder(self._events(group, cache_id, parts), make=no_groups)
        for number in parts if clusters else ():
            part = Folder(self._events(group, cache_id, [number]), make=no_groups)
            folder.entries[f"mon_sub_L3_{clusters[number]:02}"] = part
        return folder

    def _events(self, group: RDTGroup, cache_id: int, parts: Sequence[int]) -> dict[str, Entry]:
        events = self.rdt.monitoring.events if self.rdt.monitoring else ()
        return {
            event: self.file(group, lambda event=event: f"{self.total(group, cache_id, parts, event)}\n")  # type: ignore[misc]
            for event in events
        }

    def total(self, group: RDTGroup, cache_id: int, parts: Sequence[int], event: str) -> str:
        """The sum over a control group and its monitor groups, in bytes."""
        return (
            str(sum(map(self.rmids.counters.bytes, self.places(group, cache_id, parts, event)))) if self.rmids else ""
        )

    def places(
        self, group: RDTGroup, cache_id: int, parts: Sequence[int], event: str
    ) -> Iterator[tuple[int, int, str]]:
        """The counters of a control group and its monitor groups."""
        for member in (group, *group.monitors.values()):
            for part in parts:
                yield cache_id, self.hardware_rmid(member, cache_id, part), event

    # ── info ──

    def _info(self) -> Folder:
        entries: dict[str, Entry] = {"last_cmd_status": File(lambda: str(self.status))}
        for name, schema in self.schemas.items():
            entries[name] = Folder(self.schema_info(schema), make=no_groups)
        if self.rmids and self.rdt.monitoring:
            entries["L3_MON"] = Folder(self.monitoring_info(self.rmids, self.rdt.monitoring), make=no_groups)
        return Folder(entries, make=no_groups)

    def schema_info(self, schema: Schema) -> dict[str, Entry]:
        """Facts about what the hardware can divide."""
        texts: dict[str, object] = {"num_closids": schema.closids}
        match schema.hardware:
            case Cache() as cache:
                texts |= {"cbm_mask": f"{cache.full:x}", "min_cbm_bits": cache.min_bits}
                texts["shareable_bits"] = f"{cache.shareable:x}"
                texts |= {"sparse_masks": int(cache.sparse)} if self.rdt.since(6, 7) else {}
            case Bandwidth() as limit:
                texts |= {"bandwidth_gran": limit.granularity, "delay_linear": int(limit.linear)}
                texts["min_bandwidth"] = limit.minimum
                texts |= {"thread_throttle_mode": limit.throttle} if limit.throttle else {}
        return {name: constant(f"{text}\n") for name, text in texts.items()}

    def monitoring_info(self, rmids: RMIDs, monitoring: Monitoring) -> dict[str, Entry]:
        """Facts about what the hardware can count."""
        return {
            "max_threshold_occupancy": File(lambda: f"{rmids.threshold}\n"),
            "mon_features": constant("".join(f"{event}\n" for event in monitoring.events)),
            "num_rmids": constant(f"{rmids.number}\n"),
        }


def no_groups(name: str) -> None:
    """mkdir where the driver has no groups."""
    raise refusal(errno.EINVAL if "\n" in name else errno.EPERM)
