"""`explain node`, `explain cpu N`, `explain resctrl`."""

from __future__ import annotations

import json

import pytest
from reported import tick_of

from koordlite.model.decision import Decision
from koordlite.report.explain.subject import explain
from koordlite.report.history import History, Remembered
from koordlite.report.node_figures import CPUCell
from koordlite.report.tick import Tick


@pytest.fixture(scope="module")
def past(ticks: tuple[Tick, ...]) -> Remembered:
    run = History({}, {})
    for tick in ticks:
        run.add(tick)
    return run.remembered()


def test_the_node_is_told_by_question_with_what_to_ask_next(ticks: tuple[Tick, ...], past: Remembered) -> None:
    said = explain("node", ticks[-1], past)
    assert said.startswith("node-a: enforcing")
    for part in (
        "best effort may use [cpuSuppress, enforce]",
        "→ explain allocatable",
        "recent decisions, the newest last",
    ):
        assert part in said
    assert "disputed files\n  kubepods/besteffort/cpuset.cpus" in said


def test_the_node_without_a_past_and_without_decisions_is_still_told() -> None:
    said = explain("node", tick_of(time=0.0, status="degraded", because="no metrics"))
    assert said.startswith("node not seen yet: degraded (no metrics)")
    assert "disputed" not in said


@pytest.mark.parametrize(
    ("cpu", "words"),
    [
        ("0", "CPU 0: NUMA node 0, is reserved for the system\n  best-effort pods may not run on it"),
        ("4", "CPU 4: NUMA node 0, belongs to an LSE pod alone"),
        ("9", "in the pool that LS pods share\n  best-effort pods may run on it"),
    ],
)
def test_a_cpu_is_told_with_its_owner(ticks: tuple[Tick, ...], past: Remembered, cpu: str, words: str) -> None:
    assert words in explain(f"cpu {cpu}", ticks[-1], past)


def test_when_best_effort_got_or_lost_a_cpu(ticks: tuple[Tick, ...], past: Remembered) -> None:
    end = [tick.figures.be_limit or 0 for tick in ticks][-1] // 1000
    edge = 9 + end
    said = explain(f"cpu {edge}", ticks[-1], past)
    assert "last change: best-effort pods lost it at 2026-09-21 14:17:16 UTC: besteffort: shrink" in said
    assert json.loads(explain(f"cpu {edge}", ticks[-1], past, output="json"))["lastMove"]["given"] is False


def test_a_cpu_that_never_moved_has_no_last_change(ticks: tuple[Tick, ...], past: Remembered) -> None:
    assert "last change" not in explain("cpu 9", ticks[-1], past)


def test_decisions_that_name_a_cpu_in_a_list_are_found_and_odd_text_is_not_taken_for_one() -> None:
    named = Decision("pod/a/b", "set", "PinnedCPUs", {"cpuset": "2-3", "qos": "LSR"})
    odd = Decision("pools", "set", "SharedPools", {"ls_pool": "none known", "be_pool": ""})
    tick = tick_of(time=0.0, cpus=(_cell(3),), decisions=(named, odd))
    said = explain("cpu 3", tick)
    assert "pod/a/b: set, PinnedCPUs" in said
    assert "SharedPools" not in said


@pytest.mark.parametrize("number", ["99", "x", "-1", "0-3"])
def test_a_cpu_that_is_not_there_is_a_clear_error(ticks: tuple[Tick, ...], number: str) -> None:
    with pytest.raises(ValueError, match=r"there is no CPU '.*'; this machine has 0-31"):
        explain(f"cpu {number}", ticks[-1])


def test_resctrl_is_told_with_groups_decisions_and_writes(ticks: tuple[Tick, ...]) -> None:
    said = explain("resctrl", ticks[-1])
    assert "BE       L3:0=f;1=f MB:0=50;1=50" in said
    assert "nothing: the strategy is off" in said
    assert json.loads(explain("resctrl", ticks[-1], output="json"))["schemata"]["BE"].startswith("L3")


def _cell(cpu: int) -> CPUCell:
    return CPUCell(cpu, 0, "LSR", best_effort=False)
