"""Differences of a recorded run from the same node under other settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import msgspec

from koordlite import strategies
from koordlite.changes.eviction import EvictPod
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.record.round_record import RoundRecord
from koordlite.replay.verify import Judge
from koordlite.replay.what_if import Course, Other, landed
from koordlite.report import present
from koordlite.report.present import Figures


def gauge(moment: RoundRecord, decisions: Sequence[Decision], done: Iterable[Change]) -> Figures:
    """The figures of `moment`, after `decisions` and the changes `done`."""
    snapshot, changes = moment.snapshot, list(done)
    cpus = present.best_effort_cpus(snapshot, changes)
    return present.figures(snapshot, decisions, changes, cpus, {}, time=moment.wall)


MOST_POINTS = 2000
MOST_TURNS = 400
LONGEST_STEP_SECONDS = 60.0
"""Rounds further apart are a gap of the record, which counts for nothing."""
HELD_DOWN_PERCENT = 95
"""Best effort that uses so much of its limit could have used more."""


class Side(msgspec.Struct, kw_only=True):
    """One of the two courses: sums over its rounds."""

    be_cpu_seconds_allowed: float = 0.0
    """CPU time that the limit would have let best effort use."""
    be_cpu_seconds_budget: float = 0.0
    """CPU time that the formula left best effort, by this side's threshold."""
    be_cpu_seconds_least: float = 0.0
    """Least use of best effort: what it did use, as far as the limit allows."""
    be_cpu_seconds_most: float = 0.0
    """The same, had the work that was held down used all it could: up to the limit, on CPUs that stood idle."""
    seconds_above_threshold: float = 0.0
    """Time in which the node used more than this side's own threshold; of the other side at least."""
    seconds_above_threshold_most: float = 0.0
    """The same, had best effort used all that the other limit allows beyond."""
    seconds_well_above_threshold: float = 0.0
    """Time by a CPU or more: the rounding of limits to whole CPUs does not explain that."""
    seconds_well_above_threshold_most: float = 0.0
    be_limit_min: int | None = None
    be_limit_max: int | None = None
    writes: int = 0
    writes_by_kind: dict[str, int] = msgspec.field(default_factory=dict)
    evictions: tuple[str, ...] = ()
    """Pods as NAMESPACE/NAME."""
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    """Reason of decisions → in how many rounds."""

    def add(self, now: Figures, changes: Iterable[Change], decisions: Iterable[Decision], evicted: set[str]) -> None:
        """One round. `evicted` are the pods, by uid, that were evicted in earlier ones, and takes in those of this."""
        if now.be_limit is not None:
            self.be_limit_min = min(now.be_limit, now.be_limit if self.be_limit_min is None else self.be_limit_min)
            self.be_limit_max = max(now.be_limit, self.be_limit_max or 0)
        for change in changes:
            if not isinstance(change, EvictPod):
                self.writes += 1
                kind = change.place.metric
                self.writes_by_kind[kind] = self.writes_by_kind.get(kind, 0) + 1
            elif change.uid not in evicted:
                evicted.add(change.uid)
                self.evictions = (*self.evictions, f"{change.namespace}/{change.name}")
        for reason in {decision.reason for decision in decisions}:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def add_best_effort(self, before: Figures, seconds: float, *, least: int, most: int) -> None:
        """Time in which what `before` left was in force, and best effort used between `least` and `most`."""
        self.be_cpu_seconds_allowed += (before.be_limit or 0) * seconds / 1000
        self.be_cpu_seconds_budget += max(0, before.be_budget or 0) * seconds / 1000
        self.be_cpu_seconds_least += least * seconds / 1000
        self.be_cpu_seconds_most += most * seconds / 1000

    def add_above(self, now: Figures, seconds: float, least: int = 0, most: int = 0) -> None:
        """Time in which the node used so much more, at least and at most, than `now` says."""
        if now.node_cpu is None:
            return
        low, high = now.node_cpu + least, now.node_cpu + most
        self.seconds_above_threshold += seconds * present.above(low, now.threshold_milli)
        self.seconds_above_threshold_most += seconds * present.above(high, now.threshold_milli)
        self.seconds_well_above_threshold += seconds * present.well_above(low, now.threshold_milli)
        self.seconds_well_above_threshold_most += seconds * present.well_above(high, now.threshold_milli)


class Turn(msgspec.Struct, frozen=True):
    """From this moment on a subject was decided differently than recorded, or the same again."""

    wall: float
    strategy: str
    subject: str
    recorded: Decision | None
    other: Decision | None


class Point(msgspec.Struct, frozen=True):
    """Both courses at one moment."""

    recorded: Figures
    other: Figures


class Comparison(msgspec.Struct, kw_only=True):
    """Everything reports say about two courses. CPU-seconds are seconds of one CPU."""

    rounds: int = 0
    seconds: float = 0.0
    """Without gaps of the record."""
    be_cpu_seconds_used: float = 0.0
    """As recorded."""
    be_cpu_seconds_lost: float = 0.0
    """Work that was done and that the other limit would not have allowed."""
    be_cpu_seconds_gained: float = 0.0
    """At most so much more, had the work that was held down used all that the other limit allows beyond, as far as the
    node had CPU to spare."""
    ls_seconds_above_threshold: float = 0.0
    """Time in which all but best effort was above the recorded threshold by itself: no limit could have helped."""
    limits_enforced: bool = False
    """True when the other side enforced the strategy that limits best effort in any round: else no limit moves."""
    recorded: Side = msgspec.field(default_factory=Side)
    other: Side = msgspec.field(default_factory=Side)
    points: list[Point] = msgspec.field(default_factory=list)
    turns: list[Turn] = msgspec.field(default_factory=list)
    """The first moments at which a subject began to be decided differently."""
    turns_seen: int = 0


def compare(moments: Iterable[RoundRecord], other: Other) -> Comparison:
    """Go through a record once, on both courses."""
    judge, course, sums = Judge(), Course(other), _Sums()
    for moment in moments:
        shown = course.snapshot(moment)
        decisions = judge.decisions(shown)
        changes = course.carried_out(shown, decisions)
        mine = landed(moment)
        point = Point(gauge(moment, moment.decisions, mine), gauge(shown, decisions, changes))
        sums.result.limits_enforced |= any(
            shown.settings[rule.name].mode == "enforce" for rule in strategies.limiting()
        )
        sums.add(point, changed=(mine, changes), decided=(moment.decisions, decisions))
    for side in (sums.result.recorded, sums.result.other):
        side.writes_by_kind = dict(sorted(side.writes_by_kind.items()))
        side.reasons = dict(sorted(side.reasons.items(), key=lambda pair: -pair[1]))
    return sums.result


class _Sums:
    """Adds rounds to a comparison; what it remembers besides does not grow with the record."""

    def __init__(self) -> None:
        self.result = Comparison()
        self._before: Point | None = None
        self._stride = 1
        self._apart: dict[tuple[str, str], bool] = {}
        self._evicted: tuple[set[str], set[str]] = (set(), set())

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
        self.result.recorded.add(now.recorded, changed[0], decided[0], self._evicted[0])
        self.result.other.add(now.other, changed[1], decided[1], self._evicted[1])
        self._add_turns(now.recorded.time, *decided)
        # Thinned to every second, fourth … round as the record grows.
        if self.result.rounds % self._stride == 0:
            self.result.points.append(now)
        if len(self.result.points) > MOST_POINTS:
            self.result.points = self.result.points[::2]
            self._stride *= 2
        self.result.rounds += 1

    def _add_time(self, before: Point, now: Point) -> None:
        """Use is a mean since the round before; the limit of that time is the one that round left.

        Use beyond the recorded limit is not lost to the other: neither was obeyed then.
        """
        seconds = now.recorded.time - before.recorded.time
        if not 0 < seconds <= LONGEST_STEP_SECONDS:
            return
        was, would = before.recorded.be_limit or 0, before.other.be_limit or 0
        used = now.recorded.be_cpu or 0
        lost = max(0, min(used, was) - would)
        spare = max(0, now.recorded.capacity_milli - (now.recorded.node_cpu or 0))
        is_held_down = used * 100 >= was * HELD_DOWN_PERCENT
        gained = max(0, min(would, used + spare) - max(was, used)) if is_held_down else 0
        result = self.result
        recorded, other = result.recorded, result.other
        result.seconds += seconds
        result.be_cpu_seconds_used += used * seconds / 1000
        result.be_cpu_seconds_lost += lost * seconds / 1000
        result.be_cpu_seconds_gained += gained * seconds / 1000
        recorded.add_best_effort(before.recorded, seconds, least=used, most=used)
        other.add_best_effort(before.other, seconds, least=used - lost, most=used - lost + gained)
        recorded.add_above(now.recorded, seconds)
        other.add_above(dataclasses.replace(now.other, node_cpu=now.recorded.node_cpu), seconds, -lost, gained - lost)
        result.ls_seconds_above_threshold += seconds * present.above(
            now.recorded.prod_cpu, now.recorded.threshold_milli
        )

    def _add_turns(self, wall: float, recorded: Sequence[Decision], other: Sequence[Decision]) -> None:
        if recorded == other:
            mine, theirs = {}, {}
        else:
            mine, theirs = _by_subject(recorded), _by_subject(other)
        for key in dict.fromkeys((*mine, *theirs, *self._apart)):
            apart = _essence(mine.get(key)) != _essence(theirs.get(key))
            if apart != self._apart.get(key, False):
                self.result.turns_seen += 1
                if len(self.result.turns) < MOST_TURNS:
                    self.result.turns.append(Turn(wall, *key, mine.get(key), theirs.get(key)))
            self._apart[key] = apart
        self._apart = {key: True for key, apart in self._apart.items() if apart}


def _by_subject(decisions: Iterable[Decision]) -> dict[tuple[str, str], Decision]:
    return {(decision.strategy, decision.subject): decision for decision in decisions}


def _essence(decision: Decision | None) -> tuple[object, ...] | None:
    """Numbers differ all the time; a turn is another answer."""
    return None if decision is None else (decision.verdict in ("evict", "skip", "refuse", "release"), decision.reason)
