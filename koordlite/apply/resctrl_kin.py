"""Threads nobody noted: where their process, or the nearest of its ancestors, was found.

A thread begins in the group of the one that made it. So one that began in a group of ours would be, without us, where
its maker was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlite.changes.resctrl_tasks import TasksMoved
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.model.errors import KoordliteError

_MOST_ANCESTORS = 8


def homes(host: Host, moved: Iterable[TasksMoved]) -> dict[int, str]:
    """Where each process was found, by its id."""
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
