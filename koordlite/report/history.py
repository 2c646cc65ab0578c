"""What a report remembers of a run: bounded however long the run is."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.model.status.outcome import AppliedStep, ForeignWrite
from koordlite.report.summary import Summary, Totals
from koordlite.report.tick import Tick

MAX_ROWS = 2000
MAX_EVENTS = 2000
MAX_PROBLEMS = 200
MAX_SUBJECTS = 500
"""How many subjects that are gone keep their last decision."""
_JUDGED = ("set", "shrink", "grow", "hold")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
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

    @classmethod
    def of(cls, tick: Tick) -> Row:
        """The numbers of `tick`."""
        return cls(**{field.name: getattr(tick, field.name) for field in dataclasses.fields(cls)})


@dataclasses.dataclass(frozen=True, slots=True)
class DecisionEvent:
    """A decision that says something else, or asks for another change, than the one before about the same subject."""

    time: float
    wall: float
    decision: Decision


@dataclasses.dataclass(frozen=True, slots=True)
class WriteEvent:
    """A write that was tried."""

    time: float
    step: AppliedStep


@dataclasses.dataclass(frozen=True, slots=True)
class ForeignEvent:
    """A value of ours that another program changed."""

    time: float
    write: ForeignWrite


@dataclasses.dataclass(frozen=True, slots=True)
class ProblemEvent:
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
        """How many decision events there were, also those that fell off the front."""
        self._stride = 1
        self._totals = Totals()
        self._last: dict[tuple[str, str], dict[str, tuple[Change, ...]]] = {}
        """By strategy and subject what was said about it last, each reason with the changes that were asked for."""

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
        news = tuple(DecisionEvent(tick.time, tick.wall, d) for d in self._news(tick.decisions))
        self.decisions.extend(news)
        self.decisions_seen += len(news)
        self._forget_gone(tick)
        return news

    def _forget_gone(self, tick: Tick) -> None:
        """Pods come and go: the last decisions about those that are gone are dropped when there are many."""
        if tick.decisions and len(self._last) > MAX_SUBJECTS + 2 * len(tick.decisions):
            present = {(decision.strategy, decision.subject) for decision in tick.decisions}
            self._last = {key: reason for key, reason in self._last.items() if key in present}

    def summary(self) -> Summary:
        """The numbers of all ticks so far."""
        return self._totals.summary()

    def _add_row(self, tick: Tick) -> None:
        self.rows.append(Row.of(tick))
        if len(self.rows) > MAX_ROWS:
            self.rows = self.rows[::2]
            self._stride *= 2

    def _news(self, decisions: Iterable[Decision]) -> Iterator[Decision]:
        """Coming to rest after a change is not news, nor is a change that is repeated because it was not applied, nor
        one of several things that are said about a subject each tick."""
        said: dict[tuple[str, str], dict[str, tuple[Change, ...]]] = {}
        for decision in decisions:
            key = decision.strategy, decision.subject
            moving = decision.verdict in _JUDGED
            reason = decision.reason if moving else f"{decision.verdict} {decision.reason}"
            before = self._last.get(key, {})
            asked = before[reason] if reason in before else next(iter(before.values()), ())
            said.setdefault(key, {})[reason] = decision.changes or asked
            if reason not in before or (decision.changes and decision.changes != asked):
                yield decision
        self._last |= said
