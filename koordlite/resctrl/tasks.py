"""Threads in resctrl groups: which group one is in, and how it gets into another.

The kernel moves single threads; children begin in the group of the thread that makes them. Source: Linux resctrl
document, "Resource alloc and monitor groups", and the behaviour of Linux 6.1 and 6.12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping

from koordlite.resctrl import refusal
from koordlite.resctrl.files import Files
from koordlite.resctrl.values import MON_GROUPS, ROOT

MAX_ROUNDS = 16
"""Times that a group of threads that keeps growing is read again. Later threads have a parent that was moved."""
_KERNEL_THREAD = 0x00200000


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move, in threads."""

    moved: int = 0
    gone: int = 0
    """Ended before their turn: the normal course of things."""
    kernel: int = 0
    """The kernel's own threads, which work for every group and stay where they are."""
    hidden: int = 0
    """Threads of another PID namespace, which read as 0: the writer must run in the one of the host (hostPID)."""

    def __add__(self, other: Moved) -> Moved:
        return Moved(
            self.moved + other.moved, self.gone + other.gone, self.kernel + other.kernel, self.hidden + other.hidden
        )

    def __str__(self) -> str:
        total = self.moved + self.gone + self.kernel + self.hidden
        parts = (self.gone, "had ended"), (self.kernel, "are the kernel's"), (self.hidden, "are of other namespaces")
        why = ", ".join(f"{count} {words}" for count, words in parts if count)
        return f"{self.moved} of {total} threads{f' ({why})' if why else ''}"


def move(files: Files, root: str, folder: str, tids: Iterable[int]) -> Moved:
    """Move threads into the group at `folder`, one a write, which every kernel understands.

    A thread the kernel refuses does not keep the others from moving; the first refusal is raised when all had a turn.
    """
    total, refused = Moved(), None
    for tid in tids:
        try:
            total += _move_one(files, root, folder, tid)
        except OSError as error:
            refused = refused or error
    if refused:
        raise refused
    return total


def move_all(
    files: Files, root: str, folder: str, threads: Callable[[], Collection[int]], *, first: Collection[int] = ()
) -> Moved:
    """Move what `threads` reads, again and again until all of it was moved; those of `first` are moved first."""
    total, done, fresh = Moved(), set[int](), list(first)
    for _ in range(MAX_ROUNDS):
        fresh = fresh or [tid for tid in threads() if tid not in done]
        if not fresh:
            break
        total += move(files, root, folder, fresh)
        done.update(fresh)
        fresh = []
    return total


def group_of(files: Files, tid: int) -> str | None:
    """The group a thread is in: its control group, empty for the root, with its monitoring group if it is in one.

    None when the thread is gone, resctrl is not mounted, or the kernel (before 5.6) has no such file.
    """
    try:
        raw = files.read(f"/proc/{tid}/cpu_resctrl_groups")
    except (FileNotFoundError, ProcessLookupError):
        return None
    groups = dict(line.split(":", 1) for line in raw.decode().splitlines() if ":" in line)
    if not groups.get("res"):
        return None
    monitor = groups.get("mon", "")
    return groups["res"].strip("/") + (f"{MON_GROUPS}{monitor}" if monitor else "")


def groups_of(
    files: Files, tids: Collection[int], members: Callable[[], Mapping[str, Collection[int]]]
) -> dict[int, str]:
    """Group by thread, for those that live. `members` reads the threads of every control group but the root: it is
    called once, and only where the kernel (before 5.6) has no /proc/TID/cpu_resctrl_groups."""
    by_thread = {tid: group for tid in tids if (group := group_of(files, tid)) is not None}
    missing = [tid for tid in tids if tid not in by_thread and _stat(files, tid) is not None]
    if missing:
        listed = {tid: group for group, members_of_group in members().items() for tid in members_of_group}
        by_thread |= {tid: listed.get(tid, ROOT) for tid in missing}
    return by_thread


def _move_one(files: Files, root: str, folder: str, tid: int) -> Moved:
    if tid <= 0:
        return Moved(hidden=1)  # Written, 0 would move the writer itself.
    columns = _stat(files, tid)
    if columns and len(columns) > 6 and int(columns[6]) & _KERNEL_THREAD:
        return Moved(kernel=1)
    path = f"{folder}/tasks"
    try:
        files.write(path, b"%d\n" % tid)
    except ProcessLookupError:
        return Moved(gone=1)
    except OSError as error:
        raise refusal.explained(files, root, error, path, last=2) from error
    return Moved(moved=1)


def _stat(files: Files, tid: int) -> list[bytes] | None:
    """The columns after the name, which may hold blanks and brackets itself; None when the thread is gone."""
    try:
        return files.read(f"/proc/{tid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
