"""Making, removing and moving resctrl groups: mkdir, rmdir and rename.

Follows `rdtgroup.c` of Linux 6.1 and 6.12; 6.9 and later take the CLOSID before the RMID.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlite.lab.machine.tree import Entry, Folder, refusal
from koordlite.lab.resctrl import files, modes
from koordlite.lab.resctrl import info as resctrl_info
from koordlite.lab.resctrl import schema as resctrl_schema
from koordlite.lab.resctrl.state import RDTGroup, State

_MONITORS = "mon_groups"
_BELOW_ROOT = 0o555
_IN_GROUP = 0o755


class Groups:
    """The folders of one mounted resctrl and the groups behind them."""

    def __init__(self, state: State, top: Folder) -> None:
        self._state, self._top = state, top
        self._group: dict[Folder, RDTGroup] = {}
        """Folders of groups."""
        self._monitored: dict[Folder, RDTGroup] = {}
        """Folders `mon_groups`."""
        self._informational: set[Entry | None] = set()
        """The folder `info` and those in it."""

    def begin(self) -> None:
        """Right after mounting: the root group with everything in it."""
        state = self._state
        state.root = state.fresh
        state.controls, state.home = {"": state.root}, {}
        self._group.clear()
        self._monitored.clear()
        self._fill(self._top, state.root, _BELOW_ROOT)
        self._top.entries["info"] = info = resctrl_info.folder(state)
        self._informational = {info, *(each for each in info.entries.values() if isinstance(each, Folder))}
        for each in self._informational:
            if isinstance(each, Folder):
                each.move = self._mover(each)
        self._top.make, self._top.remove = self._make_control, self._remove_control
        if state.rmids:
            state.rmids.start(0)

    def end(self) -> None:
        """Before unmounting: no group is left."""
        for group in list(self._state.groups()):
            group.removed = True
            if group is not self._state.root:
                self._free_rmid(group)
        self._state.home.clear()

    def _fill(self, folder: Folder, group: RDTGroup, mode: int) -> None:
        folder.entries.update(files.of_group(self._state, group))
        self._group[folder] = group
        folder.move = self._mover(folder)
        if self._state.rmids is None:
            return
        folder.entries["mon_data"] = data = files.mon_data(self._state, group, mode)
        data.move = self._mover(data)
        if group.parent is None:
            monitors = Folder(mode=mode)
            monitors.make = lambda name: self._make_monitor(monitors, group, name)
            monitors.remove = lambda name: self._remove_monitor(monitors, group, name)
            monitors.move = self._mover(monitors)
            self._monitored[monitors] = group
            folder.entries[_MONITORS] = monitors

    def _make_control(self, name: str) -> None:
        """mkdir in the root: takes a CLOSID, an RMID, and the bits that are not exclusive to a group."""
        self._check(name)
        if not self._state.rdt.can_allocate:
            raise refusal(errno.EPERM)
        group = RDTGroup(name)
        if self._state.rdt.since(6, 9):
            group.closid = self._closid()
            group.rmid = self._rmid()
        else:
            group.rmid = self._rmid()
            try:
                group.closid = self._closid()
            except OSError:
                self._free_rmid(group)
                raise
        self._initialize(group)
        self._state.controls[name] = group
        self._top.entries[name] = self._new_folder(group)

    def _make_monitor(self, folder: Folder, control: RDTGroup, name: str) -> None:
        self._check(name)
        if name == _MONITORS:
            raise refusal(errno.EPERM)
        group = RDTGroup(name, control.closid, self._rmid(), control)
        control.monitors[name] = group
        folder.entries[name] = self._new_folder(group)

    def _new_folder(self, group: RDTGroup) -> Folder:
        folder = Folder(make=files.refused)
        self._fill(folder, group, _IN_GROUP)
        return folder

    def _check(self, name: str) -> None:
        if self._state.read_only:
            raise refusal(errno.EROFS)
        if "\n" in name:
            raise refusal(errno.EINVAL)

    def _rmid(self) -> int:
        if self._state.rmids is None:
            return 0
        try:
            return self._state.rmids.take()
        except OSError as error:
            raise self._state.status.refusal(error.errno or errno.ENOSPC, "Out of RMIDs") from error

    def _closid(self) -> int:
        taken = {group.closid for group in self._state.controls.values()}
        free = set(range(resctrl_schema.closids(self._state.schemas.values()))) - taken
        if not free:
            raise self._state.status.refusal(errno.ENOSPC, "Out of CLOSIDs")
        return min(free)

    def _initialize(self, group: RDTGroup) -> None:
        """First values of a new group, resource by resource; its RMID goes back when there is no space."""
        try:
            for schema in self._state.schemas.values():
                cache = schema.cache
                full = dict.fromkeys(schema.domains, schema.full)
                values = modes.first_masks(self._state, schema, cache) if cache else full
                schema.put(group.closid, values)
        except OSError:
            self._free_rmid(group)
            raise

    def _remove_control(self, name: str) -> None:
        """rmdir: threads and CPUs go to the root, monitor groups go with it."""
        self._check_writable()
        state = self._state
        group = state.controls.get(name) if name else None
        if group is None:
            raise refusal(errno.EPERM)
        state.root.cpus |= group.cpus
        for each in (group, *group.monitors.values()):
            state.empty(each, state.root)
            each.removed = True
            self._free_rmid(each)
        del state.controls[name], self._top.entries[name]

    def _remove_monitor(self, folder: Folder, control: RDTGroup, name: str) -> None:
        """rmdir: threads stay in the control group."""
        self._check_writable()
        group = control.monitors.pop(name)
        self._state.empty(group, control)
        group.removed = True
        self._free_rmid(group)
        del folder.entries[name]

    def _check_writable(self) -> None:
        if self._state.read_only:
            raise refusal(errno.EROFS)

    def _free_rmid(self, group: RDTGroup) -> None:
        if self._state.rmids:
            self._state.rmids.give_back(group.rmid)

    def _mover(self, folder: Folder) -> Callable[[str, Folder, str], None] | None:
        """Rename from `folder`; older kernels know none."""
        if not self._state.rdt.since(6, 5):
            return None
        return lambda name, into, new: self._move(folder, name, into, new)

    def _move(self, folder: Folder, name: str, into: Folder, new: str) -> None:
        """rename: only monitor groups, to another name or to another control group, with their threads."""
        self._check_writable()
        status = self._state.status
        entry, control = folder.find(name), self._monitored.get(into)
        if entry in self._informational or into in self._informational:
            raise refusal(errno.ENOENT)
        status.clear()
        if not isinstance(entry, Folder):
            # This message has no end of line.
            status.add("Source and destination must be directories", end="")
            raise refusal(errno.EPERM)
        group = self._group.get(entry)
        if group is None or group.parent is None:
            raise status.refusal(errno.EPERM, "Source must be a MON group")
        if control is None or new == _MONITORS:
            raise status.refusal(errno.EPERM, "Destination must be a mon_groups subdirectory")
        if group.cpus and group.parent is not control:
            raise status.refusal(errno.EPERM, "Cannot move a MON group that monitors CPUs")
        if new in into.entries:
            raise refusal(errno.EEXIST)
        into.entries[new] = folder.entries.pop(name)
        control.monitors[new] = group.parent.monitors.pop(name)
        group.name, group.parent, group.closid = new, control, control.closid
