"""Core scheduling: the real kernel's, by prctl(2), which Python has no binding for, and the cookies of groups.

A thread that is made has the cookie of its maker, and keeps it when it starts another program. A process that enters a
container from outside (`kubectl exec`, a probe) has none. A cookie's number is made from an address in the kernel, the
same until the machine is started again; it can be seen and not be set. Source: Linux, `include/uapi/linux/prctl.h`,
`kernel/sched/core_sched.c` and Documentation/admin-guide/hw-vuln/core-scheduling.rst.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import errno
import os
from collections.abc import Collection, Iterator, Mapping
from typing import NoReturn

from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.model.picture.groups import NO_COOKIE, TaskCookie
from koordlite.ports import CookieHelper, CoreScheduling, Files

_PR_SCHED_CORE = 62
_GET, _CREATE, _SHARE_TO, _SHARE_FROM = range(4)
_THREAD, _PROCESS = range(2)
_INIT = 1
"""The first process: nobody gives it a cookie."""
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_LIBRARY.prctl.restype = ctypes.c_int


def _prctl(operation: int, tid: int, scope: int = _THREAD, address: int = 0) -> None:
    if _LIBRARY.prctl(_PR_SCHED_CORE, operation, tid, scope, address) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"/proc/{tid or 'self'}")


class RealCoreScheduling:
    """`ports.CoreScheduling` of this machine."""

    def cookie(self, tid: int) -> int:
        """See the port."""
        number = ctypes.c_uint64()
        _prctl(_GET, tid, address=ctypes.addressof(number))
        return number.value

    @contextlib.contextmanager
    def helper(self) -> Iterator[RealHelper]:
        """A thread of its own, that ends with the block and its cookie with it. OSError when it cannot lose ours."""
        with concurrent.futures.ThreadPoolExecutor(1, "core-sched") as thread:
            helper = RealHelper(self, thread)
            # A new thread has the cookie of its maker, and the agent may have been given one.
            if helper.cookie() and helper.take(_INIT):
                raise OSError(errno.EBUSY, "process 1 has a cookie as well, so there is no task to take none from")
            yield helper


class RealHelper:
    """`ports.CookieHelper`: everything happens in one thread."""

    def __init__(self, kernel: RealCoreScheduling, thread: concurrent.futures.ThreadPoolExecutor) -> None:
        self._kernel, self._thread = kernel, thread

    def create(self) -> int:
        """See the port."""
        self._share(_CREATE, 0)
        return self.cookie()

    def take(self, tid: int) -> int:
        """See the port."""
        self._share(_SHARE_FROM, tid)
        return self.cookie()

    def give(self, tid: int, *, whole_process: bool) -> None:
        """See the port."""
        self._share(_SHARE_TO, tid, _PROCESS if whole_process else _THREAD)

    def cookie(self) -> int:
        """The number of the thread's own cookie."""
        return self._thread.submit(self._kernel.cookie, 0).result()

    def _share(self, operation: int, tid: int, scope: int = _THREAD) -> None:
        self._thread.submit(_prctl, operation, tid, scope).result()


class NoCoreScheduling:
    """`ports.CoreScheduling` of a machine that cannot be asked."""

    def cookie(self, tid: int) -> NoReturn:
        """Always refused."""
        raise OSError(errno.ENOSYS, "this machine is recorded", f"/proc/{tid}")

    def helper(self) -> NoReturn:
        """Always refused."""
        raise OSError(errno.ENOSYS, "this machine is recorded")


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
        cookies = ((pid, self._look(pid) if pid else None) for pid in sorted(pids))
        return tuple(TaskCookie(pid, cookie) for pid, cookie in cookies if cookie != _GONE)

    def give(self, group: str, cookie: int, helper: CookieHelper, *, instead_of: Collection[int]) -> int:
        """Let the processes of `group` have the cookie of `helper`, whose number is `cookie`; how many got it.
        Those that have another one than `instead_of` or none keep it. All are tried; the first refusal is raised."""
        self._written.add(group)
        replaced, pids, refusal = {*instead_of, NO_COOKIE, None}, set[int](), None
        for _ in range(PASSES):
            tasks = self.of_group(group)
            if tasks is None:
                raise FileNotFoundError(errno.ENOENT, "the cgroup is gone", group)
            lacking = [t.pid for t in tasks if t.cookie != cookie and t.cookie in replaced and t.pid not in pids]
            for pid in lacking:
                try:
                    helper.give(pid, whole_process=True)
                except ProcessLookupError:
                    continue
                except OSError as error:
                    refusal = refusal or error
                pids.add(pid)
            if not lacking:
                break
        if refusal:
            raise refusal
        return len(pids)

    def take_away(self, cookies: Collection[int]) -> Mapping[int, OSError]:
        """No thread of the machine has one of `cookies` any more, but for those that are returned, with the refusal.
        OSError where there is no core scheduling."""
        refused: dict[int, OSError] = {}
        with self._kernel.helper() as helper:
            for _ in range(PASSES):
                current = ((tid, self._look(tid)) for tid in self._threads())
                threads = [(tid, cookie) for tid, cookie in current if cookie and cookie in cookies]
                for tid, cookie in threads:
                    try:
                        helper.give(tid, whole_process=False)
                    except ProcessLookupError:
                        continue
                    except OSError as error:
                        refused[cookie] = error
                if not threads:
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
