"""The time of this machine."""

from __future__ import annotations

import threading
import time


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
