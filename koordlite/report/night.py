"""The last night of a node in one row, which the agent keeps for the page of the cluster: by minutes, without a flight
record, and without the name of any pod."""

from __future__ import annotations

import collections
import threading
from array import array

import msgspec

from koordlite.model.snapshot import gives_way
from koordlite.report.explain import squeeze
from koordlite.report.tick import UNSEEN, Tick

HOURS = 12


class Night(msgspec.Struct, frozen=True, rename="camel"):
    """At most `HOURS` up to now. CPU in millicores or core-hours, moments in seconds since the epoch."""

    status: str = "unknown"
    """The agent's one word, of now."""
    begin: float = 0.0
    end: float = 0.0
    seconds: float = 0.0
    """Seconds in which use and limit of best effort were known."""
    held_back_seconds: float = 0.0
    """Seconds in which best effort used its limit up."""
    deepest_milli: int | None = None
    """The lowest limit under which it was held back."""
    deepest_at: float | None = None
    used_core_hours: float = 0.0
    """CPU time of best effort."""
    lost_core_hours: float = 0.0
    """What its limit took while it was held back, against the limit of quiet times."""
    service_wait_percent: float | None = None
    """Part of the time in which the service that waited most had a task waiting for a CPU; None without PSI."""
    service_wait_most_percent: float | None = None
    """The same in the worst minute."""
    evictions: int = 0
    restores: int = 0
    """Places that were given back what was there before."""


class _Minute(msgspec.Struct):
    number: int
    """Of the run."""
    end: float = 0.0
    seconds: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0])
    """While best effort left some of its limit, and while it was held back."""
    limits: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0])
    """Limits in them, as millicores times seconds."""
    deepest: tuple[int, float] | None = None
    """The lowest limit that held best effort back, and when."""
    used: float = 0.0
    """Milliseconds of CPU time."""
    waited: float = 0.0
    """Percent times seconds."""
    waited_seconds: float = 0.0
    evictions: int = 0
    restores: int = 0


class NightLog:
    """Takes every tick; one thread adds, others ask. A minute counts by its mean limits: a night stays small."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: collections.deque[_Minute] = collections.deque(maxlen=HOURS * 60)
        self._last: tuple[float, float, str] | None = None
        """Time, wall clock and status of the last tick."""

    def add(self, tick: Tick) -> None:
        """Count the time since the tick before as this tick has it."""
        snapshot, pressure = tick.snapshot, tick.pressure
        if snapshot is UNSEEN:
            return
        number = int(tick.time // 60)
        seconds = tick.time - self._last[0] if self._last else 0.0
        with self._lock:
            self._last = tick.time, tick.wall, tick.status
            if not self._minutes or self._minutes[-1].number != number:
                self._minutes.append(_Minute(number))
            minute = self._minutes[-1]
            minute.end = tick.wall
            minute.evictions += sum(1 for _ in squeeze.evictions(tick))
            minute.restores += tick.restored
            if not 0 < seconds <= squeeze.LONGEST_GAP:
                return
            limit, used = snapshot.usage.best_effort_limit, snapshot.usage.best_effort_cpu
            if limit is not None and used is not None:
                is_held_back = squeeze.uses_up(limit, used)
                minute.seconds[is_held_back] += seconds
                minute.limits[is_held_back] += limit * seconds
                minute.used += used * seconds
                if is_held_back:
                    minute.deepest = min(minute.deepest or (limit, tick.wall), (limit, tick.wall))
            waits = [
                pressure[subject]["cpu"].some.avg10
                for pod in snapshot.pods
                if "cpu" in pressure.get(subject := f"pod/{pod.key}", {}) and not gives_way(snapshot, pod)
            ]
            if waits:
                minute.waited += max(waits) * seconds
                minute.waited_seconds += seconds

    def night(self) -> Night:
        """The minutes of the last twelve hours as one value."""
        with self._lock:
            if self._last is None:
                return Night()
            now, wall, status = self._last
            minutes = [each for each in self._minutes if each.number > now // 60 - HOURS * 60]
            limits, seconds, held_back = array("q"), array("d"), array("b")
            for each in minutes:
                for is_held_back, span in enumerate(each.seconds):
                    if span:
                        limits.append(round(each.limits[is_held_back] / span))
                        seconds.append(span)
                        held_back.append(is_held_back)
            lost = squeeze.against_quiet(limits, seconds, held_back)[1] if seconds else 0.0
            deepest = min((each.deepest for each in minutes if each.deepest), default=(None, None))
            waits = [each.waited / each.waited_seconds for each in minutes if each.waited_seconds]
            waited_seconds = sum(each.waited_seconds for each in minutes)
            return Night(
                status=status,
                begin=minutes[0].end,
                end=wall,
                seconds=sum(seconds),
                held_back_seconds=sum(each.seconds[True] for each in minutes),
                deepest_milli=deepest[0],
                deepest_at=deepest[1],
                used_core_hours=sum(each.used for each in minutes) / 3.6e6,
                lost_core_hours=lost / 3.6e6,
                service_wait_percent=sum(each.waited for each in minutes) / waited_seconds if waits else None,
                service_wait_most_percent=max(waits, default=None),
                evictions=sum(each.evictions for each in minutes),
                restores=sum(each.restores for each in minutes),
            )
