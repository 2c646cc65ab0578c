"""The agent's front page: everything on it, nothing inline, harmless whatever a cluster calls its pods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from koordlite.model.decision import Decision
from koordlite.model.pressure import Pressure, Stall
from koordlite.report import page_agent
from koordlite.report.history import DecisionEvent, History
from koordlite.report.past import NOTHING, Past, Remembered
from koordlite.report.tick import Tick


@pytest.fixture
def past(ticks: tuple[Tick, ...]) -> Remembered:
    held, run = Past(), History({}, {})
    for tick in ticks:
        held.add(tick, run.add(tick))
    return held.remembered()


def test_the_page_has_the_map_the_pools_pressure_decisions_and_disputes(
    ticks: tuple[Tick, ...], past: Remembered, read_html: Callable[[str], Any]
) -> None:
    stall = Stall(12.5, 0.0, 0.0, 0)
    tick = dataclasses.replace(ticks[-1], pressure={"node": {"cpu": Pressure(stall, None)}})
    made = page_agent.served(tick, past, links=("/metrics",), refresh=True)
    read = read_html(made.text)
    for part in ("node-a", "enforcing", "2-3,8-31", "12.5 %", "BECPUBudget", "Disputed files", "NUMA node 1"):
        assert part in read.text
    assert [value for tag, name, value in read.attributes if name == "style" or name.startswith("on")] == []
    assert "script" not in read.tags
    assert {"explain/cpu/0", "./metrics", "explain/cpuSuppress"} <= {v for _, n, v in read.attributes if n == "href"}


@pytest.mark.parametrize(("refresh", "times"), [(True, 1), (False, 0)])
def test_it_refreshes_by_itself_unless_told_otherwise(ticks: tuple[Tick, ...], refresh: bool, times: int) -> None:
    made = page_agent.served(ticks[0], NOTHING, links=(), refresh=refresh)
    assert made.text.count('http-equiv="refresh"') == times


def test_before_the_first_tick_there_is_a_page(read_html: Callable[[str], Any]) -> None:
    made = page_agent.served(None, NOTHING, links=("/metrics",), refresh=True)
    assert "No tick has ended yet" in read_html(made.text).text


def test_names_from_the_cluster_are_text(ticks: tuple[Tick, ...], read_html: Callable[[str], Any]) -> None:
    evil = Decision('pod/<script>alert(1)</script>" style="x', "hold", "ManyPods", {"why": "<img src=x onerror=y>"})
    tick = dataclasses.replace(ticks[0], decisions=(evil,), modes={"x": "observe"})
    made = page_agent.served(tick, Remembered((DecisionEvent(0.0, 0.0, evil),)), links=(), refresh=False)
    read = read_html(made.text)
    assert "script" not in read.tags and "img" not in read.tags
    assert "alert(1)" in read.text
