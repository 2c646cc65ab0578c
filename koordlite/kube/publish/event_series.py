"""Which events are worth telling: the same again becomes a count, and nobody floods the cluster."""

from __future__ import annotations

import dataclasses
from typing import Literal

SERIES_SECONDS = 600.0
"""The same event within this time after the last is counted on the first one."""
COUNT_SECONDS = 60.0
"""A count is written this often at most, however often the thing happens."""
BURST = 25
REFILL_SECONDS = 12.0
"""So many events at once, then one each so many seconds, over all subjects."""
KEPT = 1024
"""Series kept in mind; the longest silent are forgotten."""

EventType = Literal["Normal", "Warning"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Regarding:
    """The object an event is about; without a namespace it is the cluster's own."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something people should be able to read with `kubectl describe`."""

    regarding: Regarding
    reason: str
    """The CamelCase word of the decision."""
    note: str
    action: str
    """What was done, or was to be done: `Evict`, `ReadConfiguration`."""
    type: EventType = "Normal"

    @property
    def same(self) -> tuple[str, ...]:
        """What makes two of them the same: all but the note, whose numbers change."""
        about = self.regarding
        return about.kind, about.namespace, about.name, about.uid, self.reason, self.action, self.type


@dataclasses.dataclass(slots=True)
class Series:
    """An event that was told, and how often it has happened since."""

    event: Event
    name: str
    last_at: float
    written_at: float
    count: int = 1
    written_count: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """What is to be told: the first of a series is created, later ones patch its count."""

    series: Series
    first: bool


class Aggregator:
    """Decides what becomes of each event. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, ...], Series] = {}
        self._tokens, self._refilled_at = float(BURST), float("-inf")
        self.dropped = 0
        """Events told to nobody because there were too many."""

    def add(self, event: Event, name: str, now: float) -> Write | None:
        """The write that this event asks for at once, if any; `name` is used when it is the first of its series."""
        known = self._series.get(event.same)
        if known is not None and now - known.last_at < SERIES_SECONDS:
            known.count, known.last_at, known.event = known.count + 1, now, event
            return self._counted(known, now)
        if not self._may(now):
            self.dropped += 1
            return None
        fresh = self._series[event.same] = Series(event, name, now, now)
        self._forget()
        return Write(fresh, first=True)

    def due(self, now: float) -> list[Write]:
        """Counts that were held back and may be written by now."""
        waiting = [series for series in self._series.values() if series.count > series.written_count]
        return [write for series in waiting if (write := self._counted(series, now))]

    def lost(self, series: Series) -> None:
        """The event is not there any more, or was never accepted: the next one begins again."""
        self._series.pop(series.event.same, None)

    def _counted(self, series: Series, now: float) -> Write | None:
        if now - series.written_at < COUNT_SECONDS or not self._may(now):
            return None
        series.written_at, series.written_count = now, series.count
        return Write(series, first=False)

    def _may(self, now: float) -> bool:
        if self._refilled_at > float("-inf"):
            self._tokens = min(BURST, self._tokens + (now - self._refilled_at) / REFILL_SECONDS)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _forget(self) -> None:
        while len(self._series) > KEPT:
            oldest = min(self._series, key=lambda same: self._series[same].last_at)
            del self._series[oldest]
