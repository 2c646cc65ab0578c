"""Pressure stall information of a group or of the whole node: how long some, or all, of its threads had to wait."""

from __future__ import annotations

import math

import msgspec

WINDOWS_SECONDS = (10, 60, 300)
UPDATE_US = 2_000_000
"""The kernel folds what it has seen into the averages every two seconds."""


class PressureLine(msgspec.Struct, eq=False):
    """A line of a file: total time and its decaying averages."""

    total_us: int = 0
    averages: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0, 0.0])
    _window_us: int = 0
    _stalled_us: int = 0

    def add(self, elapsed_us: int, stalled_us: int) -> None:
        """Time passes, `stalled_us` of it stalled."""
        self.total_us += stalled_us
        self._window_us += elapsed_us
        self._stalled_us += stalled_us
        if self._window_us >= UPDATE_US:
            percent = 100.0 * self._stalled_us / self._window_us
            for index, seconds in enumerate(WINDOWS_SECONDS):
                keep = math.exp(-self._window_us / 1e6 / seconds)
                self.averages[index] = self.averages[index] * keep + percent * (1 - keep)
            self._window_us = self._stalled_us = 0

    def text(self, name: str) -> str:
        """The line of this name."""
        averages = " ".join(f"avg{s}={a:.2f}" for s, a in zip(WINDOWS_SECONDS, self.averages, strict=True))
        return f"{name} {averages} total={self.total_us}\n"


class PressureFile(msgspec.Struct, eq=False):
    """Both lines of a `*.pressure` file."""

    some: PressureLine = msgspec.field(default_factory=PressureLine)
    full: PressureLine = msgspec.field(default_factory=PressureLine)

    def add(self, elapsed_us: int, stalled_us: int, full_us: int = 0) -> None:
        """Time passes; for `stalled_us` of it some wait, for `full_us` all that have something to do."""
        self.some.add(elapsed_us, stalled_us)
        self.full.add(elapsed_us, full_us)

    @property
    def total_us(self) -> int:
        """Time that some have waited."""
        return self.some.total_us

    def text(self) -> str:
        """The file."""
        return self.some.text("some") + self.full.text("full")


class Waits:
    """Parts of one step that the members of a group waited: the longest is `some`, the shortest `full`."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[PressureFile, float, float | None]] = {}

    def note(self, pressure: PressureFile, part: float, *, idle: bool = False) -> None:
        """A member waited for this part of the step; an `idle` one had nothing to do, and only lets the time pass."""
        _, most, least = self._parts.get(id(pressure), (pressure, 0.0, None))
        if not idle:
            most, least = max(most, part), part if least is None else min(least, part)
        self._parts[id(pressure)] = pressure, most, least

    def close(self, step_us: int) -> None:
        """The step is over."""
        for pressure, most, least in self._parts.values():
            pressure.add(step_us, int(most * step_us), int((least or 0.0) * step_us))


NONE = PressureFile()
"""File of resources whose contention is not modelled."""
