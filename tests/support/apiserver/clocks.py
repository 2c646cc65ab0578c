"""Time of the API server: real, or moved by hand in tests."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Protocol

_LOOK_SECONDS = 0.005
"""How often a wait under a hand-moved clock looks again."""


class Clock(Protocol):
    """What the server asks of time."""

    def now(self) -> datetime.datetime:
        """Wall clock in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Wait for a notice, `seconds` at most; the caller holds the condition."""


class RealClock:
    """This machine's time."""

    def now(self) -> datetime.datetime:
        """Wall clock in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Wait for a notice, `seconds` at most."""
        condition.wait(seconds)


class ManualClock:
    """Time stands still until `advance`."""

    def __init__(self, start: datetime.datetime | None = None) -> None:
        self._start = start or datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        self._seconds = 0.0
        self.looks = 0
        """How often somebody who waits has looked whether the time has come."""

    def now(self) -> datetime.datetime:
        """Wall clock in UTC."""
        return self._start + datetime.timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._seconds

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Look again soon: somebody may have advanced the time."""
        self.looks += 1
        condition.wait(min(seconds, _LOOK_SECONDS))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._seconds += seconds


def stamp(moment: datetime.datetime) -> str:
    """`moment` as metav1.Time writes it: whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
