"""Samples of who uses the CPU: three counters, cheap enough to read fifty times a second.

A whole picture costs too much for that. /proc/stat is too coarse: it counts in hundredths of a second, cgroups in
nanoseconds. A running thread is accounted at each timer interrupt (4 ms at 250 Hz), in all groups above it at once, so
that the difference of two groups is exact where each of them is not. What runs without a break has used whole periods
of the interrupt between two samples, now one more and now one less than their distance in time; so the time between two
samples is by the clock or by the interrupts, whichever says more.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from koordlite.clock import coarse_monotonic, timer_period_seconds
from koordlite.formulas.cpu import reaction
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.cgroups.versions import Version
from koordlite.host.files import RealFiles
from koordlite.model.picture.usage import Usage
from koordlite.model.status import FreshUse
from koordlite.ports import Clock, Files

_BYTES = 4096


class UsageSample(msgspec.Struct, frozen=True):
    """CPU time used until one moment, in nanoseconds."""

    time: float
    accounted: float
    """Until when threads that run without a break are accounted: the last timer interrupt."""
    node_ns: int | None
    pods_ns: int
    best_effort_ns: int


class OpenCounter:
    """A file read by pread through a descriptor of its own: `RealFiles` does the same, with more around it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> bytes:
        """The content; OSError when the file is gone and there is no new one of its name."""
        try:
            return os.pread(self._fd, _BYTES, 0)
        except OSError:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            os.close(self._fd)
            self._fd = fd
            return os.pread(fd, _BYTES, 0)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


class Sentinel:
    """Reads the counters of the node, of all pods, and of best effort."""

    def __init__(self, files: Files, cgroups: Cgroups, clock: Clock) -> None:
        """OSError where a counter cannot be opened."""
        layout = cgroups.layout
        # The root group of v2 repeats /proc/stat, tick by tick and CPU by CPU; the one of v1 counts like any other.
        groups = [*([""] if layout.version == 1 else []), layout.kubepods, layout.besteffort]
        counters = [_counter(files, cgroups.path(group, "cpu.usage")) for group in groups]
        self._now, self._usage_ns = clock.monotonic, Version(layout.version).usage_ns
        real = isinstance(files, RealFiles)
        self._accounted = coarse_monotonic if real else clock.monotonic
        self.confirm_seconds = reaction.confirm_seconds(timer_period_seconds=timer_period_seconds() if real else 0.0)
        """What two samples have to be apart for their difference to be worth an answer."""
        self._kept = [counter for counter in counters if isinstance(counter, OpenCounter)]
        self._node = counters[0] if layout.version == 1 else None
        self._pods, self._best_effort = counters[-2:]
        self._widest = counters[0]

    def sample(self) -> UsageSample:
        """The counters at this moment; OSError where one cannot be read."""
        usage_ns, time, accounted = self._usage_ns, self._now(), self._accounted()
        node_ns = usage_ns(self._node()) if self._node else None
        return UsageSample(time, accounted, node_ns, usage_ns(self._pods()), usage_ns(self._best_effort()))

    def others(self) -> tuple[float, int]:
        """The time, and the CPU time of all but best effort: of the node, on v2 of all pods. The cheapest sample."""
        usage_ns = self._usage_ns
        return self._now(), usage_ns(self._widest()) - usage_ns(self._best_effort())

    def close(self) -> None:
        """Close the descriptors."""
        while self._kept:
            self._kept.pop().close()

    def outside_milli(self, usage: Usage) -> int:
        """Use in `usage` that `others` does not count: on v2 what runs outside of pods."""
        if self._node or usage.node is None:
            return 0
        return max(0, usage.node.cpu - sum(use.cpu for use in usage.pods.values()))


def _counter(files: Files, path: str) -> Callable[[], bytes]:
    return OpenCounter(path) if isinstance(files, RealFiles) else lambda: files.read(path)


def between(first: UsageSample, second: UsageSample) -> FreshUse:
    """Use between two samples."""
    seconds = max(second.time - first.time, second.accounted - first.accounted)
    node = None
    if first.node_ns is not None and second.node_ns is not None:
        node = reaction.milli(used_ns=second.node_ns - first.node_ns, seconds=seconds)
    return FreshUse(
        node=node,
        pods=reaction.milli(used_ns=second.pods_ns - first.pods_ns, seconds=seconds),
        best_effort=reaction.milli(used_ns=second.best_effort_ns - first.best_effort_ns, seconds=seconds),
    )
