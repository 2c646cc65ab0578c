"""The processes of the emulated node and their threads: ids, names, start times, CPU time."""

from __future__ import annotations

import itertools

import msgspec

TICKS_PER_SECOND = 100
"""USER_HZ: the unit of /proc/stat and of start times."""


class Process(msgspec.Struct, eq=False):
    """A process; its first thread has its pid."""

    pid: int
    comm: str
    tids: tuple[int, ...]
    start_ticks: int
    used_us: int = 0
    waited_us: int = 0
    """Time that it was ready and did not run."""
    oom_score_adj: int = 0
    pod: str = ""
    """Uid of the pod whose network namespace it is in; empty for that of the machine."""


class Processes:
    """The process table."""

    def __init__(self, first_pid: int) -> None:
        self._next = itertools.count(first_pid)
        self._by_tid: dict[int, Process] = {}

    def spawn(self, comm: str, *, threads: int, now: float, oom_score_adj: int = 0, pod: str = "") -> Process:
        """Start a process with that many threads."""
        tids = tuple(next(self._next) for _ in range(threads))
        process = Process(tids[0], comm, tids, int(now * TICKS_PER_SECOND), oom_score_adj=oom_score_adj, pod=pod)
        self._by_tid.update(dict.fromkeys(tids, process))
        return process

    def end(self, process: Process) -> None:
        """The process and its threads are gone."""
        for tid in process.tids:
            self._by_tid.pop(tid, None)

    def find(self, tid: int) -> Process | None:
        """The process a thread id belongs to; None when there is no such thread."""
        return self._by_tid.get(tid)

    def of(self, tid: int) -> Process:
        """The process of a thread that is known to live."""
        return self._by_tid[tid]

    def all(self) -> list[Process]:
        """Every process, by pid."""
        return sorted(set(self._by_tid.values()), key=lambda process: process.pid)

    def tids(self) -> list[int]:
        """Every thread id, ascending."""
        return sorted(self._by_tid)
