"""CPU and memory use of everything, one sample a tick, and means over windows bounded by time."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from koordlite.host import procfs
from koordlite.host.cgroupfs import Cgroups
from koordlite.model.errors import Problem
from koordlite.model.snapshot import Usage, Use
from koordlite.observe.counters import Counter, Throttling, Window
from koordlite.observe.rotation import Rotation
from koordlite.ports import Clock, Files

NODE, BEST_EFFORT, POD, HOST = "node", "besteffort", "pod", "host"
CONTAINER, THROTTLED, REQUEST, LIMIT = "container", "throttled", "be-request", "be-limit"
Key = tuple[str, str]
"""(kind, name): one of the kinds above, and a uid, name, group or nothing."""
_MILLION = 1_000_000
MEMORY_SECONDS = 4.0
"""Within which the memory of every pod is read again: the kernel adds up memory.stat for longer than all the rest."""
AT_LEAST_MEMORY = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """Whom to look at in one tick."""

    pods: Mapping[str, str]
    """Group by uid."""
    host_apps: Mapping[str, str]
    """Group by name."""
    containers: tuple[str, ...] = ()
    """Groups whose use and throttling are asked for."""
    best_effort_request: int | None = None
    best_effort_limit: int | None = None
    """In millicores, to be averaged with the rest."""


class Sampler:
    """Takes one sample of everything a tick and keeps the windows."""

    def __init__(self, files: Files, cgroups: Cgroups, clock: Clock) -> None:
        self._files, self._cgroups, self._clock = files, cgroups, clock
        self._counters: dict[Key, Counter] = collections.defaultdict(Counter)
        self._memory = Rotation(cgroups.memory, seconds=MEMORY_SECONDS, at_least=AT_LEAST_MEMORY)
        self._throttling: dict[str, Throttling] = collections.defaultdict(Throttling)
        self._windows: dict[int, dict[Key, Window]] = {}
        self._main = 0
        self._last: dict[Key, Use] = {}
        self._good_at: float | None = None
        self._started = clock.monotonic()
        self.problems: tuple[Problem, ...] = ()
        """Why the node itself has no sample this time."""

    def sample(self, subjects: Subjects, *, seconds: int, windows: Iterable[int] = ()) -> None:
        """Look at the node and at `subjects`; keep means over `seconds` (`average`) and over each of `windows`."""
        now = self._clock.monotonic()
        self._memory.begin(now, fresh=(self._cgroups.layout.besteffort,))
        self._last = dict(self._samples(subjects))
        self._memory.end()
        if (NODE, "") in self._last:
            self._good_at = now
        self._main = seconds
        wanted = {seconds, *windows}
        self._windows = {length: self._windows.get(length, {}) for length in sorted(wanted)}
        for length, kept in self._windows.items():
            # Only strategies ask for means of containers, and over short windows: five minutes of each would be large.
            _remember(kept, self._last, now, length, all_kinds=length in windows)
        self._forget()

    @property
    def age(self) -> float:
        """Seconds since the last good sample of the node, or since the start when there was none."""
        return self._clock.monotonic() - (self._started if self._good_at is None else self._good_at)

    def last(self) -> Usage:
        """The sample just taken."""
        return _usage(self._last, 1)

    def average(self) -> Usage:
        """Means over the main window."""
        return self._mean(self._main)

    def means(self, windows: Iterable[int]) -> dict[int, Usage]:
        """Means over other windows; one without a sample of anything is missing."""
        return {length: self._mean(length) for length in windows if self._windows.get(length)}

    def _mean(self, length: int) -> Usage:
        windows = self._windows.get(length, {})
        means = {key: mean for key, window in windows.items() if (mean := window.mean()) is not None}
        node = windows.get((NODE, ""))
        return _usage(means, len(node) if node is not None else 0)

    def _samples(self, subjects: Subjects) -> Iterator[tuple[Key, Use]]:
        yield from self._node()
        yield from self._group((BEST_EFFORT, ""), self._cgroups.layout.besteffort)
        for uid, group in subjects.pods.items():
            yield from self._group((POD, uid), group)
        for name, group in subjects.host_apps.items():
            yield from self._group((HOST, name), group)
        for group in subjects.containers:
            yield from self._container(group)
        if subjects.best_effort_request is not None:
            yield (REQUEST, ""), Use(subjects.best_effort_request, 0)
        if subjects.best_effort_limit is not None:
            yield (LIMIT, ""), Use(subjects.best_effort_limit, 0)
        self._seen = {(NODE, ""), (BEST_EFFORT, ""), *((POD, uid) for uid in subjects.pods)}
        self._seen |= {(HOST, name) for name in subjects.host_apps}
        self._seen |= {(CONTAINER, group) for group in subjects.containers}

    def _node(self) -> Iterator[tuple[Key, Use]]:
        self.problems = ()
        try:
            ticks, memory = procfs.node_cpu_ticks(self._files), procfs.memory(self._files)
        except (OSError, ValueError) as error:
            do = "make /proc/stat and /proc/meminfo readable; the last limits stay for a while, then they are lifted"
            self.problems = (Problem("node", "/proc", "", f"no usage: {error}", do),)
            return
        yield from self._rate((NODE, ""), ticks.busy / ticks.clk_tck, memory.total - memory.available)

    def _group(self, key: Key, group: str) -> Iterator[tuple[Key, Use]]:
        try:
            cpu_ns, memory = self._cgroups.cpu_usage_ns(group), self._memory.get(group)
        except (OSError, ValueError):
            return  # It went away, is not there yet, or holds no number: a missing sample says so.
        if memory is not None:
            yield from self._rate(key, cpu_ns / 1e9, memory)

    def _container(self, group: str) -> Iterator[tuple[Key, Use]]:
        try:
            cpu_ns, stat = self._cgroups.cpu_usage_ns(group), self._cgroups.throttling(group)
        except (OSError, ValueError):
            return
        yield from self._rate((CONTAINER, group), cpu_ns / 1e9, 0)
        ratio = self._throttling[group].ratio(stat.periods, stat.throttled)
        if ratio is not None:
            yield (THROTTLED, group), Use(round(ratio * _MILLION), 0)

    def _rate(self, key: Key, cpu_seconds: float, memory: int) -> Iterator[tuple[Key, Use]]:
        rate = self._counters[key].rate(self._clock.monotonic(), cpu_seconds)
        if rate is not None:
            yield key, Use(round(rate * 1000), memory)

    def _forget(self) -> None:
        """Pods come and go for ever; what is not looked at any more is dropped with its windows."""
        if self._counters.keys() == self._seen:
            return
        self._counters = collections.defaultdict(
            Counter, {key: counter for key, counter in self._counters.items() if key in self._seen}
        )
        self._throttling = collections.defaultdict(
            Throttling, {g: each for g, each in self._throttling.items() if (CONTAINER, g) in self._seen}
        )
        for length, kept in self._windows.items():
            self._windows[length] = {key: window for key, window in kept.items() if self._is_known(key)}

    def _is_known(self, key: Key) -> bool:
        kind, name = key
        return kind in (REQUEST, LIMIT) or ((CONTAINER, name) if kind == THROTTLED else key) in self._seen


def _remember(kept: dict[Key, Window], last: Mapping[Key, Use], now: float, seconds: int, *, all_kinds: bool) -> None:
    for key, use in last.items():
        if all_kinds or key[0] not in (CONTAINER, THROTTLED):
            window = kept.get(key)
            if window is None:
                window = kept[key] = Window()
            window.add(now, use, seconds)
    for key, window in kept.items():
        if key not in last:
            window.trim(now, seconds)


def _usage(uses: Mapping[Key, Use], samples: int) -> Usage:
    kinds: dict[str, dict[str, Use]] = collections.defaultdict(dict)
    for (kind, name), use in uses.items():
        kinds[kind][name] = use
    return Usage(
        node=uses.get((NODE, "")),
        pods=kinds[POD],
        host_apps=kinds[HOST],
        best_effort_cpu=_cpu(uses, BEST_EFFORT),
        best_effort_request=_cpu(uses, REQUEST),
        best_effort_limit=_cpu(uses, LIMIT),
        containers={group: use.cpu for group, use in kinds[CONTAINER].items()},
        throttled={group: use.cpu / _MILLION for group, use in kinds[THROTTLED].items()},
        samples=samples,
    )


def _cpu(uses: Mapping[Key, Use], kind: str) -> int | None:
    use = uses.get((kind, ""))
    return use.cpu if use else None
