"""Differences of a recorded run from the same node under other settings."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite import strategies
from koordlite.changes.eviction import EvictPod
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.record.round_record import RoundRecord
from koordlite.replay.verify import Judge
from koordlite.replay.what_if import Course, Other, landed
from koordlite.report import present, threshold


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """CPU in millicores; None is unknown."""

    wall: float
    node_cpu: int | None
    prod_cpu: int | None
    """Use of all that is not best effort."""
    be_cpu: int | None
    be_limit: int | None
    """Limit of best effort from here on."""
    be_budget: int | None
    """CPU that the formula leaves best effort."""
    capacity: int
    threshold: int | None
    """Use of the node above which best effort is limited; None while suppression is off."""


def gauge(moment: RoundRecord, decisions: Iterable[Decision], done: Iterable[Change]) -> Gauge:
    """The numbers of `moment`, after `decisions` and the changes `done`."""
    snapshot, changes = moment.snapshot, list(done)
    capacity = snapshot.node.capacity_milli if snapshot.node else len(snapshot.topology.cpus) * 1000
    settings, cpus = snapshot.slo.threshold, present.best_effort_cpus(snapshot, changes)
    return Gauge(
        wall=moment.wall,
        node_cpu=snapshot.usage.node.cpu if snapshot.usage.node else None,
        prod_cpu=present.prod_cpu(snapshot),
        be_cpu=snapshot.usage.best_effort_cpu,
        be_limit=present.best_effort_limit(snapshot, cpus, changes),
        be_budget=present.best_effort_budget(decisions),
        capacity=capacity,
        threshold=capacity * settings.cpu_suppress_threshold_percent // 100 if settings.enable else None,
    )


MOST_POINTS = 2000
MOST_TURNS = 400
LONGEST_STEP_SECONDS = 60.0
"""Rounds further apart are a gap of the record, which counts for nothing."""
HELD_DOWN_PERCENT = 95
"""Best effort that uses so much of its limit could have used more."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two courses."""

    be_cpu_seconds_allowed: float
    """CPU time that the limit would have let best effort use."""
    be_cpu_seconds_budget: float
    """CPU time that the formula left best effort, by this side's threshold."""
    be_cpu_seconds_least: float
    """Least use of best effort: what it did use, as far as the limit allows."""
    be_cpu_seconds_most: float
    """The same, had the work that was held down used all it could: up to the limit, on CPUs that stood idle."""
    seconds_above_threshold: float
    """Time in which the node used more than this side's own threshold; of the other side at least."""
    seconds_above_threshold_most: float
    """The same, had best effort used all that the other limit allows beyond."""
    seconds_well_above_threshold: float
    """Time by a CPU or more: the rounding of limits to whole CPUs does not explain that."""
    seconds_well_above_threshold_most: float
    be_limit_min: int | None
    be_limit_max: int | None
    writes: int
    writes_by_kind: Mapping[str, int]
    evictions: tuple[str, ...]
    """Pods as NAMESPACE/NAME."""
    reasons: Mapping[str, int]
    """Reason of decisions → in how many rounds."""


class Turn(msgspec.Struct, frozen=True):
    """From this moment on a subject was decided differently than recorded, or the same again."""

    wall: float
    strategy: str
    subject: str
    recorded: Decision | None
    other: Decision | None


class Point(msgspec.Struct, frozen=True):
    """Both courses at one moment."""

    recorded: Gauge
    other: Gauge


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything reports say about two courses. CPU-seconds are seconds of one CPU."""

    rounds: int
    seconds: float
    """Without gaps of the record."""
    be_cpu_seconds_used: float
    """As recorded."""
    be_cpu_seconds_lost: float
    """Work that was done and that the other limit would not have allowed."""
    be_cpu_seconds_gained: float
    """At most so much more, had the work that was held down used all that the other limit allows beyond, as far as the
    node had CPU to spare."""
    ls_seconds_above_threshold: float
    """Time in which all but best effort was above the recorded threshold by itself: no limit could have helped."""
    limits_enforced: bool
    """True when the other side enforced the strategy that limits best effort in any round: else no limit moves."""
    recorded: Side
    other: Side
    points: Sequence[Point]
    turns: Sequence[Turn]
    """The first moments at which a subject began to be decided differently."""
    turns_seen: int


def compare(moments: Iterable[RoundRecord], other: Other) -> Comparison:
    """Go through a record once, on both courses."""
    judge, course, sums = Judge(), Course(other), _Sums()
    for moment in moments:
        shown = course.snapshot(moment)
        decisions = judge.decisions(shown)
        changes = course.carried_out(shown, decisions)
        mine = landed(moment)
        point = Point(gauge(moment, moment.decisions, mine), gauge(shown, decisions, changes))
        sums.limits_enforced |= any(shown.settings[rule.name].mode == "enforce" for rule in strategies.limiting())
        sums.add(point, changed=(mine, changes), decided=(moment.decisions, decisions))
    return sums.comparison()


class _Tally:
    """Sums of one side."""

    def __init__(self) -> None:
        self.allowed = self.budget = self.least = self.most = 0.0
        self.above = self.above_most = self.well_above = self.well_above_most = 0.0
        self._limits: list[int] = []
        self._kinds: collections.Counter[str] = collections.Counter()
        self._reasons: collections.Counter[str] = collections.Counter()
        self._evicted: dict[str, str] = {}

    def add(self, now: Gauge, changes: Iterable[Change], decisions: Iterable[Decision]) -> None:
        """One round."""
        if now.be_limit is not None:
            self._limits = [min([*self._limits[:1], now.be_limit]), max([*self._limits[1:], now.be_limit])]
        for change in changes:
            if isinstance(change, EvictPod):
                self._evicted[change.uid] = f"{change.namespace}/{change.name}"
            else:
                self._kinds[change.place.metric] += 1
        self._reasons.update({decision.reason for decision in decisions})

    def add_best_effort(self, before: Gauge, seconds: float, *, least: int, most: int) -> None:
        """Time in which what `before` left was in force, and best effort used between `least` and `most`."""
        self.allowed += (before.be_limit or 0) * seconds / 1000
        self.budget += max(0, before.be_budget or 0) * seconds / 1000
        self.least += least * seconds / 1000
        self.most += most * seconds / 1000

    def add_above(self, now: Gauge, seconds: float, least: int = 0, most: int = 0) -> None:
        """Time in which the node used so much more, at least and at most, than `now` says."""
        if now.node_cpu is None:
            return
        low, high = now.node_cpu + least, now.node_cpu + most
        self.above += seconds * threshold.above(low, now.threshold)
        self.above_most += seconds * threshold.above(high, now.threshold)
        self.well_above += seconds * threshold.well_above(low, now.threshold)
        self.well_above_most += seconds * threshold.well_above(high, now.threshold)

    def side(self) -> Side:
        """The sums so far."""
        low, high = self._limits or (None, None)
        return Side(
            be_cpu_seconds_allowed=self.allowed,
            be_cpu_seconds_budget=self.budget,
            be_cpu_seconds_least=self.least,
            be_cpu_seconds_most=self.most,
            seconds_above_threshold=self.above,
            seconds_above_threshold_most=self.above_most,
            seconds_well_above_threshold=self.well_above,
            seconds_well_above_threshold_most=self.well_above_most,
            be_limit_min=low,
            be_limit_max=high,
            writes=self._kinds.total(),
            writes_by_kind=dict(sorted(self._kinds.items())),
            evictions=tuple(self._evicted.values()),
            reasons=dict(self._reasons.most_common()),
        )


class _Sums:
    """Both sides and what lies between them; it does not grow with the record."""

    def __init__(self) -> None:
        self._sides = _Tally(), _Tally()
        self.limits_enforced = False
        self._before: Point | None = None
        self._points: list[Point] = []
        self._stride, self._rounds = 1, 0
        self._seconds = self._used = self._lost = self._gained = self._ls_above = 0.0
        self._apart: dict[tuple[str, str], bool] = {}
        self._turns: list[Turn] = []
        self._turns_seen = 0

    def add(
        self,
        now: Point,
        *,
        changed: tuple[Iterable[Change], Iterable[Change]],
        decided: tuple[Sequence[Decision], Sequence[Decision]],
    ) -> None:
        """One round; recorded first, then the other."""
        if self._before is not None:
            self._add_time(self._before, now)
        self._before = now
        for side, shown, changes, decisions in zip(
            self._sides, (now.recorded, now.other), changed, decided, strict=True
        ):
            side.add(shown, changes, decisions)
        self._add_turns(now.recorded.wall, *decided)
        self._add_point(now)
        self._rounds += 1

    def comparison(self) -> Comparison:
        """The outcome."""
        recorded, other = self._sides
        return Comparison(
            rounds=self._rounds,
            seconds=self._seconds,
            be_cpu_seconds_used=self._used,
            be_cpu_seconds_lost=self._lost,
            be_cpu_seconds_gained=self._gained,
            ls_seconds_above_threshold=self._ls_above,
            limits_enforced=self.limits_enforced,
            recorded=recorded.side(),
            other=other.side(),
            points=self._points,
            turns=self._turns,
            turns_seen=self._turns_seen,
        )

    def _add_time(self, before: Point, now: Point) -> None:
        """Use is a mean since the round before; the limit of that time is the one that round left.

        Use beyond the recorded limit is not lost to the other: neither was obeyed then.
        """
        seconds = now.recorded.wall - before.recorded.wall
        if not 0 < seconds <= LONGEST_STEP_SECONDS:
            return
        was, would = before.recorded.be_limit or 0, before.other.be_limit or 0
        used = now.recorded.be_cpu or 0
        lost = max(0, min(used, was) - would)
        spare = max(0, now.recorded.capacity - (now.recorded.node_cpu or 0))
        is_held_down = used * 100 >= was * HELD_DOWN_PERCENT
        gained = max(0, min(would, used + spare) - max(was, used)) if is_held_down else 0
        self._seconds += seconds
        self._used += used * seconds / 1000
        self._lost += lost * seconds / 1000
        self._gained += gained * seconds / 1000
        recorded, other = self._sides
        recorded.add_best_effort(before.recorded, seconds, least=used, most=used)
        other.add_best_effort(before.other, seconds, least=used - lost, most=used - lost + gained)
        recorded.add_above(now.recorded, seconds)
        other.add_above(
            msgspec.structs.replace(now.other, node_cpu=now.recorded.node_cpu), seconds, -lost, gained - lost
        )
        self._ls_above += seconds * threshold.above(now.recorded.prod_cpu, now.recorded.threshold)

    def _add_turns(self, wall: float, recorded: Sequence[Decision], other: Sequence[Decision]) -> None:
        if recorded == other:
            mine, theirs = {}, {}
        else:
            mine, theirs = _by_subject(recorded), _by_subject(other)
        for key in dict.fromkeys((*mine, *theirs, *self._apart)):
            apart = _essence(mine.get(key)) != _essence(theirs.get(key))
            if apart != self._apart.get(key, False):
                self._turns_seen += 1
                if len(self._turns) < MOST_TURNS:
                    self._turns.append(Turn(wall, *key, mine.get(key), theirs.get(key)))
            self._apart[key] = apart
        self._apart = {key: True for key, apart in self._apart.items() if apart}

    def _add_point(self, now: Point) -> None:
        """Thinned to every second, fourth … round as the record grows."""
        if self._rounds % self._stride == 0:
            self._points.append(now)
        if len(self._points) > MOST_POINTS:
            self._points = self._points[::2]
            self._stride *= 2


def _by_subject(decisions: Iterable[Decision]) -> dict[tuple[str, str], Decision]:
    return {(decision.strategy, decision.subject): decision for decision in decisions}


def _essence(decision: Decision | None) -> tuple[object, ...] | None:
    """Numbers differ all the time; a turn is another answer."""
    return None if decision is None else (decision.verdict in ("evict", "skip", "refuse", "release"), decision.reason)
