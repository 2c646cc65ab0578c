"""Rates of growing numbers, and means and percentiles over the last seconds.

A first look gives no rate, a counter that went back is dropped, and so is a look without time in between: none of these
may reach a formula as a number (docs/formulas.md, "Usage"). Windows are bounded by time: what is older falls out.
"""

from __future__ import annotations

import collections

from koordlite.formulas import measured
from koordlite.model.snapshot import Use


class Counter:
    """Rate of a growing number, from the look before to this one."""

    __slots__ = ("_time", "_value")

    def __init__(self) -> None:
        self._time: float | None = None
        self._value = 0.0

    def rate(self, time: float, value: float) -> float | None:
        """Units per second since the last look; None at the first look, without time in between, or going back."""
        before, at = self._value, self._time
        self._time, self._value = time, value
        if at is None or time <= at or value < before:
            return None
        return (value - before) / (time - at)


class Throttling:
    """Part of a group's periods in which it was throttled, from the look before to this one."""

    __slots__ = ("_periods", "_throttled")

    def __init__(self) -> None:
        self._periods: int | None = None
        self._throttled = 0

    def ratio(self, periods: int, throttled: int) -> float | None:
        """0 to 1; 0 without a new period, None at the first look or when a counter went back."""
        before, cut = self._periods, self._throttled
        self._periods, self._throttled = periods, throttled
        if before is None or periods < before or throttled < cut:
            return None
        return measured.throttled_ratio(periods=periods - before, throttled=throttled - cut)


class Window:
    """CPU and memory over the last seconds; old samples fall out by their time."""

    __slots__ = ("_cpu", "_memory", "_samples")

    def __init__(self) -> None:
        self._samples: collections.deque[tuple[float, Use]] = collections.deque()
        self._cpu = self._memory = 0

    def add(self, time: float, use: Use, seconds: float) -> None:
        """Take in a sample and drop those older than `seconds`."""
        self._samples.append((time, use))
        self._cpu, self._memory = self._cpu + use.cpu, self._memory + use.memory
        self.trim(time, seconds)

    def trim(self, time: float, seconds: float) -> None:
        """Drop samples older than `seconds`."""
        while self._samples and self._samples[0][0] < time - seconds:
            _, old = self._samples.popleft()
            self._cpu, self._memory = self._cpu - old.cpu, self._memory - old.memory

    def mean(self) -> Use | None:
        """The mean, None without samples."""
        count = len(self._samples)
        return Use(self._cpu // count, self._memory // count) if count else None

    def percentile(self, part: float) -> Use | None:
        """What `part` (0 to 1) of the samples do not exceed, CPU and memory each by itself; None without samples."""
        if not self._samples:
            return None
        cpu = measured.percentile([use.cpu for _, use in self._samples], part)
        return Use(round(cpu), round(measured.percentile([use.memory for _, use in self._samples], part)))

    def __len__(self) -> int:
        return len(self._samples)
