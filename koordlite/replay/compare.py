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
from koordlite.replay.verify import Divergence, Judge
from koordlite.replay.what_if import Course, Other, landed
from koordlite.report import node_figures
from koordlite.report.node_figures import Figures

Round = tuple[RoundRecord, Sequence[Decision], Sequence[Change]]
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

    def add_time(self, before: Figures, now: Figures, seconds: float, least: int, most: int) -> None:
        """Time in which what `before` left was in force, and best effort used between `least` and `most` in place of
        what `now` says, by which the use of the node differs too."""
        self.be_cpu_seconds_allowed += (before.be_limit or 0) * seconds / 1000
        self.be_cpu_seconds_budget += max(0, before.be_budget or 0) * seconds / 1000
        self.be_cpu_seconds_least += least * seconds / 1000
        self.be_cpu_seconds_most += most * seconds / 1000
        if now.node_cpu is None:
            return
        without_be, threshold = now.node_cpu - (now.be_cpu or 0), now.threshold_milli
        self.seconds_above_threshold += seconds * node_figures.above(without_be + least, threshold)
        self.seconds_above_threshold_most += seconds * node_figures.above(without_be + most, threshold)
        self.seconds_well_above_threshold += seconds * node_figures.well_above(without_be + least, threshold)
        self.seconds_well_above_threshold_most += seconds * node_figures.well_above(without_be + most, threshold)


class Point(msgspec.Struct, frozen=True):
    """Both courses at one moment."""

    recorded: Figures
    other: Figures


class Comparison(msgspec.Struct, kw_only=True):
    """Everything reports say about two courses. CPU-seconds are seconds of one CPU."""

    rounds: int = 0
    seconds: float = 0.0
    """Length without gaps of the record."""
    be_cpu_seconds_used: float = 0.0
    """CPU time as recorded."""
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
    turns: list[Divergence] = msgspec.field(default_factory=list)
    """The first rounds in which a subject began to be decided differently, or the same again."""
    turns_seen: int = 0


def compare(records: Iterable[RoundRecord], other: Other) -> Comparison:
    """Go through a record once, on both courses."""
    judge, course, sums = Judge(), Course(other), _Sums()
    for record in records:
        replayed = course.snapshot(record)
        decisions = judge.decisions(replayed)
        sums.add(
            (record, record.decisions, landed(record)), (replayed, decisions, course.carried_out(replayed, decisions))
        )
        sums.result.limits_enforced |= any(
            replayed.settings[rule.name].mode == "enforce" for rule in strategies.limiting()
        )
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
        self._apart: set[tuple[str, str]] = set()
        self._evicted: tuple[set[str], set[str]] = (set(), set())

    def add(self, *sides: Round) -> None:
        """One round, recorded and on the other course: its picture, the decisions, and the changes that were made."""
        result = self.result
        recorded, other = (
            node_figures.figures(node_figures.Overlay(record.snapshot, changes), decisions, {}, time=record.wall)
            for record, decisions, changes in sides
        )
        now = Point(recorded, other)
        if self._before is not None:
            self._add_time(self._before, now)
        self._before = now
        for side, figures, evicted, (_, decisions, changes) in zip(
            (result.recorded, result.other), (recorded, other), self._evicted, sides, strict=True
        ):
            side.add(figures, changes, decisions, evicted)
        self._add_turns(recorded.time, sides[0][1], sides[1][1])
        # Thinned to every second, fourth … round as the record grows.
        if result.rounds % self._stride == 0:
            result.points.append(now)
        if len(result.points) > MOST_POINTS:
            result.points = result.points[::2]
            self._stride *= 2
        result.rounds += 1

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
        result.seconds += seconds
        result.be_cpu_seconds_used += used * seconds / 1000
        result.be_cpu_seconds_lost += lost * seconds / 1000
        result.be_cpu_seconds_gained += gained * seconds / 1000
        result.recorded.add_time(before.recorded, now.recorded, seconds, used, used)
        moved = dataclasses.replace(now.other, be_cpu=used, node_cpu=now.recorded.node_cpu)
        result.other.add_time(before.other, moved, seconds, used - lost, used - lost + gained)
        result.ls_seconds_above_threshold += seconds * node_figures.above(
            now.recorded.prod_cpu, now.recorded.threshold_milli
        )

    def _add_turns(self, wall: float, recorded: Sequence[Decision], other: Sequence[Decision]) -> None:
        mine, theirs = ({}, {}) if recorded == other else (_by_subject(recorded), _by_subject(other))
        for key in dict.fromkeys((*mine, *theirs, *sorted(self._apart))):
            apart = _essence(mine.get(key)) != _essence(theirs.get(key))
            if apart != (key in self._apart):
                self._apart ^= {key}
                self.result.turns_seen += 1
                if len(self.result.turns) < MOST_TURNS:
                    self.result.turns.append(Divergence(wall, *key, mine.get(key), theirs.get(key)))


def _by_subject(decisions: Iterable[Decision]) -> dict[tuple[str, str], Decision]:
    return {(decision.strategy, decision.subject): decision for decision in decisions}


def _essence(decision: Decision | None) -> tuple[object, ...] | None:
    """Numbers differ all the time; a turn is another answer."""
    return None if decision is None else (decision.verdict in ("evict", "skip", "refuse", "release"), decision.reason)
