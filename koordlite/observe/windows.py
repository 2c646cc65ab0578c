"""Use of the node and its pods over the last seconds: means and percentiles over every window asked for.

A full node has some hundred subjects with five minutes of samples each, so samples are plain numbers side by side, and
sums follow what comes and what falls out. Windows are bounded by time: what is older falls out.
"""

from __future__ import annotations

import array
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import msgspec

from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable
from koordlite.model import duration
from koordlite.model.picture.usage import NodeWindow, Spread, Usage, Use

_SPARE = 64
"""Samples too old for every window that may stay before they are moved out."""
_MOST = 2**63 - 1
"""The largest number a column holds. Sums of what pods ask for may be beyond it, and a kernel's counter that went below
zero; either way it is more than any node has."""


class _Window(msgspec.Struct):
    """The samples from `first` on, and their sums."""

    seconds: float
    first: int = 0
    cpu: int = 0
    memory: int = 0


class History:
    """CPU and memory of one subject, in millicores and bytes."""

    __slots__ = ("_cpu", "_memory", "_times", "_windows")

    def __init__(self, lengths: Iterable[float]) -> None:
        """`lengths` of the windows in seconds."""
        self._times, self._cpu, self._memory = array.array("d"), array.array("q"), array.array("q")
        self._windows: dict[float, _Window] = {length: _Window(length) for length in lengths}

    def add(self, time: float, use: Use) -> None:
        """Take in a sample; `time` never goes back."""
        cpu, memory = min(use.cpu, _MOST), min(use.memory, _MOST)
        self._times.append(time)
        self._cpu.append(cpu)
        self._memory.append(memory)
        for window in self._windows.values():
            window.cpu += cpu
            window.memory += memory
        self.trim(time)

    def trim(self, time: float) -> None:
        """Let fall out of each window what is too old for it at `time`."""
        times = self._times
        needed = count = len(times)
        for window in self._windows.values():
            first, oldest = window.first, time - window.seconds
            while first < count and times[first] < oldest:
                window.cpu -= self._cpu[first]
                window.memory -= self._memory[first]
                first += 1
            window.first = first
            needed = min(needed, first)
        if needed >= _SPARE:
            # Rarely, since it moves all that stay.
            for column in (self._times, self._cpu, self._memory):
                del column[:needed]
            for window in self._windows.values():
                window.first -= needed

    def resize(self, lengths: Iterable[float]) -> None:
        """Change the windows; a new one starts from the retained samples."""
        for length in lengths:
            if length not in self._windows:
                self._windows[length] = _Window(length, 0, sum(self._cpu), sum(self._memory))
        self._windows = {length: self._windows[length] for length in lengths}
        if self._times:
            self.trim(self._times[-1])

    def mean(self, length: float) -> Use | None:
        """The mean over one window, rounded down; None without samples."""
        window = self._windows[length]
        count = len(self._times) - window.first
        return Use(window.cpu // count, window.memory // count) if count else None

    def percentiles(self, length: float, percents: Iterable[int]) -> dict[int, Use]:
        """Percent → what so many percent of a window's samples do not exceed; empty without samples. Sorts once."""
        first = self._windows[length].first
        if first == len(self._times):
            return {}
        cpu, memory = sorted(self._cpu[first:]), sorted(self._memory[first:])
        parts = ((percent, percent / 100) for percent in percents)
        return {
            percent: Use(round(measured.percentile(cpu, part)), round(measured.percentile(memory, part)))
            for percent, part in parts
        }

    def span(self, length: float) -> float:
        """Seconds from the first to the last sample of a window; 0 without samples."""
        first = self._windows[length].first
        return self._times[-1] - self._times[first] if first < len(self._times) else 0.0

    def __len__(self) -> int:
        """Samples in memory, those among them that are about to be moved out."""
        return len(self._times)

    def samples(self, length: float) -> int:
        """Number of samples in a window."""
        return len(self._times) - self._windows[length].first


NODE, BEST_EFFORT, POD, HOST = "node", "besteffort", "pod", "host"
REQUEST, LIMIT = "be-request", "be-limit"
ONE = ""
"""The name of what there is only one of."""
NODE_PERCENTS = (50, 90, 95, 99)
"""Percentiles of Koordinator's NodeMetric."""

Sample = Mapping[str, Mapping[str, Use]]
"""Use by kind (above) and name: uid of a pod, name of an application."""


class Windows:
    """Samples of everything, kept as long as the longest window that is asked for."""

    def __init__(self) -> None:
        self._histories: dict[str, dict[str, History]] = {}
        self._lengths: frozenset[int] = frozenset()

    def add(self, time: float, sample: Sample, subjects: Mapping[str, Set[str]], lengths: Iterable[int]) -> None:
        """Take in a sample. `subjects` names whoever is still looked at; the history of the others is dropped."""
        self._resize(frozenset(lengths))
        self._histories = {kind: self._updated(time, kind, sample.get(kind, {}), subjects[kind]) for kind in subjects}

    def mean(self, length: int) -> Usage:
        """Means over one window; nobody is in it while there is no sample."""
        return self._of_each(length, operator.methodcaller("mean", length)) if length in self._lengths else usage({}, 0)

    def percentile(self, length: int, percent: int) -> Usage:
        """Values that `percent` of the samples of each subject do not exceed."""
        return self._of_each(length, lambda each: each.percentiles(length, (percent,)).get(percent))

    def _of_each(self, length: int, value: Callable[[History], Use | None]) -> Usage:
        values = {
            kind: {name: use for name, each in histories.items() if (use := value(each)) is not None}
            for kind, histories in self._histories.items()
        }
        return usage(values, self._samples(length))

    def node_percentiles(self, length: int) -> dict[int, Use]:
        """Percent → use of the node; empty without a sample."""
        node = self._histories.get(NODE, {}).get(ONE)
        return node.percentiles(length, NODE_PERCENTS) if node else {}

    def has(self, length: int) -> bool:
        """Tell whether a window has a sample of anybody."""
        histories = itertools.chain.from_iterable(by_name.values() for by_name in self._histories.values())
        return length in self._lengths and any(each.samples(length) for each in histories)

    def _samples(self, length: int) -> int:
        node = self._histories.get(NODE, {}).get(ONE)
        return node.samples(length) if node else 0

    def _updated(self, time: float, kind: str, uses: Mapping[str, Use], names: Set[str]) -> dict[str, History]:
        histories = self._histories.get(kind, {})
        if histories.keys() != names:
            histories = {name: histories[name] if name in histories else History(self._lengths) for name in names}
        for name, history in histories.items():
            use = uses.get(name)
            if use is None:
                history.trim(time)
            else:
                history.add(time, use)
        return histories

    def _resize(self, lengths: frozenset[int]) -> None:
        if lengths == self._lengths:
            return
        self._lengths = lengths
        for histories in self._histories.values():
            for history in histories.values():
                history.resize(lengths)


def usage(sample: Sample, samples: int) -> Usage:
    """A sample, or means of some, as the picture has them."""
    return Usage(
        node=sample.get(NODE, {}).get(ONE),
        pods=sample.get(POD, {}),
        host_apps=sample.get(HOST, {}),
        best_effort_cpu=_cpu(sample, BEST_EFFORT),
        best_effort_request=_cpu(sample, REQUEST),
        best_effort_limit=_cpu(sample, LIMIT),
        samples=samples,
    )


def _cpu(sample: Sample, kind: str) -> int | None:
    use = sample.get(kind, {}).get(ONE)
    return use.cpu if use else None


PERCENTILE_SECONDS = 15.0
"""Time after which percentiles are computed again: sorting half an hour of samples in each tick would cost more than
the rest of it, and a report is sent every 30 seconds at most."""
MOST_SECONDS = 4 * 3600.0
"""A longer duration is reported as if there were too few samples: it would have to be kept in memory."""


class NodeWindows:
    """Samples of the node and of the system over the durations of `metricAggregatePolicy`: kept for the NodeMetric, and
    only while one is reported. One history of half an hour is small; a history of each pod would not be."""

    def __init__(self) -> None:
        self._node, self._system = History(()), History(())
        self._lengths: tuple[int, ...] = ()
        self._read_at: float | None = None
        self._windows: tuple[NodeWindow, ...] = ()

    def read(self, now: float, sample: Usage, lengths_ns: Sequence[int]) -> tuple[NodeWindow, ...]:
        """Take in `sample`, and give what the windows come to; at most `PERCENTILE_SECONDS` old."""
        self._resize(tuple(lengths_ns))
        if sample.node is not None:
            system = allocatable.system_use(
                node=sample.node, pods=sample.pods.values(), host_apps=sample.host_apps.values()
            )
            self._node.add(now, sample.node)
            self._system.add(now, system)
        if self._read_at is None or now - self._read_at >= PERCENTILE_SECONDS:
            self._read_at = now
            self._windows = tuple(
                NodeWindow(length_ns=length, node=_spread(self._node, length), system=_spread(self._system, length))
                for length in self._lengths
            )
        return self._windows

    def _resize(self, lengths: tuple[int, ...]) -> None:
        if lengths == self._lengths:
            return
        self._lengths, self._read_at = lengths, None
        spans = [seconds for seconds in map(_seconds, lengths) if seconds <= MOST_SECONDS]
        self._node.resize(spans)
        self._system.resize(spans)


def _spread(history: History, length: int) -> Spread | None:
    seconds = _seconds(length)
    if seconds > MOST_SECONDS:
        return None
    mean = history.mean(seconds)
    if mean is None or measured.cold_start(window_seconds=seconds, span_seconds=history.span(seconds)):
        return None
    return Spread(mean=mean, percentiles=history.percentiles(seconds, NODE_PERCENTS))


def _seconds(length_ns: int) -> float:
    return length_ns / duration.SECOND
