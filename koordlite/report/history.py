"""Memory of a run, bounded however long it is: for its report at the end, and for questions while it lasts.

What is asked of a running agent is its news, its last write of each place, and who else wrote there: `Remembered` is
one immutable value that any thread may read.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision, Evidence
from koordlite.model.errors import Problem
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.report.explain import who_changed
from koordlite.report.explain.who_changed import Mark
from koordlite.report.node_figures import Figures
from koordlite.report.summary import Summary, Totals
from koordlite.report.tick import Tick

MAX_SUBJECTS = 500
"""Number of subjects that are gone whose last decision is kept."""
NOTICEABLE = 0.1
"""Part by which a number that would be written in observe mode has to differ from the last reported one to be news:
nothing is written, so nothing settles, and a mean that drifts would be news each second."""
_JUDGED = ("set", "shrink", "grow", "hold")


class _Statement(msgspec.Struct, frozen=True):
    """The last statement about one subject for one reason."""

    changes: Mapping[Place, Change] = msgspec.field(default_factory=dict)
    evidence: Evidence = msgspec.field(default_factory=dict)


class News:
    """Compares each tick's decisions with what was said before about the same subjects."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], dict[str, _Statement]] = {}
        """Last statement by strategy and subject, then by reason."""

    def of(self, tick: Tick) -> Iterator[Decision]:
        """The decisions of `tick` that are news.

        Coming to rest after a change is not news, nor is a change that is repeated because it was not applied, nor one
        of several things that are said about a subject each tick.
        """
        statements: dict[tuple[str, str], dict[str, _Statement]] = {}
        for decision in tick.decisions:
            key = decision.strategy, decision.subject
            observed = tick.modes.get(decision.strategy) == "observe"
            reason = _reason(decision, observed=observed)
            reasons = self._last.get(key, {})
            before = reasons[reason] if reason in reasons else next(iter(reasons.values()), _Statement())
            changes = {change.place: change for change in decision.changes}
            differs = _noticeable(decision, before) if observed else bool(changes) and changes != before.changes
            is_new = reason not in reasons or differs
            if observed and changes:
                # What is asked for now and then (tasks are read every few seconds) is said once.
                changes = {**before.changes, **changes} if is_new else dict(before.changes)
            evidence = decision.explained if is_new else before.evidence
            statements.setdefault(key, {})[reason] = _Statement(changes or before.changes, evidence)
            if is_new:
                yield decision
        self._last |= statements
        # Pods come and go: the last decisions about those that are gone are dropped when there are many.
        if tick.decisions and len(self._last) > MAX_SUBJECTS + 2 * len(tick.decisions):
            self._last = {key: reasons for key, reasons in self._last.items() if key in statements}


def _reason(decision: Decision, *, observed: bool) -> str:
    """The words compared first. A change that is made leads to `hold`; one that is only observed does so when it is no
    longer asked for, which is news."""
    if not observed and decision.verdict in _JUDGED:
        return decision.reason
    quiet = decision.verdict == "hold" and not decision.changes
    verdict = "hold" if quiet else "change" if decision.verdict in _JUDGED else decision.verdict
    return f"{verdict} {decision.reason}"


def _noticeable(decision: Decision, before: _Statement) -> bool:
    """Tell whether a change is about another place, or asks for a number that differs noticeably. Where it is about
    texts alone, which have times in them, the evidence says whether it differs."""
    amounts = [(_amount(before.changes.get(change.place)), _amount(change)) for change in decision.changes]
    if any(change.place not in before.changes for change in decision.changes):
        return True
    if decision.changes and all(new is None for _, new in amounts):
        return decision.explained != before.evidence
    return any(old is not None and new is not None and abs(new - old) > NOTICEABLE * abs(old) for old, new in amounts)


def _amount(change: Change | None) -> float | None:
    """The number of a change: of CPUs for a set."""
    value = getattr(change, "value", None)
    if isinstance(value, CPUSet):
        return len(value)
    return value if isinstance(value, int) else None


MAX_ROWS = 2000
MAX_EVENTS = 2000
MAX_PROBLEMS = 200
MAX_PLACES = 2000
KEPT_ROWS = 600
KEPT_TIMES = 20
"""Number of foreign writes of one place whose times are kept."""
T = TypeVar("T")


class DecisionEvent(msgspec.Struct, frozen=True):
    """A decision that says something else, or asks for another change, than the one before about the same subject."""

    time: float
    wall: float
    decision: Decision
    because: str = ""
    """Words for whose use moved the budget since the event before about it; empty where it did not move, or none has
    one."""


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
    """Writes by place."""
    foreign: Mapping[Place, ForeignWrites] = msgspec.field(default_factory=dict)
    """Writes of others by place."""
    rows: Sequence[Figures] = ()
    """The numbers of the last ticks, for drawings."""


NOTHING = Remembered()


class History:
    """Collects ticks. Of a run as it grows rows are thinned to every second, fourth … tick; of the rest the newest
    stay."""

    def __init__(self, settings: Mapping[str, object], environment: Mapping[str, str]) -> None:
        self.settings, self.environment = settings, environment
        self.last: Tick | None = None
        self.rows: list[Figures] = []
        self.decisions: collections.deque[DecisionEvent] = collections.deque(maxlen=MAX_EVENTS)
        self.writes: collections.deque[tuple[float, AppliedStep]] = collections.deque(maxlen=MAX_EVENTS)
        """Writes that were tried, and when."""
        self.foreign: collections.deque[tuple[float, ForeignWrite]] = collections.deque(maxlen=MAX_EVENTS)
        self.problems: dict[Problem, float] = {}
        """Time at which each problem was first seen."""
        self.decisions_seen = 0
        """Number of decision events, including those that fell off the front."""
        self._stride = 1
        self._totals = Totals()
        self._news = News()
        self._marks: dict[tuple[str, str], Mark] = {}
        self._newest_rows: collections.deque[Figures] = collections.deque(maxlen=KEPT_ROWS)
        self._last_writes: dict[Place, Write] = {}
        self._foreign_writes: dict[Place, ForeignWrites] = {}

    def add(self, tick: Tick) -> tuple[DecisionEvent, ...]:
        """Remember `tick`; returns the decisions that changed in it."""
        self._newest_rows.append(tick.figures)
        if self._totals.ticks % self._stride == 0:
            self.rows.append(tick.figures)
        if len(self.rows) > MAX_ROWS:
            self.rows = self.rows[::2]
            self._stride *= 2
        self._totals.add(tick)
        self.last = tick
        causes = {change.place: d for d in tick.decisions for change in d.changes} if tick.applied else {}
        for step in tick.applied:
            self.writes.append((tick.time, step))
            _push(self._last_writes, step.place, Write(tick.time, tick.wall, step, causes.get(step.place)))
        for write in tick.foreign:
            self.foreign.append((tick.time, write))
            before = self._foreign_writes.get(write.place, ForeignWrites(write, 0, ()))
            times = (*before.times, tick.time)[-KEPT_TIMES:]
            _push(self._foreign_writes, write.place, ForeignWrites(write, before.count + 1, times))
        for problem in tick.problems:
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.setdefault(problem, tick.time)
        events = tuple(DecisionEvent(tick.time, tick.wall, d, self._because(d, tick)) for d in self._news.of(tick))
        self.decisions.extend(events)
        self.decisions_seen += len(events)
        return events

    def _because(self, decision: Decision, tick: Tick) -> str:
        """Name those whose use moved the budget of `decision` since its last event."""
        now = who_changed.mark(decision, tick.snapshot)
        if now is None:
            return ""
        before = self._marks.get((decision.strategy, decision.subject))
        self._marks[decision.strategy, decision.subject] = now
        return who_changed.because(decision, before, now) if before else ""

    def summary(self) -> Summary:
        """The numbers of all ticks so far."""
        return self._totals.summary()

    def remembered(self) -> Remembered:
        """The past up to the last tick that was added."""
        return Remembered(
            tuple(self.decisions), dict(self._last_writes), dict(self._foreign_writes), tuple(self._newest_rows)
        )


def _push(newest: dict[Place, T], place: Place, value: T) -> None:
    """The newest goes last; the oldest is dropped."""
    newest.pop(place, None)
    newest[place] = value
    if len(newest) > MAX_PLACES:
        del newest[next(iter(newest))]
