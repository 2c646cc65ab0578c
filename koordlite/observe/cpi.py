"""Cycles and instructions of containers: some seconds of each minute, in a thread of its own beside the ticks.

Opening the counters takes two system calls for each container and CPU, and while they are open each change from one
container to another costs the kernel more: so only some seconds are counted, and a bounded number of counters.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from koordlite.host import perf_events
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.host.perf_events import CgroupCounters, Reading
from koordlite.model.errors import HardwareAbsent, Problem
from koordlite.model.picture.usage import HardwareCounts
from koordlite.model.settings import MetricsSettings
from koordlite.threads import Worker
from koordlite.unchanged import last_if_equal

MOST_COUNTERS = 16_384
"""That are open at a time. Containers beyond that have their turn in the next window."""
_EVENTS = 2


Open = Callable[[str, Sequence[int]], CgroupCounters]
"""Counters of a group on CPUs: FileNotFoundError when it is gone, HardwareAbsent where nothing is counted."""


class CPIReader:
    """Remembers the last counts of each container."""

    def __init__(
        self,
        opening: Open,
        *,
        interval_seconds: float,
        window_seconds: float,
        wait: Callable[[float], object] = time.sleep,
        begin: Callable[[Worker], object] = Worker.start,
    ) -> None:
        """`wait` passes a window; `begin` starts the thread of a round."""
        self._opening, self._interval, self._window = opening, interval_seconds, window_seconds
        self._wait, self._begin = wait, begin
        self._began: float | None = None
        self._rounds = 0
        self._last_round: dict[str, int] = {}
        self._thread: Worker | None = None
        self._counts: dict[str, HardwareCounts] = {}
        self._last: dict[str, HardwareCounts] = {}
        self.problems: tuple[Problem, ...] = ()
        """Reasons why nothing was counted."""

    def read(self, now: float, groups: Iterable[str], cpus: Iterable[int]) -> Mapping[str, HardwareCounts]:
        """The last counts of `groups`, those of containers; a new round is begun when it is time. Never waits."""
        listed = tuple(groups)
        due = self._began is None or now - self._began >= self._interval
        if due and listed and not (self._thread and self._thread.is_alive()):
            self._began = now
            numbers = tuple(cpus)
            work = self._turn(listed, numbers), numbers
            self._thread = Worker("cpi", lambda: self.count(*work))
            self._begin(self._thread)
        counts = self._counts
        self._last = last_if_equal(self._last, {group: counts[group] for group in listed if group in counts})
        return self._last

    def _turn(self, groups: Sequence[str], cpus: Sequence[int]) -> tuple[str, ...]:
        """The groups of this round: those that were not counted for the longest time."""
        self._rounds += 1
        most = max(1, MOST_COUNTERS // (_EVENTS * max(1, len(cpus))))
        turn = tuple(sorted(groups, key=lambda group: self._last_round.get(group, 0))[:most])
        rounds = {group: self._last_round[group] for group in groups if group in self._last_round}
        self._last_round = rounds | dict.fromkeys(turn, self._rounds)
        return turn

    def count(self, groups: Sequence[str], cpus: Sequence[int]) -> None:
        """Count for a window. Runs in a thread; each result is replaced as a whole."""
        opened: dict[str, CgroupCounters] = {}
        try:
            for group in groups:
                with contextlib.suppress(FileNotFoundError):  # The container has ended.
                    opened[group] = self._opening(group, cpus)
            if not opened:
                raise HardwareAbsent(perf_events.FEATURE, f"the perf_event controller has no group {groups[0]}")
            self._wait(self._window)
            results = {group: sums(counters.read()) for group, counters in opened.items()}
        except (HardwareAbsent, OSError) as error:
            why = error.why if isinstance(error, HardwareAbsent) else str(error)
            do = "give the agent what is missing, or set it to false; until then koordlet_container_cpi has no series"
            self._counts, self.problems = {}, (_problem(why, do),)
            return
        finally:
            for counters in opened.values():
                counters.close()
        complete = {group: counts for group, counts in results.items() if counts is not None}
        retained = self._last_round.keys() - results.keys()
        self._counts = {group: counts for group, counts in self._counts.items() if group in retained} | complete
        failures = len(results) - len(complete)
        why = f"the CPUs' counters were all in use, so {failures} containers could not be counted"
        self.problems = (_problem(why, "end other programs that use perf events"),) if failures else ()


def sums(readings: Iterable[Reading]) -> HardwareCounts | None:
    """Cycles and instructions of all CPUs, where a CPU shared its counters in proportion to the time that was counted;
    None when the group ran on a CPU that never counted it."""
    totals = [0.0, 0.0]
    for each in readings:
        if each.enabled_ns and not each.running_ns:
            return None
        if each.enabled_ns:
            for at, count in enumerate(each.counts):
                totals[at] += count * each.enabled_ns / each.running_ns
    return HardwareCounts(cycles=round(totals[0]), instructions=round(totals[1]))


def reader(settings: MetricsSettings, host: Host) -> CPIReader | None:
    """The counter, if it is wanted."""
    if not settings.container_cpi:
        return None

    def opening(group: str, cpus: Sequence[int]) -> CgroupCounters:
        if not isinstance(host.files, RealFiles):
            raise HardwareAbsent(perf_events.FEATURE, "this machine is emulated or recorded")
        return CgroupCounters(host.cgroups.folder(group, "perf_event"), cpus)

    return CPIReader(
        opening, interval_seconds=settings.cpi_interval_seconds, window_seconds=settings.cpi_window_seconds
    )


def _problem(why: str, do: str) -> Problem:
    return Problem("koordlite.yaml", "metrics.containerCpi", "true", why, do)
