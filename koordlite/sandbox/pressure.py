"""Pressure stall information of a group or of the whole node: how long somebody had to wait."""

from __future__ import annotations

import dataclasses
import math

WINDOWS_SECONDS = (10, 60, 300)
UPDATE_US = 2_000_000
"""The kernel folds what it has seen into the averages every two seconds."""


@dataclasses.dataclass(eq=False, slots=True)
class Pressure:
    """Total stall time and its decaying averages, in the kernel's text form."""

    total_us: int = 0
    averages: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])
    _window_us: int = 0
    _stalled_us: int = 0

    def add(self, elapsed_us: int, stalled_us: int) -> None:
        """Time passes, `stalled_us` of it with somebody waiting."""
        self.total_us += stalled_us
        self._window_us += elapsed_us
        self._stalled_us += stalled_us
        if self._window_us >= UPDATE_US:
            self._fold()

    def _fold(self) -> None:
        percent = 100.0 * self._stalled_us / self._window_us
        for index, seconds in enumerate(WINDOWS_SECONDS):
            keep = math.exp(-self._window_us / 1e6 / seconds)
            self.averages[index] = self.averages[index] * keep + percent * (1 - keep)
        self._window_us = self._stalled_us = 0

    def text(self) -> str:
        """The two lines of a `*.pressure` file. Nobody ever stalls completely here, so `full` stays 0."""
        some = " ".join(f"avg{s}={a:.2f}" for s, a in zip(WINDOWS_SECONDS, self.averages, strict=True))
        return f"some {some} total={self.total_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


NONE = Pressure()
"""For resources whose contention is not modelled."""
