"""A clock that the test moves."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class HandClock:
    """Time passes when the test says so; to be called as a function, or used as a clock of the product."""

    now: float = 100.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now

    monotonic = wall = __call__

    def wait(self, seconds: float) -> bool:
        """Let time pass."""
        self.now += seconds
        return False
