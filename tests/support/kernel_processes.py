"""The emulated process table with processes and threads that others make, and core scheduling whose cookies they
inherit. Nothing on a node of `koordlite.lab` makes any."""

from __future__ import annotations

from collections.abc import Callable

from koordlite.lab.machine.core_scheduling import EmulatedCoreScheduling
from koordlite.lab.machine.processes import Process, Processes


class KernelProcesses(Processes):
    """The process table."""

    def __init__(self, first_pid: int) -> None:
        super().__init__(first_pid)
        self.born: list[Callable[[int, int], None]] = []
        """Called for every thread that another one makes: (its id, its maker's)."""

    def clone(self, maker: int) -> int:
        """A further thread of the process of thread `maker`, made by it; its id. KeyError when there is none."""
        process = self._by_tid[maker]
        tid = next(self._next)
        process.tids += (tid,)
        self._by_tid[tid] = process
        self._tell(tid, maker)
        return tid

    def fork(self, maker: int, *, now: float) -> Process:
        """A child with one thread, made by thread `maker`; KeyError when there is none."""
        child = self.spawn(self._by_tid[maker].comm, threads=1, now=now)
        self._tell(child.pid, maker)
        return child

    def _tell(self, tid: int, maker: int) -> None:
        for notify in self.born:
            notify(tid, maker)


class KernelCoreScheduling(EmulatedCoreScheduling):
    """Core scheduling: a thread begins with the cookie of the one that made it."""

    def __init__(self, processes: KernelProcesses, *, hyperthreads: bool) -> None:
        super().__init__(processes, hyperthreads=hyperthreads)
        processes.born.append(self._inherit)

    def _inherit(self, tid: int, maker: int) -> None:
        if maker in self._cookies:
            self._cookies[tid] = self._cookies[maker]
