"""`explain SUBJECT`: found by subject, strategy, reason or file; off and unknown are answers too."""

from __future__ import annotations

import pytest
from reported import tick_with

from koordlite.report.explain.subject import explain
from koordlite.report.history import History, Remembered
from koordlite.report.tick import Tick


@pytest.mark.parametrize(
    "subject",
    ["besteffort", "cpuSuppress", "suppress", "BECPUBudget"],
)
def test_explain_finds_by_subject_strategy_alias_and_reason(ticks: tuple[Tick, ...], subject: str) -> None:
    shown = explain(subject, ticks[-1])
    assert "BE may use" in shown
    assert "threshold     65 %" in shown
    assert "BatchAllocatable" not in shown


def test_explain_finds_by_file_and_by_the_end_of_a_subject(ticks: tuple[Tick, ...]) -> None:
    writing = next(tick for tick in ticks if tick.applied)
    assert "asks for\n    kubepods/besteffort/cpuset.cpus" in explain("cpuset.cpus", writing)
    assert "high-priority pods" in explain("batch-cpu", writing)


def test_explain_tells_the_last_change_and_its_cause(ticks: tuple[Tick, ...], history: History) -> None:
    shown = explain("besteffort", ticks[-1], Remembered(events=tuple(history.decisions)))
    assert "last change at 2026-09-21 14:17:16 UTC: shrink, BE may use" in shown


def test_explain_of_something_unknown_lists_what_there_is(ticks: tuple[Tick, ...]) -> None:
    with pytest.raises(ValueError, match=r"nothing was decided about 'pod/x'; there are .*besteffort"):
        explain("pod/x", ticks[-1])


@pytest.mark.parametrize("subject", ["besteffort", "cpuSuppress", "suppress"])
def test_a_strategy_that_is_off_is_an_answer(ticks: tuple[Tick, ...], subject: str) -> None:
    kept = tuple(d for d in ticks[-1].decisions if d.strategy != "cpuSuppress" and d.subject != "besteffort")
    tick = tick_with(ticks[-1], decisions=kept, modes={**ticks[-1].modes, "cpuSuppress": "off"})
    shown = explain(subject, tick)
    assert shown.startswith(f"{subject}: nothing is decided, the strategy cpuSuppress is off")
    assert '"off": "nothing is decided' in explain(subject, tick, output="json")


def test_allocatable_with_both_strategies_off_is_an_answer(ticks: tuple[Tick, ...]) -> None:
    modes = {**ticks[-1].modes, "beAllocatable": "off", "midAllocatable": "off"}
    tick = tick_with(ticks[-1], decisions=(), modes=modes)
    assert "the strategy beAllocatable is off" in explain("allocatable", tick)
