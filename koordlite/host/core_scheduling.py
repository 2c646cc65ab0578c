"""Core scheduling of the real kernel, by prctl(2), which Python has no binding for.

Source: Linux, `include/uapi/linux/prctl.h`, `kernel/sched/core_sched.c` and
Documentation/admin-guide/hw-vuln/core-scheduling.rst. A cookie's number is made from an address in the kernel, the same
until the machine is started again; it can be seen and not be set.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from typing import NoReturn

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
        found = ctypes.c_uint64()
        _prctl(_GET, tid, address=ctypes.addressof(found))
        return found.value

    @contextlib.contextmanager
    def helper(self) -> Iterator[RealHelper]:
        """A thread of its own, that ends with the block and with it its cookie."""
        with concurrent.futures.ThreadPoolExecutor(1, "core-sched") as thread:
            helper = RealHelper(self, thread)
            helper.lose_cookie()
            yield helper


class RealHelper:
    """`ports.CookieHelper`: everything happens in one thread."""

    def __init__(self, kernel: RealCoreScheduling, thread: concurrent.futures.ThreadPoolExecutor) -> None:
        self._kernel, self._thread = kernel, thread

    def lose_cookie(self) -> None:
        """A new thread has the cookie of its maker, and the agent may have been given one. OSError when it cannot be
        got rid of."""
        if self._held() and self.take(_INIT):
            raise OSError(errno.EBUSY, "process 1 has a cookie as well, so there is no task to take none from")

    def create(self) -> int:
        """See the port."""
        self._do(lambda: _prctl(_CREATE, 0))
        return self._held()

    def take(self, tid: int) -> int:
        """See the port."""
        self._do(lambda: _prctl(_SHARE_FROM, tid))
        return self._held()

    def give(self, tid: int, *, whole_process: bool) -> None:
        """See the port."""
        self._do(lambda: _prctl(_SHARE_TO, tid, _PROCESS if whole_process else _THREAD))

    def _held(self) -> int:
        return self._thread.submit(self._kernel.cookie, 0).result()

    def _do(self, act: Callable[[], None]) -> None:
        self._thread.submit(act).result()


class NoCoreScheduling:
    """`ports.CoreScheduling` of a machine that cannot be asked."""

    def cookie(self, tid: int) -> NoReturn:
        """Always refused."""
        raise OSError(errno.ENOSYS, "this machine is recorded", f"/proc/{tid}")

    def helper(self) -> NoReturn:
        """Always refused."""
        raise OSError(errno.ENOSYS, "this machine is recorded")
