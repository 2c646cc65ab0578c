"""Changes of resctrl carried out, and what has to be noted before: the part of `applier` and `writer` about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from koordlite.apply import resctrl_kin as kin
from koordlite.changes.resctrl_group import GroupMade, ResctrlGroupChange
from koordlite.changes.resctrl_mount import MountMade, ResctrlMountChange
from koordlite.changes.resctrl_return import ResctrlReturn
from koordlite.changes.resctrl_schemata import SchemataChange
from koordlite.changes.resctrl_tasks import TasksChange, TasksMoved
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import Entry, FileEntry
from koordlite.model.change import Change, ResctrlChange
from koordlite.model.place import Place
from koordlite.model.status.outcome import AppliedStep
from koordlite.resctrl.values import ROOT

THERE = "was there already"
_MONITORS = "/mon_groups/"


def about_to_be_made(host: Host, changes: Iterable[Change]) -> set[str]:
    """Groups that the changes make, without those that are there: nobody's group becomes ours by being asked for."""
    wanted = {change.group for change in changes if isinstance(change, ResctrlGroupChange)}
    return {group for group in wanted if not _exists(host, group)}


def found(
    host: Host, change: ResctrlChange, strategy: str, *, made: Collection[str], journal: Mapping[Place, Entry]
) -> Iterator[Entry]:
    """What stands where `change` is about to write; `made` are groups about to be made. A group of ours needs no notes:
    removing it undoes all that happened to it."""
    match change:
        case TasksChange():
            yield from _threads(host, change, made, journal)
        case ResctrlMountChange() if change.place not in journal:
            yield MountMade(point=host.resctrl.root)
        case ResctrlGroupChange(group) if group in made:
            yield GroupMade(group=group)
        case SchemataChange(group, resource) if change.place not in journal and not _own(group, made, journal):
            yield FileEntry.of(
                path=f"{host.resctrl.root}/{group}/schemata",
                group=f"resctrl/{group}",
                field=resource,
                raw=host.resctrl.schemata_raw(group, resource),
                found_at=host.clock.wall(),
                strategy=strategy,
            )


def _threads(host: Host, change: TasksChange, made: Collection[str], journal: Mapping[Place, Entry]) -> Iterator[Entry]:
    """Threads whose way back is not simply the end of a group of ours.

    Where some come from a foreign group all are noted: then it matters which of a process's threads did not.
    """
    home = change.group.partition(_MONITORS)[0] if _MONITORS in change.group else ROOT
    moved = [entry for entry in journal.values() if isinstance(entry, TasksMoved)]
    origins = dict(_origins(host, host.resctrl.groups_of(change.tids), moved))
    found = {tid: group for tid, group in origins.items() if not any(_own(each, (), journal) for each in _names(group))}
    if _own(change.group, made, journal) and all(group == home for group in found.values()):
        return
    for tid, group in found.items():
        started = procfs.start_time(host.files, tid)
        if started is not None:
            yield TasksMoved(tid=tid, start_time=started, group=group, into=change.group)


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
    return {group, group.partition(_MONITORS)[0]}


def without_group(change: Change, done: Iterable[AppliedStep]) -> AppliedStep | None:
    """The step that is not taken because the group it needs was refused a moment ago, or turned out to be another's.

    Nobody noted what was found in a group that we were about to make: the next reading finds it there and notes it.
    """
    if not isinstance(change, SchemataChange | TasksChange):
        return None
    needed = ResctrlGroupChange(change.group).place
    for step in done:
        if step.place == needed and (not step.ok or step.value == THERE):
            why = f"its group {THERE}: it is looked at first" if step.ok else "its group was not made"
            return AppliedStep(change.place, change.describe(), False, why)
    return None


def write(host: Host, change: ResctrlChange) -> str:
    """Carry out a change; what was written, in one line."""
    match change:
        case ResctrlMountChange():
            host.resctrl.mount()
        case ResctrlGroupChange(group):
            return change.describe() if host.resctrl.make_group(group) else THERE
        case SchemataChange(group, resource, values):
            host.resctrl.write_schemata(group, {resource: values})
        case TasksChange(group, tids, cgroups):
            return str(host.resctrl.move_all(group, lambda: _members(host, cgroups), known=tids))
        case ResctrlReturn():
            raise TypeError(f"{change.place} is undone by the journal, not written")
    return change.describe()


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


def _exists(host: Host, group: str) -> bool:
    control, monitors, _ = group.partition(_MONITORS)
    return group in (host.resctrl.mon_group_names(control) if monitors else host.resctrl.group_names())


def _own(group: str, made: Collection[str], journal: Mapping[Place, Entry]) -> bool:
    return group in made or ResctrlGroupChange(group).place in journal
