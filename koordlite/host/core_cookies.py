"""Cookies of core scheduling by group: who in a container has which, and giving all of it one.

A thread that is made has the cookie of its maker, and keeps it when it starts another program. A process that enters a
container from outside (`kubectl exec`, a probe) has none.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Collection, Iterator, Mapping

from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.model.picture.groups import NO_COOKIE, TaskCookie
from koordlite.ports import CookieHelper, CoreScheduling, Files

PASSES = 3
"""Processes may begin while a container gets its cookie; after so many looks the rest is left to the next round."""
_REASONS = {
    errno.EINVAL: "this kernel was built without core scheduling (CONFIG_SCHED_CORE, Linux 5.14 or later)",
    errno.ENODEV: "no core of this machine runs two threads: there is nobody to share it with",
}


def missing(kernel: CoreScheduling) -> str:
    """Reason why a machine has no core scheduling, with the kernel's word for it; empty where it has."""
    try:
        kernel.cookie(0)
    except OSError as error:
        number = error.errno or 0
        return f"{errno.errorcode.get(number, str(number))}: {_REASONS.get(number, error.strerror)}"
    return ""


class Cookies:
    """The cookies of one machine."""

    def __init__(self, kernel: CoreScheduling, cgroups: Cgroups, files: Files) -> None:
        self._kernel, self._cgroups, self._files = kernel, cgroups, files
        self._written: set[str] = set()

    def missing(self) -> str:
        """Same as the function `missing`."""
        return missing(self._kernel)

    def helper(self) -> contextlib.AbstractContextManager[CookieHelper]:
        """A task of ours that hands cookies on. OSError where there is no core scheduling."""
        return self._kernel.helper()

    def of_group(self, group: str) -> tuple[TaskCookie, ...] | None:
        """The processes in a group and below it, by id; None when the group is gone."""
        try:
            pids = self._cgroups.procs(group)
        except OSError as error:
            if vanished(error):
                return None
            raise
        # A process of another namespace of process ids is listed as 0, which would mean ourselves.
        found = ((pid, self._look(pid) if pid else None) for pid in sorted(pids))
        return tuple(TaskCookie(pid, cookie) for pid, cookie in found if cookie != _GONE)

    def give(self, group: str, cookie: int, helper: CookieHelper, *, instead_of: Collection[int]) -> int:
        """Let the processes of `group` have the cookie of `helper`, whose number is `cookie`; how many got it.

        Those that have another one than `instead_of` or none keep it. All are tried; the first refusal is raised.
        """
        self._written.add(group)
        replaced, given, refusal = {*instead_of, NO_COOKIE, None}, set[int](), None
        for _ in range(PASSES):
            found = self.of_group(group)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "the cgroup is gone", group)
            others = [t.pid for t in found if t.cookie != cookie and t.cookie in replaced and t.pid not in given]
            for pid in others:
                try:
                    helper.give(pid, whole_process=True)
                except ProcessLookupError:
                    continue
                except OSError as error:
                    refusal = refusal or error
                given.add(pid)
            if not others:
                break
        if refusal:
            raise refusal
        return len(given)

    def take_away(self, cookies: Collection[int]) -> Mapping[int, OSError]:
        """No thread of the machine has one of `cookies` any more, but for those that are returned, with the refusal.
        OSError where there is no core scheduling."""
        refused: dict[int, OSError] = {}
        with self._kernel.helper() as helper:
            for _ in range(PASSES):
                found = [(tid, held) for tid in self._threads() if (held := self._look(tid)) in cookies and held]
                for tid, cookie in found:
                    try:
                        helper.give(tid, whole_process=False)
                    except ProcessLookupError:
                        continue
                    except OSError as error:
                        refused[cookie] = error
                if not found:
                    break
        return refused

    def take_written(self) -> frozenset[str]:
        """Groups whose processes were given a cookie, or lost it, since the last call."""
        written, self._written = frozenset(self._written), set()
        return written

    def _look(self, tid: int) -> int | None:
        """`_GONE` for a thread that has ended; None for one that we may not trace."""
        try:
            return self._kernel.cookie(tid)
        except ProcessLookupError:
            return _GONE
        except PermissionError:
            return None

    def _threads(self) -> Iterator[int]:
        for name in self._files.list("/proc"):
            pid = name.rstrip("/")
            if pid.isascii() and pid.isdecimal():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    yield from (int(tid.rstrip("/")) for tid in self._files.list(f"/proc/{pid}/task"))


_GONE = -1
