"""Threads that move into a resctrl group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from koordlite.apply import resctrl_kin as kin
from koordlite.apply.kind import Work
from koordlite.apply.resctrl_kind import InGroup, is_ours
from koordlite.changes.resctrl_tasks import PLACE, THREAD, TasksChange, TasksMoved
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.model.snapshot import Snapshot
from koordlite.resctrl.values import MON_GROUPS, ROOT


class ResctrlTasks(InGroup[TasksChange, TasksMoved]):
    """One entry a thread: those of one group may have come from several."""

    change = TasksChange
    places = (PLACE, THREAD)

    def found(self, change: TasksChange, strategy: str, work: Work) -> Iterator[TasksMoved]:
        """Threads whose way back is not simply the end of a group of ours.

        Where some come from a foreign group all are noted: then it matters which of a process's threads did not.
        """
        host, journal = work.host, work.journal.by_place
        home = change.group.partition(MON_GROUPS)[0] if MON_GROUPS in change.group else ROOT
        moved = [entry for entry in journal.values() if isinstance(entry, TasksMoved)]
        origins = dict(_origins(host, host.resctrl.groups_of(change.tids), moved))
        found = {
            tid: group for tid, group in origins.items() if not any(is_ours(each, journal) for each in _names(group))
        }
        if is_ours(change.group, work.noted) and all(group == home for group in found.values()):
            return
        for tid, group in found.items():
            started = procfs.start_time(host.files, tid)
            if started is not None:
                yield TasksMoved(tid=tid, start_time=started, group=group, into=change.group)

    def set(self, host: Host, change: TasksChange) -> str:
        """Those that begin meanwhile follow."""
        moved = host.resctrl.move_all(change.group, lambda: _members(host, change.cgroups), known=change.tids)
        return str(moved)

    def has_ended(self, entry: TasksMoved, host: Host, seen: Snapshot) -> bool:
        """With its thread."""
        return procfs.start_time(host.files, entry.tid) != entry.start_time

    def present(self, entry: TasksMoved, host: Host) -> str | None:
        """Its group."""
        return host.resctrl.group_of(entry.tid) or "root group"


def _origins(host: Host, present: Mapping[int, str], moved: Sequence[TasksMoved]) -> Iterator[tuple[int, str]]:
    """Where threads, or those that made them, were before we first moved them."""
    noted, into = {entry.tid: entry for entry in moved}, {entry.into for entry in moved}
    held = {group for group in set(present.values()) if into & _names(group)}
    homes = kin.homes(host, moved) if held else {}
    for tid, group in present.items():
        entry = noted.get(tid)
        if entry is not None and procfs.start_time(host.files, tid) == entry.start_time:
            yield tid, entry.group
        else:
            home = kin.home(host, tid, homes) if group in held else None
            yield tid, group if home is None else home


def _names(group: str) -> set[str]:
    """A group and its control group, which are one unless it is a monitoring group."""
    return {group, group.partition(MON_GROUPS)[0]}


def _members(host: Host, cgroups: Iterable[str]) -> list[int]:
    """Threads that are in the cgroups now."""
    members: list[int] = []
    for group in cgroups:
        try:
            members += host.cgroups.threads(group)
        except OSError as error:
            if not vanished(error):
                raise
    return members


KIND = ResctrlTasks()
