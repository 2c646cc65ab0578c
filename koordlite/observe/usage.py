"""CPU and memory use of everything, one sample a tick; `observe.windows` keeps them."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.formulas import measured
from koordlite.host import procfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.files import readable
from koordlite.model.errors import Problem
from koordlite.model.picture.usage import Usage, Use
from koordlite.observe import windows
from koordlite.observe.rotation import Rotation
from koordlite.observe.windows import BEST_EFFORT, HOST, LIMIT, NODE, ONE, POD, REQUEST, Windows
from koordlite.ports import Clock, Files

CONTAINER = "container"
_NS_OF_A_MILLI = 1_000_000
MEMORY_SECONDS = 5.0
"""Time within which the memory of every pod is read again: memory.stat costs the kernel more than all the rest."""
AT_LEAST_MEMORY = 48


class Subjects(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects to measure in one tick."""

    pods: Mapping[str, str]
    """Group by uid."""
    host_apps: Mapping[str, str]
    """Group by name."""
    containers: tuple[str, ...] = ()
    """Groups whose use and throttling are asked for."""
    best_effort_request: int | None = None
    best_effort_limit: int | None = None
    """Limit in millicores, to be averaged with the rest."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of the requested means and percentiles."""

    main: int
    """Seconds of `Sampler.average`."""
    windows: tuple[int, ...] = ()
    """Further lengths in seconds."""
    percentiles: tuple[tuple[int, int], ...] = ()
    """Seconds and percent."""

    @property
    def lengths(self) -> set[int]:
        """Every length that is needed."""
        return {self.main, *self.windows, *(seconds for seconds, _ in self.percentiles)}


class Sampler:
    """Takes one sample of everything a tick and keeps the windows."""

    def __init__(self, files: Files, cgroups: Cgroups, clock: Clock) -> None:
        self._files, self._cgroups, self._clock = files, cgroups, clock
        self._counters: dict[str, dict[str, Counter]] = collections.defaultdict(dict)
        self._memory = Rotation(self._memory_bytes, seconds=MEMORY_SECONDS, at_least=AT_LEAST_MEMORY)
        self._throttling: dict[str, Throttling] = {}
        self._windows = Windows()
        self._spans = Spans(main=0)
        self.last = windows.usage({}, 1)
        """The sample taken last."""
        self._good_at: float | None = None
        self._first_at: float | None = None
        self._started = clock.monotonic()
        self.problems: tuple[Problem, ...] = ()
        """Reason why the node itself has no sample this time."""

    def sample(self, subjects: Subjects, spans: Spans) -> None:
        """Measure the node and `subjects`, and keep what `spans` asks for."""
        now, self._spans = self._clock.monotonic(), spans
        groups = {BEST_EFFORT: {ONE: self._cgroups.layout.besteffort}, POD: subjects.pods, HOST: subjects.host_apps}
        sample = {NODE: self._node(), **self._of_groups(now, groups), **_amounts(subjects)}
        if sample[NODE]:
            self._good_at = now
            self._first_at = now if self._first_at is None else self._first_at
        names = {kind: named.keys() for kind, named in groups.items()}
        self._windows.add(now, sample, {**names, NODE: {ONE}, REQUEST: {ONE}, LIMIT: {ONE}}, spans.lengths)
        self.last = msgspec.structs.replace(
            windows.usage(sample, 1),
            containers=self._rates(CONTAINER, {group: group for group in subjects.containers}),
            throttled=self._throttled(subjects.containers),
        )

    @property
    def age(self) -> float:
        """Seconds since the last good sample of the node, or since the start when there was none."""
        return self._clock.monotonic() - (self._started if self._good_at is None else self._good_at)

    @property
    def window_left(self) -> float:
        """Seconds until this run has measured the node for the whole main window; 0 from then on."""
        measured = 0.0 if self._first_at is None else self._clock.monotonic() - self._first_at
        return max(self._spans.main - measured, 0.0)

    def average(self) -> Usage:
        """Means over the main window."""
        return self._windows.mean(self._spans.main)

    def means(self) -> dict[int, Usage]:
        """Means over the other windows; one without a sample of anything is missing."""
        return {length: self._windows.mean(length) for length in self._spans.windows if self._windows.has(length)}

    def percentiles(self) -> dict[tuple[int, int], Usage]:
        """Percentiles that were asked for, by seconds and percent; a window without a sample of anything is missing."""
        spans = (each for each in self._spans.percentiles if self._windows.has(each[0]))
        return {(seconds, percent): self._windows.percentile(seconds, percent) for seconds, percent in spans}

    def node_percentiles(self) -> dict[int, Use]:
        """Percent → use of the node over the main window."""
        return self._windows.node_percentiles(self._spans.main)

    def _node(self) -> dict[str, Use]:
        self.problems = ()
        try:
            ticks, memory = procfs.node_cpu_ticks(self._files), procfs.memory(self._files)
        except (OSError, ValueError) as error:
            do = "make /proc/stat and /proc/meminfo readable; the last limits stay for a while, then they are lifted"
            self.problems = (Problem("node", "/proc", "", f"no usage: {error}", do),)
            return {}
        counter = self._counters[NODE].setdefault(ONE, Counter())
        rate = counter.rate(self._clock.monotonic(), ticks / procfs.USER_HZ)
        return {} if rate is None else {ONE: Use(round(rate * 1000), memory.total - memory.available)}

    def _of_groups(self, now: float, groups: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Use]]:
        """Samples by kind and name; a group that went away, or is not there yet, has no sample."""
        listed = (group for named in groups.values() for group in named.values())
        memory = self._memory.turn(now, listed, fresh=(self._cgroups.layout.besteffort,))
        return {
            kind: {
                name: Use(milli, memory[group])
                for name, milli in self._rates(kind, named).items()
                if (group := named[name]) in memory
            }
            for kind, named in groups.items()
        }

    def _rates(self, kind: str, groups: Mapping[str, str]) -> dict[str, int]:
        """CPU in millicores by name. Hundreds of groups a tick: names that do not change are looked up once."""
        before = self._counters[kind]
        counters = self._counters[kind] = {name: before[name] if name in before else Counter() for name in groups}
        used_ns, now = self._cgroups.cpu_usage_ns, self._clock.monotonic
        rates: dict[str, int] = {}
        for name, group in groups.items():
            try:
                rate = counters[name].rate(now(), used_ns(group))
            except (OSError, ValueError):
                continue  # It went away, is not there yet, or holds no number: a missing sample says so.
            if rate is not None:
                rates[name] = round(rate / _NS_OF_A_MILLI)
        return rates

    def _throttled(self, groups: Iterable[str]) -> dict[str, float]:
        before = self._throttling
        self._throttling = {group: before.get(group) or Throttling() for group in groups}
        stats = ((group, each, readable(self._cgroups.throttling, group)) for group, each in self._throttling.items())
        ratios = ((group, each.ratio(stat.periods, stat.throttled)) for group, each, stat in stats if stat)
        return {group: ratio for group, ratio in ratios if ratio is not None}

    def _memory_bytes(self, group: str) -> int | None:
        used = readable(self._cgroups.memory, group)
        # Beyond 63 bits the kernel's counter went below zero: no sample, as where there is no number.
        return used if used is not None and used < 1 << 63 else None


def _amounts(subjects: Subjects) -> dict[str, dict[str, Use]]:
    """Average what best-effort pods request and may use, which is no measurement but averaged like one."""
    amounts = {REQUEST: subjects.best_effort_request, LIMIT: subjects.best_effort_limit}
    return {kind: {ONE: Use(milli, 0)} for kind, milli in amounts.items() if milli is not None}


class Counter:
    """Rate of a growing number, from the reading before to this one.

    A first reading gives no rate, a counter that went back is dropped, and so is a reading without time in between:
    none of these may reach a formula as a number (docs/formulas.md, "Usage").
    """

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
