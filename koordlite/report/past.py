"""The past of a running agent, kept for questions: news, its last write of each place, and who else wrote there.

Bounded however long the agent runs; `Remembered` is one immutable value that any thread may read.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.report.history import DecisionEvent
from koordlite.report.present import Figures
from koordlite.report.tick import Tick

T = TypeVar("T")
MAX_EVENTS = 2000
MAX_PLACES = 2000
MAX_ROWS = 600
KEPT_TIMES = 20
"""Number of foreign writes of one place whose times are kept."""


class Write(msgspec.Struct, frozen=True):
    """Our last write of a place. Times as in `Tick`."""

    time: float
    wall: float
    step: AppliedStep
    cause: Decision | None
    """The decision that asked for it; None when the write was not one of a decision of that tick."""


class ForeignWrites(msgspec.Struct, frozen=True):
    """Writes of another program to one place."""

    last: ForeignWrite
    count: int
    times: tuple[float, ...]
    """Times of the newest of them, ascending."""

    @property
    def seconds_apart(self) -> float | None:
        """The median time between two of them; None with fewer than three."""
        gaps = [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]
        import statistics  # With decimal numbers and fractions, for what an explanation asks.

        return statistics.median(gaps) if len(gaps) > 1 else None


class Remembered(msgspec.Struct, frozen=True):
    """The past at one moment."""

    events: Sequence[DecisionEvent] = ()
    """Recent decisions, the newest last."""
    writes: Mapping[Place, Write] = msgspec.field(default_factory=dict)
    """By place."""
    foreign: Mapping[Place, ForeignWrites] = msgspec.field(default_factory=dict)
    """By place."""
    rows: Sequence[Figures] = ()
    """The numbers of the last ticks, for drawings."""


NOTHING = Remembered()


class Past:
    """Collects ticks."""

    def __init__(self) -> None:
        self._events: collections.deque[DecisionEvent] = collections.deque(maxlen=MAX_EVENTS)
        self._rows: collections.deque[Figures] = collections.deque(maxlen=MAX_ROWS)
        self._writes: collections.OrderedDict[Place, Write] = collections.OrderedDict()
        self._foreign: collections.OrderedDict[Place, ForeignWrites] = collections.OrderedDict()

    def add(self, tick: Tick, news: Sequence[DecisionEvent] = ()) -> None:
        """Remember `tick` and what was new in it (`History.add`)."""
        self._events.extend(news)
        self._rows.append(Figures.of(tick))
        causes = {change.place: d for d in tick.decisions for change in d.changes} if tick.applied else {}
        for step in tick.applied:
            _push(self._writes, step.place, Write(tick.time, tick.wall, step, causes.get(step.place)))
        for write in tick.foreign:
            before = self._foreign.get(write.place, ForeignWrites(write, 0, ()))
            times = (*before.times, tick.time)[-KEPT_TIMES:]
            _push(self._foreign, write.place, ForeignWrites(write, before.count + 1, times))

    def remembered(self) -> Remembered:
        """The past so far, as a value."""
        return Remembered(tuple(self._events), dict(self._writes), dict(self._foreign), tuple(self._rows))


def _push(held: collections.OrderedDict[Place, T], place: Place, value: T) -> None:
    """The newest goes last; the oldest is dropped."""
    held.pop(place, None)
    held[place] = value
    if len(held) > MAX_PLACES:
        held.popitem(last=False)
