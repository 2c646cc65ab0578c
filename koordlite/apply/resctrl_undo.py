"""resctrl put back as it was found: threads first, then values, then the groups we made, then the mount.

Threads that began in a group of ours go where their process came from: their parent was found in a foreign group, and
so they would be there without us. A thread begins in the group of the one that made it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from koordlite.apply import writer
from koordlite.changes import resctrl
from koordlite.changes.resctrl import GroupMade, MountMade, ResctrlReturn, TasksMoved
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import Entry, FileEntry
from koordlite.model.errors import KoordliteError
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep
from koordlite.resctrl.values import ROOT

PREFIX = "resctrl/"
_MONITORS = "/mon_groups/"
_MOST_ANCESTORS = 8
_NOT_MOUNTED = (errno.EINVAL, errno.ENOENT)


def is_ours(entry: Entry) -> bool:
    """Tell whether the entry is about resctrl."""
    return entry.place.kind.is_resctrl


def of_group(change: ResctrlReturn, entries: Iterable[Entry]) -> list[Entry]:
    """The entries that describe one group, its monitoring groups included."""
    below = f"{change.group}{_MONITORS}"
    return [e for e in entries if is_ours(e) and (_group(e) == change.group or _group(e).startswith(below))]


def undo(host: Host, entries: Sequence[Entry]) -> list[AppliedStep]:
    """One step for each entry about resctrl, and one for the kin of threads that go back."""
    moved = [entry for entry in entries if isinstance(entry, TasksMoved)]
    files = [entry for entry in entries if isinstance(entry, FileEntry) and is_ours(entry)]
    made = sorted((e for e in entries if isinstance(e, GroupMade)), key=lambda e: -e.group.count("/"))
    try:
        # Who belongs to whom is to be read while the threads are still together.
        unnoted = dict(_kin(host, moved, {entry.group for entry in made}))
    except OSError as error:
        return [AppliedStep(e.place, "as found", False, writer.words(error)) for e in entries if is_ours(e)]
    ours = {entry.into for entry in moved} | {entry.group for entry in made}
    return [
        *(_try(e.place, e.group or "root group", partial(_thread_back, host, e, ours)) for e in moved),
        *_kin_back(host, unnoted),
        *(_try(e.place, e.text.strip(), partial(_values_back, host, e)) for e in files),
        *(_try(e.place, "removed", partial(host.resctrl.remove_group, e.group)) for e in made),
        *(_unmounted(host, e, made) for e in entries if isinstance(e, MountMade)),
    ]


def _group(entry: Entry) -> str:
    match entry:
        case GroupMade(group=group):
            return group
        case TasksMoved(into=into):
            return into
        case FileEntry(group=group):
            return group.removeprefix(PREFIX)
        case _:
            return PREFIX  # No group is called like that.


def _thread_back(host: Host, entry: TasksMoved, ours: Collection[str]) -> bool:
    """False when there is nothing left to do: the thread ended, its id is another's, or it was moved on."""
    if procfs.start_time(host.files, entry.tid) != entry.start_time:
        return False
    present = host.resctrl.group_of(entry.tid)
    expected = {group.partition(_MONITORS)[0] for group in ours}
    if entry.into and entry.into not in host.resctrl.group_names():
        expected.add(ROOT)  # It fell back when its group went.
    if _MONITORS in entry.group:
        expected.add(entry.group.partition(_MONITORS)[0])  # An earlier try may have ended half way.
    if entry.into and present is not None and present not in expected:
        return False
    return _move(host, entry.group, (entry.tid,))


def _values_back(host: Host, entry: FileEntry) -> None:
    host.resctrl.write_back(_group(entry), entry.raw)


def _unmounted(host: Host, entry: MountMade, made: Iterable[GroupMade]) -> AppliedStep:
    """An unmount takes every group with it. Where others have made some, it is theirs from here on."""
    try:
        present = {*host.resctrl.group_names(), *host.resctrl.mon_group_names(ROOT)}
    except OSError as error:
        return AppliedStep(entry.place, "unmounted", False, writer.words(error))
    others = sorted(present - {group.group for group in made})
    if others:
        return AppliedStep(entry.place, f"stays, groups of others are in it: {', '.join(others)}")
    return _try(entry.place, "unmounted", partial(_umount, host))


def _umount(host: Host) -> None:
    try:
        host.resctrl.umount()
    except OSError as error:
        if error.errno not in _NOT_MOUNTED:
            raise


def homes(host: Host, moved: Iterable[TasksMoved]) -> dict[int, str]:
    """Group in which each process was found, by its id."""
    found: dict[int, str] = {}
    for entry in moved:
        if procfs.start_time(host.files, entry.tid) == entry.start_time:
            ids = _ids(host, entry.tid)
            if ids:
                found.setdefault(ids[0], entry.group)
    return found


def home(host: Host, tid: int, known: Mapping[int, str]) -> str | None:
    """The group in which the process of a thread, or the nearest of its ancestors, was found; None without kin."""
    at = tid
    for _ in range(_MOST_ANCESTORS):
        ids = _ids(host, at)
        if ids is None:
            return None
        process, at = ids
        if process in known:
            return known[process]
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


def _kin(host: Host, moved: Sequence[TasksMoved], made: Collection[str]) -> Iterator[tuple[int, str]]:
    """Threads in the groups we moved others into that nobody noted: with the group their process was found in.

    Those that belong to the root fall back to it by themselves when their group, one of `made`, is removed.
    """
    known = homes(host, moved)
    noted = {entry.tid for entry in moved}
    for into in sorted({entry.into for entry in moved if entry.into}):
        if into in made and not any(known.values()):
            continue
        for tid in sorted(host.resctrl.tasks(into) - noted):
            group = home(host, tid, known)
            if group or (group == ROOT and into not in made):
                yield tid, group


def _kin_back(host: Host, homes: Mapping[int, str]) -> Iterator[AppliedStep]:
    for group in sorted(set(homes.values())):
        tids = [tid for tid, home in homes.items() if home == group]
        place = resctrl.TASKS.place(group)
        yield _try(place, f"{len(tids)} threads", partial(_move, host, group, tids))


def _move(host: Host, group: str, tids: Sequence[int]) -> bool:
    """Into the group, or where its threads fell when it was removed. A monitor takes threads of its control group."""
    control, monitors, _ = group.partition(_MONITORS)
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
            return AppliedStep(place, writer.GONE)
        return AppliedStep(place, value, False, writer.words(error))
    return AppliedStep(place, writer.GONE if is_gone else value)
