"""Means that follow from the samples recorded before them, so that they need not be written.

The mean over five minutes moves a little for every pod every second, and would take most of a record. But the samples
it is over are in the record already: from as many of them as it says it is over follows what it should be, and only
what differs from that is written. Where the record does not go back far enough, the difference from the mean before is.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

from koordlite.model.picture.usage import Usage, Use
from koordlite.model.snapshot import Snapshot
from koordlite.record.delta import NOTHING, difference
from koordlite.record.gaps import gaps, plus
from koordlite.record.patch import Patcher

Pods = Mapping[str, Use]
AVERAGE = 0
"""The number of `Snapshot.average` among the windows, which are numbered by their seconds."""
_CPU, _MEMORY = operator.attrgetter("cpu"), operator.attrgetter("memory")


class Means:
    """The windows of one piece of a record: what their pods should have. Writer and reader go through the same."""

    def __init__(self) -> None:
        self._trails: dict[int, _Trail] = {}
        self._before: dict[int, Pods] = {}
        self._sampled: list[str] = []

    def written(self, seen: Snapshot, *, sample: bool) -> list[Any]:
        """What has to be written of the windows of `seen`; `sample`: its use is one that the windows count."""
        self._take_in(seen, sample=sample)
        return [self._written(number, usage) for number, usage in _windows(seen)]

    def _written(self, number: int, usage: Usage) -> Any:
        before, pods = self._before.get(number), usage.pods
        self._before[number] = pods
        if pods is before:
            return None
        expected = self._trails[number].means(usage.samples)
        if expected is not None and list(pods) == self._sampled:
            values = pods.values()
            return [gaps(list(map(_CPU, values)), expected[0]), gaps(list(map(_MEMORY, values)), expected[1])]
        return [difference(dict(pods), dict(before or {}))]

    def read(self, seen: Snapshot, written: list[Any], patcher: Patcher, *, sample: bool) -> Snapshot:
        """`seen` with the pods that `written` says its windows have."""
        self._take_in(seen, sample=sample)
        windows = list(_windows(seen))
        found = [self._read(number, u, w, patcher) for (number, u), w in zip(windows, written, strict=True)]
        average, *rest = found
        lengths = [number for number, _ in windows[1:]]
        return dataclasses.replace(seen, average=average, windows=dict(zip(lengths, rest, strict=True)))

    def _read(self, number: int, usage: Usage, written: Any, patcher: Patcher) -> Usage:
        before = self._before.get(number, {})
        if written is None:
            pods = before
        elif len(written) == 1:
            pods = patcher.patched(dict(before), written[0])
        else:
            pods = self._expected(number, usage.samples, written)
        self._before[number] = pods
        return dataclasses.replace(usage, pods=pods)

    def _expected(self, number: int, samples: int, written: Any) -> Pods:
        expected = self._trails[number].means(samples)
        cpu, memory = (plus(old, gap) for old, gap in zip(expected or ([], []), written, strict=True))
        return {uid: Use(*use) for uid, *use in zip(self._sampled, cpu, memory, strict=True)}

    def _take_in(self, seen: Snapshot, *, sample: bool) -> None:
        numbers = {number for number, _ in _windows(seen)}
        self._trails = {number: self._trails.get(number) or _Trail() for number in numbers}
        self._before = {number: pods for number, pods in self._before.items() if number in numbers}
        if not sample:
            return
        pods = seen.usage.pods
        names = list(pods)
        if names != self._sampled:
            self._sampled = names
        taken = _Sample(self._sampled, list(map(_CPU, pods.values())), list(map(_MEMORY, pods.values())))
        for trail in self._trails.values():
            trail.add(taken)


def lean(seen: Snapshot) -> Snapshot:
    """`seen` without what `Means` writes."""
    windows = {number: dataclasses.replace(usage, pods=NOTHING) for number, usage in seen.windows.items()}
    return dataclasses.replace(seen, average=dataclasses.replace(seen.average, pods=NOTHING), windows=windows)


def _windows(seen: Snapshot) -> list[tuple[int, Usage]]:
    return [(AVERAGE, seen.average), *seen.windows.items()]


@dataclasses.dataclass(frozen=True, slots=True)
class _Sample:
    names: list[str]
    cpu: list[int]
    memory: list[int]


class _Trail:
    """The samples of one window and their sums, by pod."""

    def __init__(self) -> None:
        self._samples: collections.deque[_Sample] = collections.deque()
        self._names: list[str] = []
        self._sums: tuple[list[int], list[int], list[int]] = ([], [], [])
        """CPU, memory, number of samples."""

    def add(self, sample: _Sample) -> None:
        """The next sample."""
        if sample.names is not self._names:
            self._rename(sample.names)
        cpu, memory, counts = self._sums
        ones = [1] * len(counts)
        self._sums = _added(cpu, sample.cpu), _added(memory, sample.memory), _added(counts, ones)
        self._samples.append(sample)

    def means(self, count: int) -> tuple[list[int], list[int]] | None:
        """CPU and memory over the last `count` samples; None while there are fewer. Older ones are forgotten."""
        while len(self._samples) > max(count, 1):
            self._drop(self._samples.popleft())
        if len(self._samples) != count:
            return None
        cpu, memory, counts = self._sums
        return list(map(operator.floordiv, cpu, counts)), list(map(operator.floordiv, memory, counts))

    def _drop(self, old: _Sample) -> None:
        cpu, memory, counts = self._sums
        if old.names is self._names and min(counts, default=0) > 1:
            ones = [1] * len(counts)
            self._sums = _less(cpu, old.cpu), _less(memory, old.memory), _less(counts, ones)
            return
        at = {name: index for index, name in enumerate(self._names)}
        for name, used_cpu, used_memory in zip(old.names, old.cpu, old.memory, strict=True):
            index = at.get(name)
            if index is not None and counts[index] > 1:
                cpu[index] -= used_cpu
                memory[index] -= used_memory
                counts[index] -= 1

    def _rename(self, names: list[str]) -> None:
        """Whoever came begins at nothing; who left is forgotten."""
        at = {name: index for index, name in enumerate(self._names)}
        places = [at.get(name) for name in names]
        cpu, memory, counts = ([0 if i is None else part[i] for i in places] for part in self._sums)
        self._sums, self._names = (cpu, memory, counts), names


def _added(left: list[int], right: list[int]) -> list[int]:
    return list(map(operator.add, left, right))


def _less(left: list[int], right: list[int]) -> list[int]:
    return list(map(operator.sub, left, right))
