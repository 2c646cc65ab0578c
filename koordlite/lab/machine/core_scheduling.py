"""Core scheduling of the emulated kernel: cookies of threads.

Held to the real one operation by operation (tests/vm/test_core_scheduling.py).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator

from koordlite.lab.machine.processes import Process, Processes
from koordlite.model.picture.groups import NO_COOKIE

_SPREAD = 0x9E37_79B9_7F4A_7C15
"""Odd, so that no two cookies have one number; numbers of the kernel look like chance as well."""


class EmulatedCoreScheduling:
    """`ports.CoreScheduling` of the emulated node."""

    def __init__(self, processes: Processes, *, hyperthreads: bool) -> None:
        self._processes, self._hyperthreads = processes, hyperthreads
        self._cookies: dict[int, int] = {}
        self._helpers: list[EmulatedHelper] = []

    def cookie(self, tid: int) -> int:
        """See the port."""
        self._check()
        if tid:
            self.process(tid)
        return self._cookies.get(tid, NO_COOKIE)

    @contextlib.contextmanager
    def helper(self) -> Iterator[EmulatedHelper]:
        """A task that is in no list of processes."""
        self._check()
        helper = EmulatedHelper(self)
        self._helpers.append(helper)
        try:
            yield helper
        finally:
            self._helpers.remove(helper)

    def new_number(self) -> int:
        """Number of a cookie that nobody has. As in the kernel, where it is made from an address, a number is given
        again once its last thread has ended or has another."""
        self._cookies = {tid: cookie for tid, cookie in self._cookies.items() if cookie and self._processes.find(tid)}
        in_use = {*self._cookies.values(), *(helper.held for helper in self._helpers)}
        return next(
            number for number in (number * _SPREAD % (1 << 64) for number in itertools.count(1)) if number not in in_use
        )

    def put(self, tid: int, cookie: int, *, whole_process: bool) -> None:
        """Give a thread, or its process, a cookie."""
        process = self.process(tid)
        self._cookies |= dict.fromkeys(process.tids if whole_process else (tid,), cookie)

    def process(self, tid: int) -> Process:
        """Cookie of a thread; ProcessLookupError when it is gone."""
        process = self._processes.find(tid)
        if process is None:
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH), f"/proc/{tid}")
        return process

    def _check(self) -> None:
        if not self._hyperthreads:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), "/proc/self")


class EmulatedHelper:
    """`ports.CookieHelper`."""

    def __init__(self, kernel: EmulatedCoreScheduling) -> None:
        self._kernel, self.held = kernel, NO_COOKIE

    def create(self) -> int:
        """See the port."""
        self.held = self._kernel.new_number()
        return self.held

    def take(self, tid: int) -> int:
        """See the port."""
        self.held = self._kernel.cookie(tid)
        return self.held

    def give(self, tid: int, *, whole_process: bool) -> None:
        """See the port."""
        self._kernel.put(tid, self.held, whole_process=whole_process)
