"""Entries whose group or thread has ended: there is nothing left to put back, and pods come and go for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from koordlite.apply import block
from koordlite.changes.oom_score import OOMScoreFound
from koordlite.changes.resctrl_tasks import TasksMoved
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import Entry, FileEntry
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot


def places(host: Host, entries: Iterable[Entry], seen: Snapshot) -> Iterator[Place]:
    """The places among `entries` that do not exist any more; none when kubelet's whole tree is out of sight."""
    if seen.layout.kubepods in seen.cgroups:
        yield from (entry.place for entry in entries if _ended(host, entry, seen))


def _ended(host: Host, entry: Entry, seen: Snapshot) -> bool:
    match entry:
        case FileEntry(group=group, field=field) if field in get_args(CgroupField) and group not in seen.cgroups:
            return _vanished(host, group, field)
        case FileEntry() if block.is_ours(entry):
            return block.ended(host, entry)
        case TasksMoved(tid=tid, start_time=started):
            return procfs.start_time(host.files, tid) != started
        case OOMScoreFound(pid=pid, start_time=started):
            return procfs.start_time(host.files, pid) != started
        case _:
            return False


def _vanished(host: Host, group: str, field: str) -> bool:
    """A file that is there but cannot be read is not gone."""
    try:
        host.cgroups.read_raw(group, field)
    except OSError as error:
        return vanished(error)
    return False
