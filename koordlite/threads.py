"""Threads that are kept at work: each has a guard, a heartbeat and an age.

A thread that ends in a fault is begun again, after a pause that grows while it keeps failing. One that has not reported
within the time it gave itself is silent; nothing can end it from outside. Either makes the process unready. A silence
that lasts, and faults that do not end, make it unhealthy too, so that whoever started the process starts it again.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable

import msgspec

LOG = logging.getLogger(__name__)
WITHIN_SECONDS = 120.0
"""A thread that says nothing else reports again within this time."""
GRACE_SECONDS = 60.0
"""A thread that is silent for so much longer makes the process unhealthy."""
FAILURES = 10
"""Faults in a row that make the process unhealthy: a fresh one may help, another try will not."""
SETTLED_SECONDS = 10.0
"""A thread that reports so long after its last fault is well again."""
_PAUSES = (0.5, 30.0)
"""Shortest and longest time until a thread is begun again."""


class ThreadState(msgspec.Struct, frozen=True):
    """State of a thread."""

    name: str
    age_seconds: float
    """Since its last report."""
    allowed_seconds: float
    """Greatest age of that."""
    failures: int = 0
    """Faults in a row, up to the last one."""
    error: str = ""
    """The last of them; empty once the thread is well again."""
    ended: bool = False
    """It does not run, and should."""
    place: str = ""
    """Module and line where a silent thread is."""

    @property
    def not_ready(self) -> str:
        """Reason why the work of this thread cannot be relied on; empty when it can."""
        if self.error:
            times = f" ({self.failures} times in a row)" if self.failures > 1 else ""
            then = "it has ended" if self.ended else "it is begun again"
            return f"thread {self.name} failed{times}: {self.error}; {then}"
        if self.ended:
            return f"thread {self.name} has ended"
        if self.age_seconds <= self.allowed_seconds:
            return ""
        at = f", at {self.place}" if self.place else ""
        return f"thread {self.name} has been silent for {self.age_seconds:.0f} s{at}"

    @property
    def unhealthy(self) -> str:
        """Reason why only a new process helps; empty when it is not so."""
        silent = self.age_seconds > self.allowed_seconds + GRACE_SECONDS
        return self.not_ready if self.ended or silent or self.failures >= FAILURES else ""


class Worker:
    """A thread, from `start` until `work` returns or `join` ends it. `work` calls `beat` as long as it lives."""

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        *,
        restarts: bool = True,
        daemon: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `restarts` a fault ends the thread for good; the process is unhealthy then. The end of the process
        waits for one that is no `daemon`."""
        self.name, self._work, self._restarts, self._now = name, work, restarts, monotonic
        self._ended, self._failures, self._error, self._failed_at = threading.Event(), 0, "", float("-inf")
        self._at, self._allowed = monotonic(), WITHIN_SECONDS
        self._thread = threading.Thread(target=self._keep, name=name, daemon=daemon)

    def start(self) -> None:
        """Begin."""
        self.beat()
        _workers.add(self)
        self._thread.start()

    def run(self) -> None:
        """Do the work in the caller's own thread."""
        self._work()

    def beat(self, within: float = WITHIN_SECONDS) -> None:
        """Report that the thread lives, and that it reports again within so many seconds."""
        now = self._now()
        self._at, self._allowed = now, within
        if self._error and now - self._failed_at >= SETTLED_SECONDS:
            self._error, self._failures = "", 0

    def is_alive(self) -> bool:
        """Tell whether the thread runs."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Do not begin the work again, and expect no more reports."""
        self._ended.set()
        _workers.discard(self)

    def join(self, seconds: float | None = None) -> None:
        """End it, and wait until the work returns, at most so long."""
        self.end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def state(self) -> ThreadState:
        """State of the thread."""
        age, alive = self._now() - self._at, self._thread.is_alive()
        return ThreadState(
            name=self.name,
            age_seconds=age,
            allowed_seconds=self._allowed,
            failures=self._failures,
            error=self._error,
            ended=not alive,
            place=_place(self._thread) if alive and age > self._allowed else "",
        )

    def _keep(self) -> None:
        pause = _PAUSES[0]
        while not self._ended.is_set():
            began = self._now()
            try:
                self._work()
                _workers.discard(self)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the thread unnoticed
                self._failed(error)
            if not self._restarts:
                return
            pause = _PAUSES[0] if self._now() - began >= SETTLED_SECONDS else min(2 * pause, _PAUSES[1])
            self.beat(pause + WITHIN_SECONDS)
            self._ended.wait(pause)

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:500]
        if text != self._error:
            LOG.error("thread %s ended in a fault: %s", self.name, text, exc_info=error)
        self._error, self._failed_at, self._failures = text, self._now(), self._failures + 1


class Periodic(Worker):
    """A thread that looks at something again and again, with a pause before each look, from `start` to `stop`."""

    def __init__(self, name: str, look: Callable[[], object], pause: Callable[[], float]) -> None:
        """`pause`: seconds until the next look."""
        super().__init__(name, self._repeat)
        self._look, self._pause, self._stop = look, pause, threading.Event()

    def stop(self, seconds: float | None = None) -> None:
        """End it, and wait until the look that is under way is over, at most so long."""
        self._stop.set()
        self.join(seconds)

    def _repeat(self) -> None:
        while not self._stop.wait(self._pause()):
            self.beat()
            self._look()


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
"""Workers of this process that should be at work."""


def states() -> list[ThreadState]:
    """Every thread of this process that should be at work, by name."""
    return sorted((worker.state() for worker in list(_workers)), key=lambda state: state.name)


def not_ready() -> str:
    """Reason why the threads of this process cannot be relied on; empty when they can."""
    return "; ".join(filter(None, (state.not_ready for state in states())))


def unhealthy() -> str:
    """Reason why only a new process helps; empty when it is not so."""
    return "; ".join(filter(None, (state.unhealthy for state in states())))


def _place(thread: threading.Thread) -> str:
    frame: types.FrameType | None = sys._current_frames().get(thread.ident or 0)
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}" if frame else ""
