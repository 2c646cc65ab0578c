"""Memory of a run for its report: bounded however long the run is."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import msgspec

from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.report.explain import who_changed
from koordlite.report.explain.who_changed import Mark
from koordlite.report.news import News
from koordlite.report.summary import Summary, Totals
from koordlite.report.tick import Tick

MAX_ROWS = 2000
MAX_EVENTS = 2000
MAX_PROBLEMS = 200


class Row(msgspec.Struct, frozen=True):
    """The numbers of one tick that are drawn over time; millicores and bytes."""

    time: float
    node_cpu: int | None
    prod_cpu: int | None
    be_cpu: int | None
    be_limit: int | None
    be_budget: int | None
    batch_cpu: int | None
    batch_memory: int | None
    threshold_milli: int | None
    would_limit: int | None = None
    would_batch_cpu: int | None = None
    would_batch_memory: int | None = None

    @classmethod
    def of(cls, tick: Tick) -> Row:
        """The numbers of `tick`."""
        return cls(**{name: getattr(tick, name) for name in cls.__struct_fields__})


class DecisionEvent(msgspec.Struct, frozen=True):
    """A decision that says something else, or asks for another change, than the one before about the same subject."""

    time: float
    wall: float
    decision: Decision
    because: str = ""
    """Whose use moved the budget since the event before about it, in words; empty where it did not, or none has one."""


class WriteEvent(msgspec.Struct, frozen=True):
    """A write that was tried."""

    time: float
    step: AppliedStep


class ForeignEvent(msgspec.Struct, frozen=True):
    """A value of ours that another program changed."""

    time: float
    write: ForeignWrite


class ProblemEvent(msgspec.Struct, frozen=True):
    """A problem, when it was first seen."""

    time: float
    problem: Problem


class History:
    """Collects ticks. Rows are thinned to every second, fourth … tick as a run grows; of events the newest stay."""

    def __init__(self, settings: Mapping[str, object], environment: Mapping[str, str]) -> None:
        self.settings, self.environment = settings, environment
        self.last: Tick | None = None
        self.rows: list[Row] = []
        self.decisions: collections.deque[DecisionEvent] = collections.deque(maxlen=MAX_EVENTS)
        self.writes: collections.deque[WriteEvent] = collections.deque(maxlen=MAX_EVENTS)
        self.foreign: collections.deque[ForeignEvent] = collections.deque(maxlen=MAX_EVENTS)
        self.problems: dict[Problem, ProblemEvent] = {}
        self.decisions_seen = 0
        """Number of decision events, including those that fell off the front."""
        self._stride = 1
        self._totals = Totals()
        self._news = News()
        self._marks: dict[tuple[str, str], Mark] = {}

    def add(self, tick: Tick) -> tuple[DecisionEvent, ...]:
        """Remember `tick`; returns the decisions that changed in it."""
        if self._totals.ticks % self._stride == 0:
            self._add_row(tick)
        self._totals.add(tick)
        self.last = tick
        self.writes.extend(WriteEvent(tick.time, step) for step in tick.applied)
        self.foreign.extend(ForeignEvent(tick.time, write) for write in tick.foreign)
        for problem in tick.problems:
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.setdefault(problem, ProblemEvent(tick.time, problem))
        news = tuple(DecisionEvent(tick.time, tick.wall, d, self._because(d, tick)) for d in self._news.of(tick))
        self.decisions.extend(news)
        self.decisions_seen += len(news)
        return news

    def _because(self, decision: Decision, tick: Tick) -> str:
        """Whose use moved the budget of `decision` since its last event."""
        now = who_changed.mark(decision, tick.picture)
        if now is None:
            return ""
        before = self._marks.get((decision.strategy, decision.subject))
        self._marks[decision.strategy, decision.subject] = now
        return who_changed.because(decision, before, now) if before else ""

    def summary(self) -> Summary:
        """The numbers of all ticks so far."""
        return self._totals.summary()

    def _add_row(self, tick: Tick) -> None:
        self.rows.append(Row.of(tick))
        if len(self.rows) > MAX_ROWS:
            self.rows = self.rows[::2]
            self._stride *= 2
