"""Time of the emulated node: it passes only in calls of `wait` and `advance`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

LONGEST_STEP = 0.1
"""Seconds the machine advances at once: one period of the CPU bandwidth controller."""

BOOTED = 100.0
"""Seconds the machine has been up when the sandbox starts."""


class SandboxClock:
    """`ports.Clock` that advances the machine.

    `pace` is real seconds per simulated second: 0 runs as fast as it can, 0.25 four times faster than real time. The
    stop event ends a wait early, as a signal does on a real node. `longest_step` is how many seconds pass at once:
    longer ones cost less and blur what happens within them.
    """

    def __init__(
        self,
        advance: Callable[[float], None],
        *,
        start: float,
        pace: float = 0.0,
        stop: threading.Event | None = None,
        longest_step: float = LONGEST_STEP,
    ) -> None:
        self._advance = advance
        self._start = start
        self.pace = pace
        self._stop = stop or threading.Event()
        self._now_us = 0
        self._longest_us = int(longest_step * 1e6)
        self._real_time = time.monotonic()
        """End of the last step at this pace."""

    def monotonic(self) -> float:
        """Seconds since the machine booted."""
        return BOOTED + self._now_us / 1e6

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._start + self._now_us / 1e6

    @property
    def seconds(self) -> float:
        """Simulated seconds since the sandbox started: the time workloads follow."""
        return self._now_us / 1e6

    def wait(self, seconds: float) -> bool:
        """Let `seconds` pass on the machine; True when the run was asked to stop meanwhile."""
        for step in self._steps(seconds):
            if self._stop.is_set():
                break
            self.pass_time(step)
            self._keep_pace(step / 1e6)
        return self._stop.is_set()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass without keeping pace, whatever the stop event says."""
        for step in self._steps(seconds):
            self.pass_time(step)

    def _steps(self, seconds: float) -> Iterator[int]:
        remaining = round(seconds * 1e6)
        while remaining > 0:
            yield (step := min(remaining, self._longest_us))
            remaining -= step

    def pass_time(self, step_us: int) -> None:
        """Advance the machine by one step, without keeping pace."""
        self._advance(step_us / 1e6)
        self._now_us += step_us

    def _keep_pace(self, step: float) -> None:
        """Sleep until real time has caught up; a late sandbox does not run faster later."""
        if self.pace <= 0:
            return
        now = time.monotonic()
        self._real_time = max(self._real_time + step * self.pace, now)
        self._stop.wait(self._real_time - now)
