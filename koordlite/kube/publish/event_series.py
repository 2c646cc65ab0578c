"""Series of events: the same again becomes a count, another text a new event, within bounds.

An API server accepts a later change of `series` alone: the note of an Event is immutable (events.k8s.io/v1).
"""

from __future__ import annotations

from typing import Literal

import msgspec

SERIES_SECONDS = 600.0
"""The same event within this time after the last is counted on the first one."""
COUNT_SECONDS = 60.0
"""A count is written this often at most, however often the thing happens."""
BURST = 25
REFILL_SECONDS = 12.0
"""So many events at once, then one each so many seconds, over all subjects."""
TEXTS = 8
"""Texts of one thing that become events of their own within SERIES_SECONDS. Further ones are counted on the newest:
a text whose numbers change each time must not fill the cluster."""
KEPT = 1024
"""Things kept in mind; the longest silent are forgotten."""

EventType = Literal["Normal", "Warning"]


class Regarding(msgspec.Struct, frozen=True, kw_only=True):
    """The object an event is about; without a namespace it is the cluster's own."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


class Event(msgspec.Struct, frozen=True, kw_only=True):
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
        """Identity of an event: all but the note."""
        about = self.regarding
        return about.kind, about.namespace, about.name, about.uid, self.reason, self.action, self.type


class Series(msgspec.Struct):
    """An event that was sent, and how often it has happened since."""

    event: Event
    name: str
    last_at: float
    written_at: float
    count: int = 1
    written_count: int = 1


class Write(msgspec.Struct, frozen=True):
    """A request to send: the first of a series is created, later ones patch its count."""

    series: Series
    first: bool


class Aggregator:
    """Decides what becomes of each event. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._things: dict[tuple[str, ...], dict[str, Series]] = {}
        """Series by what they are about, then by their note; the newest note last."""
        self._tokens, self._refilled_at = float(BURST), float("-inf")
        self.dropped = 0
        """Events dropped because there were too many."""

    def add(self, event: Event, name: str, now: float) -> Write | None:
        """The write that this event asks for at once, if any; `name` is used when it is the first of its series."""
        texts = {n: s for n, s in self._things.get(event.same, {}).items() if now - s.last_at < SERIES_SECONDS}
        known = texts.get(event.note)
        if known is None and len(texts) >= TEXTS:
            known = list(texts.values())[-1]
        if known is not None:
            known.count, known.last_at = known.count + 1, now
            return self._counted(known, now)
        if not self._may(now):
            self.dropped += 1
            return None
        fresh = Series(event, name, now, now)
        self._things[event.same] = {**texts, event.note: fresh}
        self._forget()
        return Write(fresh, first=True)

    def due(self, now: float) -> list[Write]:
        """Counts that were held back and may be written by now."""
        known = (series for texts in self._things.values() for series in texts.values())
        waiting = [series for series in known if series.count > series.written_count]
        return [write for series in waiting if (write := self._counted(series, now))]

    def lost(self, series: Series) -> None:
        """The event is not there any more, or was never accepted: the next one begins again."""
        self._things.get(series.event.same, {}).pop(series.event.note, None)

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
        while len(self._things) > KEPT:
            del self._things[min(self._things, key=self._last_at)]

    def _last_at(self, same: tuple[str, ...]) -> float:
        return max((series.last_at for series in self._things[same].values()), default=float("-inf"))
