"""The goals of co-location, judged from measured rows."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from tests.perf.colocation import ways
from tests.perf.colocation.results import Row

OF_BUDGET = 0.95
OF_PLAIN = 0.95
P99_TO_ALONE = 1.05
MEMORY_BOUND = ("stream", "streams", "thrash", "stress-cache", "stress-vm")
"""Batch work that contends for caches and memory more than for CPUs."""
NOISE = 0.03
"""Two p99 that differ by less are equal."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """One goal under one load. `met` is None where a way that it compares with was not measured, or was measured once,
    or where rounds differ by more than the two ways do."""

    load: str
    words: str
    figures: str
    met: bool | None


def judge(table: Sequence[Row]) -> list[Goal]:
    """All goals, load by load."""
    judged = []
    for key, those in itertools.groupby(table, key=lambda row: (row.service, row.pattern, row.batch)):
        if key[2]:
            judged += _of_load(*key, {row.way: row for row in those})
    return judged


def _of_load(service: str, pattern: str, batch: str, rows: dict[str, Row]) -> Iterator[Goal]:
    load = f"{service}, {pattern}, {batch}"
    alone, plain = rows.get("alone"), rows.get("plain")
    if ours := rows.get("agent:cfsQuota"):
        figures = f"{ours.batch_cpus:.2f} of {ours.budget_cpus:.2f} CPUs: {ours.of_budget:.0%}"
        yield Goal(load, "by the formula, batch gets 95 % of its budget", figures, ours.of_budget >= OF_BUDGET)
        if pattern.startswith("bursty"):
            words = "by the formula, bursts hold batch down for no longer than they last"
            figures = f"{ours.lulls_cpus:.2f} of {ours.budget_cpus:.2f} CPUs in the better half of the seconds"
            yield Goal(load, words, figures, ours.lulls_cpus >= OF_BUDGET * ours.budget_cpus)
        yield _no_slower(
            load, "by the formula, p99 no higher than by Koordinator's", ours, rows.get("koordinator:cfsQuota")
        )
    if ours := rows.get("agent:cpuset"):
        yield _no_slower(load, "by cpuset, p99 no higher than without an agent", ours, plain)
        yield _no_slower(load, "by cpuset, p99 no higher than by Koordinator's", ours, rows.get("koordinator:cpuset"))
    for way, ours in rows.items():
        if way.partition(",")[0] == "agent:objective":
            yield from _by_objective(load, ours, rows.get("agent:cfsQuota"))
    if (ours := rows.get("agent:guided")) and alone and plain:
        at_most = max(P99_TO_ALONE, plain.p99_ratio)
        figures = f"{ours.p99_ratio:.2f} × alone; plain groups {plain.p99_ratio:.2f}"
        met = None if math.isnan(ours.p99_ratio) else _met(ours.p99_ratio / at_most, ours, plain)
        yield Goal(load, "guided: p99 at most 1.05 × alone, or as with plain groups", figures, met)
        share = ours.batch_cpus / plain.batch_cpus
        figures = f"{ours.batch_cpus:.2f} of {plain.batch_cpus:.2f} CPUs: {share:.0%}"
        yield Goal(load, "guided: batch gets 95 % of what plain groups give it", figures, share >= OF_PLAIN)
        others = [row for way, row in rows.items() if way not in ("alone", "agent:guided") and "," not in way]
        if batch in MEMORY_BOUND and others:
            words = "guided: beside memory-bound work p99 as good as any other way"
            yield _no_slower(load, words, ours, min(others, key=lambda row: row.p99_ratio))


def _by_objective(load: str, ours: Row, fixed: Row | None) -> Iterator[Goal]:
    """More batch work at the same objective than the fixed threshold allows. Where that misses the objective, what
    batch work gets by it says nothing."""
    at_most = ways.parse(ours.way).p99_to_alone
    figures = f"{ours.p99_ratio:.2f} × alone, and {at_most:g} are allowed"
    met = None if math.isnan(ours.p99_ratio) else ours.p99_ratio <= at_most * (1 + NOISE)
    yield Goal(load, "objective: p99 within it", figures, met)
    words = "objective: batch gets more than by the fixed threshold"
    if fixed is None:
        yield Goal(load, words, f"{ours.batch_cpus:.2f} CPUs; the fixed threshold was not measured", None)
        return
    p99s = f"{ours.p99_ratio:.2f} and {fixed.p99_ratio:.2f} × alone"
    figures = f"{ours.batch_cpus:.2f} and {fixed.batch_cpus:.2f} CPUs, p99 {p99s}"
    fixed_meets = fixed.p99_ratio <= at_most * (1 + NOISE)
    yield Goal(load, words, figures, (ours.batch_cpus > fixed.batch_cpus if met else False) if fixed_meets else None)


def _no_slower(load: str, words: str, ours: Row, other: Row | None) -> Goal:
    if other is None:
        return Goal(load, words, f"{ours.p99:.2f} ms; the other was not measured", None)
    ratio = ours.p99_ratio / other.p99_ratio
    ratio = ours.p99 / other.p99 if math.isnan(ratio) else ratio
    spans = [f"{row.p99:.2f} ({row.p99_span[0]:.2f}-{row.p99_span[1]:.2f})" for row in (ours, other)]
    return Goal(load, words, f"{spans[0]} and {spans[1]} ms: {ratio:.2f}", _met(ratio, ours, other))


def _met(ratio: float, ours: Row, other: Row) -> bool | None:
    """The verdict on a ratio of two p99, None of a single round. A goal is missed only where every round of ours was
    slower than each round of the other way."""
    if min(ours.rounds, other.rounds) < 2:
        return None
    if ratio <= 1 + NOISE:
        return True
    return None if ours.p99_span[0] <= other.p99_span[1] else False
