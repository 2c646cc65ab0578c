"""The numbers of a whole run, added up tick by tick, and as text."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import msgspec

from koordlite.formulas.cpu import be_limit
from koordlite.report import node_figures, paragraph, units
from koordlite.report.node_figures import Figures
from koordlite.report.tick import Tick

_MILLICORE_SECONDS_PER_CORE_HOUR = 1000 * 3600
_LATE_SHARE = 0.05


class Summary(msgspec.Struct, kw_only=True):
    """The summary of a run."""

    ticks: int = 0
    seconds: float = 0.0
    """Time from the first tick to the last."""
    seconds_above_threshold: float = 0.0
    """Time in which the node used more than the suppress threshold."""
    seconds_well_above_threshold: float = 0.0
    """Time by a CPU or more: the rounding of the limit to whole CPUs does not explain that."""
    seconds_late: float = 0.0
    """The part of that in which best-effort work had more than the two CPUs that a limit always leaves it."""
    prod_seconds_above_threshold: float = 0.0
    """Time in which latency-sensitive work alone used more than the threshold: no limit on BE could have helped."""
    be_core_hours_allowed: float = 0.0
    """CPU that the limit would have let best-effort work use."""
    be_core_hours_used: float = 0.0
    be_limit_min: int | None = None
    """Millicores, from the first tick on in which the use of the node was known: before it nothing could be limited."""
    be_limit_max: int | None = None
    would_limit_min: int | None = None
    """The same had `cpuSuppress` been enforced; None unless it observed."""
    would_limit_max: int | None = None
    writes: int = 0
    writes_by_kind: Mapping[str, int] = msgspec.field(default_factory=dict)
    """`cpuset.cpus`, `cpu.quota`, `resctrl L3`, `Node` …"""
    refusals: int = 0
    """Writes the kernel or the API server refused."""
    foreign_writes: int = 0
    """Values of ours that another program changed."""
    decisions: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Number of ticks that gave a reason, by reason."""
    tick_seconds_mean: float = 0.0
    tick_seconds_max: float = 0.0

    @property
    def in_time(self) -> bool:
        """True when the limit was late for at most a twentieth of the run; it reacts to what it has measured."""
        return self.seconds_late <= _LATE_SHARE * self.seconds


class Totals:
    """Adds up ticks; its size does not grow with the run."""

    def __init__(self) -> None:
        self._first = 0.0
        self._before: Figures | None = None
        self._measured = False
        self._sums = Summary()
        self._kinds: collections.Counter[str] = collections.Counter()
        self._reasons: collections.Counter[str] = collections.Counter()
        self._cost = 0.0

    @property
    def ticks(self) -> int:
        """Number of ticks so far."""
        return self._sums.ticks

    def add(self, tick: Tick) -> None:
        """Count one more tick, later than the one before. Use is a mean over the time since then; the limit of that
        time is the one set by the tick before."""
        sums, now, before = self._sums, tick.figures, self._before
        if before is None:
            self._first = tick.time
        else:
            seconds, limit = max(0.0, tick.time - before.time), before.be_limit or 0
            well = node_figures.well_above(now.node_cpu, now.threshold_milli)
            sums.seconds_above_threshold += seconds * node_figures.above(now.node_cpu, now.threshold_milli)
            sums.seconds_well_above_threshold += seconds * well
            sums.seconds_late += seconds * (well and limit > be_limit.MIN_CPUS * 1000)
            sums.prod_seconds_above_threshold += seconds * node_figures.above(now.prod_cpu, now.threshold_milli)
            sums.be_core_hours_allowed += limit * seconds / _MILLICORE_SECONDS_PER_CORE_HOUR
            sums.be_core_hours_used += (now.be_cpu or 0) * seconds / _MILLICORE_SECONDS_PER_CORE_HOUR
        self._before = now
        sums.ticks += 1
        sums.seconds = tick.time - self._first
        self._cost += tick.tick_seconds
        sums.tick_seconds_mean = self._cost / sums.ticks
        sums.tick_seconds_max = max(sums.tick_seconds_max, tick.tick_seconds)
        sums.refusals += sum(not step.ok for step in tick.applied)
        sums.foreign_writes += len(tick.foreign)
        self._kinds.update(step.place.metric for step in tick.applied if step.ok)
        self._reasons.update(decision.reason for decision in tick.decisions)
        if not self._measured and now.node_cpu is not None:
            self._measured = True
            sums.be_limit_min = sums.be_limit_max = sums.would_limit_min = sums.would_limit_max = None
        sums.be_limit_min, sums.be_limit_max = _widened(sums.be_limit_min, sums.be_limit_max, now.be_limit)
        sums.would_limit_min, sums.would_limit_max = _widened(
            sums.would_limit_min, sums.would_limit_max, now.would_limit
        )

    def summary(self) -> Summary:
        """The numbers so far."""
        kinds, reasons = dict(sorted(self._kinds.items())), dict(self._reasons.most_common())
        return msgspec.structs.replace(self._sums, writes=self._kinds.total(), writes_by_kind=kinds, decisions=reasons)


def _widened(low: int | None, high: int | None, value: int | None) -> tuple[int | None, int | None]:
    """The smallest and the largest so far."""
    if value is None:
        return low, high
    return min(value if low is None else low, value), max(value if high is None else high, value)


def text(numbers: Summary) -> str:
    """The summary of a run, for its end."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in numbers.writes_by_kind.items())
    reasons = ", ".join(f"{reason} {count}" for reason, count in numbers.decisions.items())
    written = f"{numbers.writes}{f' ({kinds})' if kinds else ''}, {numbers.refusals} refused"
    cost = f"{units.span(numbers.tick_seconds_mean)} each, {units.span(numbers.tick_seconds_max)} at most"
    well = f"{units.span(numbers.seconds_well_above_threshold)} {node_figures.WELL} ({node_figures.WHY})"
    alone = f"{units.span(numbers.prod_seconds_above_threshold)} by LS alone"
    late = f"{units.span(numbers.seconds_late)} of that before BE was at the two CPUs it keeps"
    facts = [
        ("ran for", f"{units.span(numbers.seconds)}, {numbers.ticks} ticks, {cost}"),
        ("above threshold", f"{units.span(numbers.seconds_above_threshold)}, of which {well}, {late}, and {alone}"),
        ("limit of BE", _cores(numbers.be_limit_min, numbers.be_limit_max)),
        ("BE used", f"{numbers.be_core_hours_used:.2f} of {numbers.be_core_hours_allowed:.2f} core hours allowed"),
        ("writes", written),
        ("changed by others", str(numbers.foreign_writes)),
        ("decisions", reasons or "none"),
    ]
    if numbers.would_limit_min is not None:
        would = _cores(numbers.would_limit_min, numbers.would_limit_max)
        facts.insert(3, ("would limit BE to", f"{would}; cpuSuppress only observed"))
    return "".join(f"{paragraph.fill(f'  {name:<19}{value}', 100, hanging=' ' * 21)}\n" for name, value in facts)


def _cores(least: int | None, most: int | None) -> str:
    return "unknown" if least is None else f"{units.cores_between(least, most)} cores"
