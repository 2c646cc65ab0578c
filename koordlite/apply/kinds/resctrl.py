"""The resctrl file system: a group of ours needs no notes, since removing it undoes all that happened to it; and all of
resctrl is undone together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Never

from koordlite.apply import resctrl_undo
from koordlite.apply.kind import C, E, Kind, Undoing, Work
from koordlite.changes import resctrl
from koordlite.changes.resctrl import (
    GroupMade,
    MountMade,
    ResctrlGroupChange,
    ResctrlMountChange,
    ResctrlReturn,
    SchemataChange,
    TasksChange,
    TasksMoved,
)
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import FileEntry
from koordlite.model.change import Entry
from koordlite.model.errors import JournalError
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.resctrl.values import MON_GROUPS, ROOT

THERE = "was there already"


class ResctrlKind(Kind[C, E]):
    """One kind of resctrl."""

    undone_with = "resctrl"
    undo_rank = 40

    def undo(self, entries: Sequence[Entry], back: Undoing) -> Iterable[AppliedStep]:
        """All of resctrl in one go: threads first, the mount last."""
        return resctrl_undo.undo(back.host, entries)


class MadeKind(ResctrlKind[C, E]):
    """Something that is made, and is nobody's when it was not made by us."""

    def is_disowned(self, step: AppliedStep) -> bool:
        """Forget a group that the kernel did not let us make: whoever makes it later keeps it."""
        return not step.ok or step.value == THERE


class InGroup(ResctrlKind[C, E]):
    """Something that is written into a group."""

    def write(self, change: C, work: Work) -> AppliedStep:
        """Not where the group was refused a moment ago, or turned out to be another's: nobody noted what was found in
        it, and the next reading finds and notes it."""
        needed = resctrl.GROUP.place(change.place.part("group"))
        for step in work.done:
            if step.place == needed and (not step.ok or step.value == THERE):
                why = f"its group {THERE}: it is looked at first" if step.ok else "its group was not made"
                return AppliedStep(change.place, change.describe(), False, why)
        return self.put(work.host, change)


def is_ours(group: str, noted: Mapping[Place, Entry]) -> bool:
    """Tell whether we made the group, or are about to."""
    return resctrl.GROUP.place(group) in noted


class ResctrlMount(MadeKind[ResctrlMountChange, MountMade]):
    """Name of the group it belongs to."""

    change = ResctrlMountChange

    def found(self, change: ResctrlMountChange, strategy: str, work: Work) -> Iterator[MountMade]:
        """It is not mounted."""
        if change.place not in work.noted:
            yield MountMade(point=work.host.resctrl.root)

    def set(self, host: Host, change: ResctrlMountChange) -> None:
        """Mount it."""
        host.resctrl.mount()


class ResctrlGroup(MadeKind[ResctrlGroupChange, GroupMade]):
    """A control group, or one for monitoring."""

    change = ResctrlGroupChange

    def found(self, change: ResctrlGroupChange, strategy: str, work: Work) -> Iterator[GroupMade]:
        """Nobody's group becomes ours by being asked for."""
        control, monitors, _ = change.group.partition(MON_GROUPS)
        present = work.host.resctrl.mon_group_names(control) if monitors else work.host.resctrl.group_names()
        if change.group not in present:
            yield GroupMade(group=change.group)

    def set(self, host: Host, change: ResctrlGroupChange) -> str | None:
        """Make it."""
        return None if host.resctrl.make_group(change.group) else THERE


class ResctrlSchemata(InGroup[SchemataChange, FileEntry]):
    """The line of the resource."""

    change = SchemataChange

    def found(self, change: SchemataChange, strategy: str, work: Work) -> Iterator[FileEntry]:
        """The line of a foreign group."""
        if change.place not in work.noted and not is_ours(change.group, work.noted):
            filesystem = work.host.resctrl
            yield FileEntry.of(
                path=f"{filesystem.root}/{change.group}/schemata",
                group=f"{resctrl_undo.PREFIX}{change.group}",
                field=change.resource,
                raw=filesystem.schemata_raw(change.group, change.resource),
                found_at=work.host.clock.wall(),
                strategy=strategy,
            )

    def set(self, host: Host, change: SchemataChange) -> None:
        """The line."""
        host.resctrl.write_schemata(change.group, {change.resource: change.values})

    def present(self, entry: FileEntry, host: Host) -> str | None:
        """The line."""
        group = entry.group.removeprefix(resctrl_undo.PREFIX)
        return host.resctrl.schemata_raw(group, entry.field).decode().strip()


class ResctrlTasks(InGroup[TasksChange, TasksMoved]):
    """One entry a thread: those of one group may have come from several."""

    change = TasksChange
    entry_places = (resctrl.THREAD,)

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
        """Move the threads, and those that begin meanwhile."""
        moved = host.resctrl.move_all(change.group, lambda: _members(host, change.cgroups), known=change.tids)
        return str(moved)

    def has_ended(self, entry: TasksMoved, host: Host, snapshot: Snapshot) -> bool:
        """With its thread."""
        return procfs.start_time(host.files, entry.tid) != entry.start_time

    def present(self, entry: TasksMoved, host: Host) -> str | None:
        """Its group."""
        return host.resctrl.group_of(entry.tid) or "root group"


def _origins(host: Host, present: Mapping[int, str], moved: Sequence[TasksMoved]) -> Iterator[tuple[int, str]]:
    """Groups in which threads, or those that made them, were before we first moved them."""
    noted, into = {entry.tid: entry for entry in moved}, {entry.into for entry in moved}
    held = {group for group in set(present.values()) if into & _names(group)}
    homes = resctrl_undo.homes(host, moved) if held else {}
    for tid, group in present.items():
        entry = noted.get(tid)
        if entry is not None and procfs.start_time(host.files, tid) == entry.start_time:
            yield tid, entry.group
        else:
            home = resctrl_undo.home(host, tid, homes) if group in held else None
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


class GroupReturn(ResctrlKind[ResctrlReturn, Never]):
    """It is undone by the journal, and has no entry of its own."""

    change = ResctrlReturn

    def write(self, change: ResctrlReturn, work: Work) -> AppliedStep:
        """Take what is undone out of the journal: from then on the group is not ours."""
        steps = resctrl_undo.undo(work.host, resctrl_undo.of_group(change, work.journal.entries))
        refused = [step for step in steps if not step.ok]
        error = refused[0].error if refused else ""
        try:
            work.journal.forget({step.place for step in steps} - {step.place for step in refused})
        except JournalError as unwritten:
            error = error or str(unwritten)
        return AppliedStep(change.place, change.describe(), not error, error)


MOUNT, GROUP, SCHEMATA, TASKS, RETURN = (
    ResctrlMount(),
    ResctrlGroup(),
    ResctrlSchemata(),
    ResctrlTasks(),
    GroupReturn(),
)
