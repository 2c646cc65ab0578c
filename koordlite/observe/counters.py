"""Rates of growing numbers.

A first reading gives no rate, a counter that went back is dropped, and so is a reading without time in between: none
of these may reach a formula as a number (docs/formulas.md, "Usage").
"""

from __future__ import annotations

from koordlite.formulas import measured


class Counter:
    """Rate of a growing number, from the reading before to this one."""

    __slots__ = ("_time", "_value")

    def __init__(self) -> None:
        self._time: float | None = None
        self._value = 0.0

    def rate(self, time: float, value: float) -> float | None:
        """Units per second since the last reading; None at the first one, without time in between, or going back."""
        before, at = self._value, self._time
        self._time, self._value = time, value
        if at is None or time <= at or value < before:
            return None
        return (value - before) / (time - at)


class Throttling:
    """Part of a group's periods in which it was throttled, from the reading before to this one."""

    __slots__ = ("_periods", "_throttled")

    def __init__(self) -> None:
        self._periods: int | None = None
        self._throttled = 0

    def ratio(self, periods: int, throttled: int) -> float | None:
        """0 to 1; 0 without a new period, None at the first reading or when a counter went back."""
        before, cut = self._periods, self._throttled
        self._periods, self._throttled = periods, throttled
        if before is None or periods < before or throttled < cut:
            return None
        return measured.throttled_ratio(periods=periods - before, throttled=throttled - cut)
