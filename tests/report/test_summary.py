"""Sums over a run, checked against numbers worked out by hand."""

from __future__ import annotations

import pytest
from reported import tick_of

from koordlite import changes
from koordlite.model.decision import Decision
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.report import summary
from koordlite.report.summary import Totals
from koordlite.report.tick import Tick


def total(*ticks: Tick) -> Totals:
    totals = Totals()
    for tick in ticks:
        totals.add(tick)
    return totals


def at(time: float, *, node: int = 0, prod: int = 0, be: int = 0, limit: int | None = None) -> Tick:
    return tick_of(time=time, node_cpu=node, prod_cpu=prod, be_cpu=be, be_limit=limit, threshold_milli=5000)


def test_limit_counts_from_the_tick_that_set_it_and_use_up_to_the_tick_that_measured_it() -> None:
    sums = total(at(0, limit=2000), at(1800, be=1000, limit=4000), at(3600, be=3000, limit=9000)).summary()
    assert sums.be_core_hours_allowed == pytest.approx((2 * 1800 + 4 * 1800) / 3600)
    assert sums.be_core_hours_used == pytest.approx((1 * 1800 + 3 * 1800) / 3600)
    assert (sums.be_limit_min, sums.be_limit_max) == (2000, 9000)
    assert (sums.seconds, sums.ticks) == (3600, 3)


def test_time_above_the_threshold_and_the_part_no_limit_could_help() -> None:
    sums = total(at(0), at(1, node=5001), at(3, node=6000, prod=5500), at(4, node=5000)).summary()
    assert sums.seconds_above_threshold == 3
    assert sums.prod_seconds_above_threshold == 2


def test_above_by_a_cpu_or_more_is_told_apart_from_the_rounding_of_limits_to_whole_cpus() -> None:
    sums = total(at(0), at(1, node=5001), at(3, node=5999), at(7, node=6000), at(15, node=9000)).summary()
    assert (sums.seconds_above_threshold, sums.seconds_well_above_threshold) == (15, 12)
    said = " ".join(summary.text(sums).split())
    assert "above threshold 15.0 s, of which 12.0 s by a CPU or more (less is rounding: limits are whole CPUs)" in said


@pytest.mark.parametrize(("limit", "late"), [(2000, 0), (3000, 4)])
def test_a_limit_is_late_while_best_effort_has_more_than_the_two_cpus_it_keeps(limit: int, late: float) -> None:
    sums = total(at(0, limit=limit), at(4, node=6000)).summary()
    assert (sums.seconds_well_above_threshold, sums.seconds_late) == (4, late)


def test_writes_refusals_foreign_writes_and_reasons() -> None:
    tick = tick_of(
        time=0.0,
        applied=(
            AppliedStep(changes.parse("a/cpuset.cpus"), "0"),
            AppliedStep(changes.parse("b/cpuset.cpus"), "0", ok=False, error="EBUSY"),
        ),
        foreign=(ForeignWrite(changes.parse("a/cpu.quota"), "1", "2"),),
        decisions=(Decision("a", "hold", "R"), Decision("b", "hold", "R"), Decision("c", "skip", "Q")),
    )
    sums = total(tick).summary()
    assert (sums.writes, sums.refusals, sums.foreign_writes) == (1, 1, 1)
    assert sums.writes_by_kind == {"cpuset.cpus": 1}
    assert sums.decisions == {"R": 2, "Q": 1}


def test_a_clock_that_stands_still_or_jumps_back_adds_no_time() -> None:
    sums = total(at(5, limit=1000), at(5, node=9000, be=1000), at(3, node=9000, be=1000)).summary()
    assert (sums.seconds_above_threshold, sums.be_core_hours_used) == (0, 0)


def test_nothing_is_known_of_an_empty_run() -> None:
    sums = Totals().summary()
    assert (sums.ticks, sums.seconds, sums.be_limit_min, sums.tick_seconds_mean) == (0, 0, None, 0)


@pytest.mark.parametrize(
    ("place", "word"),
    [
        ("kubepods/besteffort/cpuset.cpus", "cpuset.cpus"),
        ("kubepods/besteffort/cpu.quota", "cpu.quota"),
        ("resctrl/BE/L3", "resctrl L3"),
        ("resctrl/BE/tasks", "resctrl tasks"),
        ("resctrl//tasks", "resctrl tasks"),
        ("resctrl/BE", "resctrl group"),
        ("resctrl/BE/return", "resctrl return"),
        ("resctrl/BE/mon_groups/koordlet-0", "resctrl group"),
        ("resctrl/BE/mon_groups/koordlet-0/tasks", "resctrl tasks"),
        ("resctrl mount", "resctrl mount"),
        ("resctrl/mount", "resctrl group"),
        ("oom_score_adj/77/1234", "oom_score_adj"),
        ("pod/ns/name/uid-1", "eviction"),
        ("system/sched_features/ID_BOOK_CPU", "sched_features"),
        ("node/kubernetes.io/batch-cpu", "Node"),
        ("noderesourcetopology/zones", "NodeResourceTopology"),
    ],
)
def test_kind_of_a_place(place: str, word: str) -> None:
    assert changes.parse(place).metric == word
