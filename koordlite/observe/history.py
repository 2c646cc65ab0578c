"""Samples of one subject over the last seconds: means and percentiles over several windows of one set of samples.

A full node has some hundred subjects with five minutes of samples each, so samples are plain numbers side by side, and
sums follow what comes and what falls out. Windows are bounded by time: what is older falls out.
"""

from __future__ import annotations

import array
from collections.abc import Iterable

import msgspec

from koordlite.formulas import measured
from koordlite.model.picture.usage import Use

_SPARE = 64
"""How many samples that are too old for every window may stay before they are moved out."""
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
            self._move_out(needed)

    def over(self, lengths: Iterable[float]) -> None:
        """From now on these windows; one that was not there begins with the samples that are."""
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

    def percentile(self, length: float, part: float) -> Use | None:
        """Use that `part` (0 to 1) of a window's samples do not exceed, CPU and memory each by itself; None without."""
        first = self._windows[length].first
        if first == len(self._times):
            return None
        cpu, memory = (measured.percentile(column[first:], part) for column in (self._cpu, self._memory))
        return Use(round(cpu), round(memory))

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

    def _move_out(self, gone: int) -> None:
        """Rarely, since it moves all that stay."""
        for column in (self._times, self._cpu, self._memory):
            del column[:gone]
        for window in self._windows.values():
            window.first -= gone
