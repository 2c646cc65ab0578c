"""The time of this machine, for a run."""

from __future__ import annotations

import threading
import time


class RealClock:
    """`koordlite.ports.Clock`; setting `stop` ends every wait."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def wait(self, seconds: float) -> bool:
        """Pass `seconds`; True when the run was asked to stop meanwhile."""
        return self._stop.wait(max(0.0, seconds))
