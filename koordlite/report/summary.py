"""The numbers of a whole run, added up tick by tick."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import msgspec

from koordlite.formulas.cpu import suppress
from koordlite.report import present
from koordlite.report.present import Figures
from koordlite.report.tick import Tick

_MILLICORE_SECONDS_PER_CORE_HOUR = 1000 * 3600
_LATE_SHARE = 0.05


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a run."""

    ticks: int
    seconds: float
    """From the first tick to the last."""
    seconds_above_threshold: float
    """Time in which the node used more than the suppress threshold."""
    seconds_well_above_threshold: float
    """Time by a CPU or more: the rounding of the limit to whole CPUs does not explain that."""
    seconds_late: float
    """The part of that in which best-effort work had more than the two CPUs that a limit always leaves it."""
    prod_seconds_above_threshold: float
    """Time in which latency-sensitive work alone used more than the threshold: no limit on BE could have helped."""
    be_core_hours_allowed: float
    """CPU that the limit would have let best-effort work use."""
    be_core_hours_used: float
    be_limit_min: int | None
    """Millicores, from the first tick on in which the use of the node was known: before it nothing could be limited."""
    be_limit_max: int | None
    would_limit_min: int | None
    """The same had `cpuSuppress` been enforced; None unless it observed."""
    would_limit_max: int | None
    writes: int
    writes_by_kind: Mapping[str, int]
    """`cpuset.cpus`, `cpu.quota`, `resctrl L3`, `Node` …"""
    refusals: int
    """Writes the kernel or the API server refused."""
    foreign_writes: int
    """Values of ours that another program changed."""
    decisions: Mapping[str, int]
    """By reason: in how many ticks it was given."""
    tick_seconds_mean: float
    tick_seconds_max: float

    @property
    def in_time(self) -> bool:
        """True when the limit was late for at most a twentieth of the run; it reacts to what it has measured."""
        return self.seconds_late <= _LATE_SHARE * self.seconds


class Totals:
    """Adds up ticks; its size does not grow with the run."""

    def __init__(self) -> None:
        self._first = self._last = 0.0
        self._before: Figures | None = None
        self.ticks = self._refusals = self._foreign = 0
        self._above = self._well_above = self._late = self._prod_above = self._allowed = self._used = 0.0
        self._limits: tuple[int, int] | None = None
        self._would: tuple[int, int] | None = None
        self._measured = False
        self._kinds: collections.Counter[str] = collections.Counter()
        self._reasons: collections.Counter[str] = collections.Counter()
        self._cost_sum = self._cost_max = 0.0

    def add(self, tick: Tick) -> None:
        """Count one more tick, later than the one before."""
        figures = tick.figures
        if self._before is None:
            self._first = tick.time
        else:
            self._add_time(self._before, figures, max(0.0, tick.time - self._before.time))
        self.ticks += 1
        self._last = tick.time
        self._cost_sum += tick.tick_seconds
        self._cost_max = max(self._cost_max, tick.tick_seconds)
        self._refusals += sum(not step.ok for step in tick.applied)
        self._foreign += len(tick.foreign)
        self._kinds.update(step.place.metric for step in tick.applied if step.ok)
        self._reasons.update(decision.reason for decision in tick.decisions)
        if not self._measured and figures.node_cpu is not None:
            self._measured, self._limits, self._would = True, None, None
        self._limits = _widened(self._limits, figures.be_limit)
        self._would = _widened(self._would, figures.would_limit)
        self._before = figures

    def summary(self) -> Summary:
        """The numbers so far."""
        low, high = self._limits or (None, None)
        would_low, would_high = self._would or (None, None)
        return Summary(
            ticks=self.ticks,
            seconds=self._last - self._first,
            seconds_above_threshold=self._above,
            seconds_well_above_threshold=self._well_above,
            seconds_late=self._late,
            prod_seconds_above_threshold=self._prod_above,
            be_core_hours_allowed=self._allowed,
            be_core_hours_used=self._used,
            be_limit_min=low,
            be_limit_max=high,
            would_limit_min=would_low,
            would_limit_max=would_high,
            writes=self._kinds.total(),
            writes_by_kind=dict(sorted(self._kinds.items())),
            refusals=self._refusals,
            foreign_writes=self._foreign,
            decisions=dict(self._reasons.most_common()),
            tick_seconds_mean=self._cost_sum / self.ticks if self.ticks else 0.0,
            tick_seconds_max=self._cost_max,
        )

    def _add_time(self, before: Figures, now: Figures, seconds: float) -> None:
        """Use is a mean over the time since the tick before; the limit of that time is the one set by that tick."""
        self._above += seconds * present.above(now.node_cpu, now.threshold_milli)
        well = present.well_above(now.node_cpu, now.threshold_milli)
        self._well_above += seconds * well
        self._late += seconds * (well and (before.be_limit or 0) > suppress.MIN_CPUS * 1000)
        self._prod_above += seconds * present.above(now.prod_cpu, now.threshold_milli)
        self._allowed += (before.be_limit or 0) * seconds / _MILLICORE_SECONDS_PER_CORE_HOUR
        self._used += (now.be_cpu or 0) * seconds / _MILLICORE_SECONDS_PER_CORE_HOUR


def _widened(known: tuple[int, int] | None, value: int | None) -> tuple[int, int] | None:
    """The smallest and the largest so far."""
    if value is None:
        return known
    low, high = known or (value, value)
    return min(low, value), max(high, value)
