"""The time of this machine, and what ends a wait early."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import time
import weakref

_LONGEST_MS = 2**31 - 1
"""Maximum of poll(2)."""
_MONOTONIC_COARSE = 6
"""CLOCK_MONOTONIC_COARSE of Linux, which the kernel moves at its timer interrupt only. Python has no name for it."""


def coarse_monotonic() -> float:
    """The monotonic clock as of the kernel's last timer interrupt: between two answers lie whole periods of it."""
    return time.clock_gettime(_MONOTONIC_COARSE)


def timer_period_seconds() -> float:
    """Time between two timer interrupts: 0.004 at 250 Hz."""
    return time.clock_getres(_MONOTONIC_COARSE)


class SignalEvent(threading.Event):
    """An event that a signal handler may set.

    `threading.Event.set` takes a lock that the interrupted thread may hold in its own `wait`: then the process hangs
    for good. This one is a pipe: set means that there is something to read.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
            weakref.finalize(self, os.close, end)

    def set(self) -> None:
        """End every wait, also those to come."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def clear(self) -> None:
        """Let waits last again."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 4096):
                pass

    def is_set(self) -> bool:
        """Tell whether it was set."""
        return self.wait(0.0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds and at most 24 days. True when it is."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        return bool(poll.poll(None if timeout is None else min(math.ceil(timeout * 1000), _LONGEST_MS)))


def ended_by_signals() -> SignalEvent:
    """An event that SIGINT and SIGTERM set, instead of what they did before."""
    stop = SignalEvent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


class RealClock:
    """`ports.Clock` of this machine; setting `stop` ends every wait."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back, whatever happens to the wall clock."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, for what people read."""
        return time.time()

    def wait(self, seconds: float) -> bool:
        """Pass `seconds` (none when negative); True when the run was asked to stop meanwhile."""
        return self._stop.wait(max(0.0, seconds))
