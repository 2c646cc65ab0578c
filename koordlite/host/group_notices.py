"""Notices from the kernel that a cgroup was made: inotify on the folders of the groups above it.

Rules of inotify(7) on kernfs, seen on cgroup v1 and v2: mkdir is reported as IN_CREATE | IN_ISDIR, as is a file by
IN_CREATE alone, and so only folders are asked for. Removing a watched group is not reported and the watch stays, so it
is taken away explicitly. A queue that is full ends in one IN_Q_OVERFLOW, and what came after it is lost.
"""

from __future__ import annotations

import select
from collections.abc import Collection

import msgspec

from koordlite import inotify
from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.inotify import Inotify

MOST_WATCHES = 2048
"""The default limit of a user is 8192 on small machines; no node has that many pods."""


class Notices(msgspec.Struct, frozen=True):
    """Groups reported since the last call."""

    groups: frozenset[str] = frozenset()
    """Groups that were made."""
    lost: bool = False
    """There were more than the kernel keeps."""


class GroupNotices:
    """One inotify descriptor. On v1 it watches the hierarchy of the cpu controller: runtimes make the groups of cpuset
    and memory before that one."""

    def __init__(self, cgroups: Cgroups, *, most: int = MOST_WATCHES) -> None:
        """OSError where there is no inotify, or the user has no instance of it left."""
        self._cgroups, self._most = cgroups, most
        self._inotify = Inotify()
        # Waited for many times a second: epoll(7) keeps between two calls what select(2) sets up each time.
        self._epoll = select.epoll()
        self._epoll.register(self._inotify.fileno(), select.EPOLLIN)
        self._groups: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self.why = ""
        """Why some groups are not watched."""

    def __len__(self) -> int:
        return len(self._watches)

    def fileno(self) -> int:
        """The descriptor, which can be read when something was reported."""
        return self._inotify.fileno()

    def watch(self, groups: Collection[str]) -> frozenset[str]:
        """Watch these groups and no others; in the order given, as many as there may be. What is in those that were not
        watched before, as nothing reports it."""
        wanted = dict.fromkeys(groups)
        for group in [group for group in self._watches if group not in wanted]:
            self._drop(group)
        self.why = ""
        fresh = [group for group in wanted if group not in self._watches]
        free = max(0, self._most - len(self._watches))
        if len(fresh) > free:
            self.why = f"only {self._most} of {len(wanted)} groups are watched"
        for group in fresh[:free]:
            self._add(group)
        return frozenset(child for group in fresh[:free] for child in self._children(group))

    def wait(self, seconds: float) -> bool:
        """Pass `seconds` at most; True when something was reported."""
        return bool(self._epoll.poll(max(0.0, seconds), 1))

    def take(self) -> Notices:
        """Groups that were reported, without waiting."""
        made, lost, watched = set[str](), False, frozenset(self._watches)
        for watch, mask, name in self._inotify.events():
            parent = self._groups.get(watch)
            lost = lost or bool(mask & inotify.OVERFLOW)
            if mask & inotify.IGNORED and parent is not None:
                self._forget(parent)
            elif mask & inotify.CREATE and mask & inotify.ISDIR and parent is not None:
                made.add(f"{parent}/{name}")
        for group in made & watched:
            self._again(group)
        return Notices(frozenset(made), lost)

    def close(self) -> None:
        """Give the descriptor and all watches back."""
        self._epoll.close()
        self._inotify.close()
        self._groups, self._watches = {}, {}

    def _children(self, group: str) -> list[str]:
        try:
            return [f"{group}/{name}" for name in self._cgroups.children(group)]
        except OSError as error:
            if not vanished(error):
                self.why = f"group {group} cannot be listed: {error}"
            return []

    def _again(self, group: str) -> None:
        """A group of this name was made once more: the watch is on the one that ended."""
        if group in self._watches:
            self._drop(group)
        self._add(group)

    def _add(self, group: str) -> None:
        try:
            watch = self._inotify.add(self._cgroups.folder(group, "cpu"), inotify.CREATE | inotify.ONLYDIR)
        except OSError as error:
            if not vanished(error):
                self.why = f"group {group} is not watched: {error}"
            return
        self._groups[watch], self._watches[group] = group, watch

    def _drop(self, group: str) -> None:
        self._inotify.remove(self._watches[group])
        self._forget(group)

    def _forget(self, group: str) -> None:
        self._groups.pop(self._watches.pop(group), None)
