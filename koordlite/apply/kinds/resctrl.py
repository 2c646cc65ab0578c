"""The resctrl file system: a group of ours needs no notes, since removing it undoes all that happened to it; and all of
resctrl is undone together."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Never

from koordlite.apply.kind import GONE, C, E, Kind, Undoing, Work
from koordlite.changes import resctrl
from koordlite.changes.resctrl import (
    GroupEntry,
    MountEntry,
    ResctrlGroupChange,
    ResctrlMountChange,
    ResctrlReturn,
    SchemataChange,
    TasksChange,
    ThreadEntry,
)
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import FileEntry
from koordlite.model.change import Entry
from koordlite.model.errors import JournalError, KoordliteError, kernel_words
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.resctrl.values import MON_GROUPS, ROOT

THERE = "was there already"
PREFIX = "resctrl/"
_MOST_ANCESTORS = 8
_NOT_MOUNTED = (errno.EINVAL, errno.ENOENT)


class ResctrlKind(Kind[C, E]):
    """A kind of resctrl."""

    undone_with = "resctrl"
    undo_rank = 40

    def undo(self, entries: Sequence[Entry], back: Undoing) -> Iterable[AppliedStep]:
        """All of resctrl in one go: threads first, the mount last."""
        return undo_all(back.host, entries)


class MadeKind(ResctrlKind[C, E]):
    """Something that is made, and is nobody's when it was not made by us."""

    def is_disowned(self, step: AppliedStep) -> bool:
        """Forget a group that the kernel did not let us make: whoever makes it later keeps it."""
        return not step.ok or step.value == THERE


class InGroup(ResctrlKind[C, E]):
    """Something that is written into a group."""

    def write(self, change: C, work: Work) -> AppliedStep:
        """Write the change, except in a group that was refused a moment ago or turned out to be another's: its content
        was not noted, and the next reading notes it."""
        needed = resctrl.GROUP.place(change.place.part("group"))
        for step in work.done:
            if step.place == needed and (not step.ok or step.value == THERE):
                why = f"its group {THERE}: it is looked at first" if step.ok else "its group was not made"
                return AppliedStep(change.place, change.describe(), False, why)
        return self.put(work.host, change)


def is_ours(group: str, noted: Mapping[Place, Entry]) -> bool:
    """Tell whether we made the group, or are about to."""
    return resctrl.GROUP.place(group) in noted


class ResctrlMount(MadeKind[ResctrlMountChange, MountEntry]):
    """The file system itself."""

    change = ResctrlMountChange

    def originals(self, change: ResctrlMountChange, strategy: str, work: Work) -> Iterator[MountEntry]:
        """It is not mounted."""
        if change.place not in work.noted:
            yield MountEntry(point=work.host.resctrl.root)

    def set(self, host: Host, change: ResctrlMountChange) -> None:
        """Mount it."""
        host.resctrl.mount()


class ResctrlGroup(MadeKind[ResctrlGroupChange, GroupEntry]):
    """A control group, or one for monitoring."""

    change = ResctrlGroupChange

    def originals(self, change: ResctrlGroupChange, strategy: str, work: Work) -> Iterator[GroupEntry]:
        """Nobody's group becomes ours by being asked for."""
        control, monitors, _ = change.group.partition(MON_GROUPS)
        present = work.host.resctrl.mon_group_names(control) if monitors else work.host.resctrl.group_names()
        if change.group not in present:
            yield GroupEntry(group=change.group)

    def set(self, host: Host, change: ResctrlGroupChange) -> str | None:
        """Make it."""
        return None if host.resctrl.make_group(change.group) else THERE


class ResctrlSchemata(InGroup[SchemataChange, FileEntry]):
    """The line of the resource."""

    change = SchemataChange

    def originals(self, change: SchemataChange, strategy: str, work: Work) -> Iterator[FileEntry]:
        """The line of a foreign group."""
        if change.place not in work.noted and not is_ours(change.group, work.noted):
            filesystem = work.host.resctrl
            yield FileEntry.of(
                path=f"{filesystem.root}/{change.group}/schemata",
                group=f"{PREFIX}{change.group}",
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
        return host.resctrl.schemata_raw(entry.place.part("group"), entry.field).decode().strip()


class ResctrlTasks(InGroup[TasksChange, ThreadEntry]):
    """Threads, each with an entry: those of one group may have come from several."""

    change = TasksChange
    entry_places = (resctrl.THREAD,)

    def originals(self, change: TasksChange, strategy: str, work: Work) -> Iterator[ThreadEntry]:
        """Threads whose way back is not simply the end of a group of ours.

        Where some come from a foreign group all are noted: then it matters which of a process's threads did not.
        """
        host, journal = work.host, work.journal.by_place
        home = change.group.partition(MON_GROUPS)[0] if MON_GROUPS in change.group else ROOT
        moved = [entry for entry in journal.values() if isinstance(entry, ThreadEntry)]
        origins = dict(_origins(host, host.resctrl.groups_of(change.tids), moved))
        foreign = {
            tid: group for tid, group in origins.items() if not any(is_ours(each, journal) for each in _names(group))
        }
        if is_ours(change.group, work.noted) and all(group == home for group in foreign.values()):
            return
        for tid, group in foreign.items():
            started = procfs.start_time(host.files, tid)
            if started is not None:
                yield ThreadEntry(tid=tid, start_time=started, group=group, into=change.group)

    def set(self, host: Host, change: TasksChange) -> str:
        """Move the threads, and those that begin meanwhile."""
        moved = host.resctrl.move_all(change.group, lambda: _members(host, change.cgroups), first=change.tids)
        return str(moved)

    def has_ended(self, entry: ThreadEntry, host: Host, snapshot: Snapshot) -> bool:
        """Ended with its thread."""
        return procfs.start_time(host.files, entry.tid) != entry.start_time

    def present(self, entry: ThreadEntry, host: Host) -> str | None:
        """Its group."""
        return host.resctrl.group_of(entry.tid) or "root group"


def _origins(host: Host, present: Mapping[int, str], moved: Sequence[ThreadEntry]) -> Iterator[tuple[int, str]]:
    """Groups in which threads, or those that made them, were before we first moved them."""
    noted, into = {entry.tid: entry for entry in moved}, {entry.into for entry in moved}
    groups = {group for group in set(present.values()) if into & _names(group)}
    at_home = homes(host, moved) if groups else {}
    for tid, group in present.items():
        entry = noted.get(tid)
        if entry is not None and procfs.start_time(host.files, tid) == entry.start_time:
            yield tid, entry.group
        else:
            before = home(host, tid, at_home) if group in groups else None
            yield tid, group if before is None else before


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
        # With its monitoring groups.
        below = f"{change.group}{MON_GROUPS}"
        entries = [
            entry
            for entry in work.journal.entries
            if entry.place.kind.is_resctrl and entry.place.kind is not resctrl.MOUNT
            if (group := entry.place.part("group")) == change.group or group.startswith(below)
        ]
        steps = undo_all(work.host, entries)
        refused = [step for step in steps if not step.ok]
        error = refused[0].error if refused else ""
        try:
            work.journal.forget({step.place for step in steps} - {step.place for step in refused})
        except JournalError as unwritten:
            error = error or str(unwritten)
        return AppliedStep(change.place, change.describe(), not error, error)


# Back as it was found: threads first, then values, then the groups we made, then the mount. Threads that began in a
# group of ours go where their process came from: their parent was found in a foreign group, and so they would be there
# without us. A thread begins in the group of the one that made it.


def undo_all(host: Host, entries: Sequence[Entry]) -> list[AppliedStep]:
    """Give a step for each entry about resctrl, and one for the kin of threads that go back."""
    moved = [entry for entry in entries if isinstance(entry, ThreadEntry)]
    files = [entry for entry in entries if isinstance(entry, FileEntry) and entry.place.kind.is_resctrl]
    groups = sorted((e for e in entries if isinstance(e, GroupEntry)), key=lambda e: -e.group.count("/"))
    try:
        # Who belongs to whom is to be read while the threads are still together.
        unnoted = dict(_kin(host, moved, {entry.group for entry in groups}))
    except OSError as error:
        return [
            AppliedStep(e.place, "as found", False, kernel_words(error)) for e in entries if e.place.kind.is_resctrl
        ]
    ours = {entry.into for entry in moved} | {entry.group for entry in groups}
    return [
        *(_try(e.place, e.group or "root group", partial(_thread_back, host, e, ours)) for e in moved),
        *(
            _try(resctrl.TASKS.place(group), f"{len(tids)} threads", partial(_move, host, group, tids))
            for group in sorted(set(unnoted.values()))
            for tids in ([tid for tid, home in unnoted.items() if home == group],)
        ),
        *(_try(e.place, e.text.strip(), partial(host.resctrl.write_back, e.place.part("group"), e.raw)) for e in files),
        *(_try(e.place, "removed", partial(host.resctrl.remove_group, e.group)) for e in groups),
        *(_unmounted(host, e, groups) for e in entries if isinstance(e, MountEntry)),
    ]


def _thread_back(host: Host, entry: ThreadEntry, ours: Collection[str]) -> bool:
    """False when there is nothing left to do: the thread ended, its id is another's, or it was moved on."""
    if procfs.start_time(host.files, entry.tid) != entry.start_time:
        return False
    present = host.resctrl.group_of(entry.tid)
    expected = {group.partition(MON_GROUPS)[0] for group in ours}
    if entry.into and entry.into not in host.resctrl.group_names():
        expected.add(ROOT)  # It fell back when its group went.
    if MON_GROUPS in entry.group:
        expected.add(entry.group.partition(MON_GROUPS)[0])  # An earlier try may have ended half way.
    if entry.into and present is not None and present not in expected:
        return False
    return _move(host, entry.group, (entry.tid,))


def _unmounted(host: Host, entry: MountEntry, groups: Iterable[GroupEntry]) -> AppliedStep:
    """An unmount takes every group with it. Where others have made some, it is theirs from here on."""
    try:
        present = {*host.resctrl.group_names(), *host.resctrl.mon_group_names(ROOT)}
    except OSError as error:
        return AppliedStep(entry.place, "unmounted", False, kernel_words(error))
    foreign = sorted(present - {group.group for group in groups})
    if foreign:
        return AppliedStep(entry.place, f"stays, groups of others are in it: {', '.join(foreign)}")
    try:
        host.resctrl.umount()
    except OSError as error:
        if error.errno not in _NOT_MOUNTED:
            return AppliedStep(entry.place, "unmounted", False, kernel_words(error))
    return AppliedStep(entry.place, "unmounted")


def homes(host: Host, moved: Iterable[ThreadEntry]) -> dict[int, str]:
    """Group in which each process was found, by its id."""
    by_process: dict[int, str] = {}
    for entry in moved:
        if procfs.start_time(host.files, entry.tid) == entry.start_time:
            ids = _ids(host, entry.tid)
            if ids:
                by_process.setdefault(ids[0], entry.group)
    return by_process


def home(host: Host, tid: int, by_process: Mapping[int, str]) -> str | None:
    """The group in which the process of a thread, or the nearest of its ancestors, was found; None without kin."""
    at = tid
    for _ in range(_MOST_ANCESTORS):
        ids = _ids(host, at)
        if ids is None:
            return None
        process, at = ids
        if process in by_process:
            return by_process[process]
    return None


def _ids(host: Host, tid: int) -> tuple[int, int] | None:
    """The process of a thread and the parent of that process; None when it is gone."""
    try:
        lines = host.files.read(f"/proc/{tid}/status").decode(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    try:
        return int(fields["Tgid"]), int(fields["PPid"])
    except (KeyError, ValueError) as error:
        raise KoordliteError(f"/proc/{tid}/status has no numbers Tgid and PPid") from error


def _kin(host: Host, moved: Sequence[ThreadEntry], groups: Collection[str]) -> Iterator[tuple[int, str]]:
    """Threads in the groups we moved others into that nobody noted: with the group their process was found in.

    Those that belong to the root fall back to it by themselves when their group, one of `made`, is removed.
    """
    by_process = homes(host, moved)
    noted = {entry.tid for entry in moved}
    for into in sorted({entry.into for entry in moved if entry.into}):
        if into in groups and not any(by_process.values()):
            continue
        for tid in sorted(host.resctrl.tasks(into) - noted):
            group = home(host, tid, by_process)
            if group or (group == ROOT and into not in groups):
                yield tid, group


def _move(host: Host, group: str, tids: Sequence[int]) -> bool:
    """Into the group, or where its threads fell when it was removed. A monitor takes threads of its control group."""
    control, monitors, _ = group.partition(MON_GROUPS)
    if control not in (ROOT, *host.resctrl.group_names()):
        control = ROOT
    moved = host.resctrl.move(control, tids).moved
    if monitors and group in host.resctrl.mon_group_names(control):
        host.resctrl.move(group, tids)
    return moved > 0


def _try(place: Place, value: str, act: Callable[[], bool | None]) -> AppliedStep:
    """The step of `act`, which answers False where there was nothing left to do."""
    try:
        is_gone = act() is False
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and vanished(error):
            return AppliedStep(place, GONE)
        return AppliedStep(place, value, False, kernel_words(error))
    return AppliedStep(place, GONE if is_gone else value)


MOUNT, GROUP, SCHEMATA, TASKS, RETURN = (
    ResctrlMount(),
    ResctrlGroup(),
    ResctrlSchemata(),
    ResctrlTasks(),
    GroupReturn(),
)
