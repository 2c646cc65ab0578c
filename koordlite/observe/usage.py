"""CPU and memory use from counters: rates between two looks, and means over a window bounded by time.

A group's first look gives no use, a counter that went back is dropped, and so is a look without time in between: none
of these may reach a formula as a number (docs/formulas.md, "Usage").
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from koordlite.host import procfs
from koordlite.host.cgroupfs import Cgroups
from koordlite.model.errors import Problem
from koordlite.model.snapshot import Usage, Use
from koordlite.ports import Clock, Files

NODE, BEST_EFFORT = "node", "besteffort"
Key = tuple[str, str]
"""(kind, name): kind is `node`, `besteffort`, `pod` or `host`."""


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


class Window:
    """Means of CPU and memory over the last seconds; old samples fall out by their time."""

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

    def __len__(self) -> int:
        return len(self._samples)


class Sampler:
    """Takes one sample of everything a tick and keeps the windows."""

    def __init__(self, files: Files, cgroups: Cgroups, clock: Clock) -> None:
        self._files, self._cgroups, self._clock = files, cgroups, clock
        self._counters: dict[Key, Counter] = collections.defaultdict(Counter)
        self._windows: dict[Key, Window] = collections.defaultdict(Window)
        self._last: dict[Key, Use] = {}
        self._good_at: float | None = None
        self._started = clock.monotonic()
        self.problems: tuple[Problem, ...] = ()
        """Why the node itself has no sample this time."""

    def sample(self, *, pods: Mapping[str, str], host_apps: Mapping[str, str], seconds: float) -> None:
        """Look at the node, the besteffort group, and the groups of pods (by uid) and host applications (by name)."""
        self._last = {}
        self._sample_node(seconds)
        groups: dict[Key, str] = {("pod", uid): group for uid, group in pods.items()}
        groups |= {("host", name): group for name, group in host_apps.items()}
        groups[BEST_EFFORT, ""] = self._cgroups.layout.besteffort
        for key, group in groups.items():
            self._sample_group(key, group, seconds)
        self._forget({(NODE, ""), *groups}, seconds)

    @property
    def age(self) -> float:
        """Seconds since the last good sample of the node, or since the start when there was none."""
        return self._clock.monotonic() - (self._started if self._good_at is None else self._good_at)

    def last(self) -> Usage:
        """The sample just taken."""
        return self._usage(self._last, 1)

    def average(self) -> Usage:
        """Means over the window."""
        means = {key: mean for key, window in self._windows.items() if (mean := window.mean()) is not None}
        return self._usage(means, len(self._windows[NODE, ""]))

    def _usage(self, uses: Mapping[Key, Use], samples: int) -> Usage:
        best_effort = uses.get((BEST_EFFORT, ""))
        return Usage(
            node=uses.get((NODE, "")),
            pods={name: use for (kind, name), use in uses.items() if kind == "pod"},
            host_apps={name: use for (kind, name), use in uses.items() if kind == "host"},
            best_effort_cpu=best_effort.cpu if best_effort else None,
            samples=samples,
        )

    def _sample_node(self, seconds: float) -> None:
        self.problems = ()
        try:
            ticks, memory = procfs.node_cpu_ticks(self._files), procfs.memory(self._files)
        except (OSError, ValueError) as error:
            do = "make /proc/stat and /proc/meminfo readable; the last limits stay for a while, then they are lifted"
            self.problems = (Problem("node", "/proc", "", f"no usage: {error}", do),)
            return
        busy_seconds = ticks.busy / ticks.clk_tck
        self._note((NODE, ""), busy_seconds, memory.total - memory.available, seconds)

    def _sample_group(self, key: Key, group: str, seconds: float) -> None:
        try:
            cpu_ns, memory = self._cgroups.cpu_usage_ns(group), self._cgroups.memory(group)
        except OSError:
            return  # It went away, or is not there yet: a missing sample says so.
        self._note(key, cpu_ns / 1e9, memory, seconds)

    def _note(self, key: Key, cpu_seconds: float, memory: int, seconds: float) -> None:
        now = self._clock.monotonic()
        rate = self._counters[key].rate(now, cpu_seconds)
        if rate is None:
            return
        use = Use(round(rate * 1000), memory)
        self._last[key] = use
        self._windows[key].add(now, use, seconds)
        if key[0] == NODE:
            self._good_at = now

    def _forget(self, known: set[Key], seconds: float) -> None:
        now = self._clock.monotonic()
        for key in [k for k in self._counters if k not in known]:
            del self._counters[key]
            self._windows.pop(key, None)
        for window in self._windows.values():
            window.trim(now, seconds)
