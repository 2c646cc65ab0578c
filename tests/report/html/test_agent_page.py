"""The agent's front page: everything on it, nothing inline, harmless whatever a cluster calls its pods."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from reported import tick_with

from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.model.picture.usage import Pressure, Stall
from koordlite.model.settings import Mode
from koordlite.model.status import Pause
from koordlite.report.history import NOTHING, DecisionEvent, History, Remembered
from koordlite.report.html import agent_page, page
from koordlite.report.html.page import FILTER_SCRIPT
from koordlite.report.terminal import status
from koordlite.report.tick import Tick


@pytest.fixture
def past(ticks: tuple[Tick, ...]) -> Remembered:
    run = History({}, {})
    for tick in ticks:
        run.add(tick)
    return run.remembered()


def scripts(text: str) -> list[str]:
    """What a browser would run, if the policy let it."""
    return re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)


def test_the_page_has_the_map_the_pools_pressure_decisions_and_disputes(
    ticks: tuple[Tick, ...], past: Remembered, read_html: Callable[[str], Any]
) -> None:
    stall = Stall(12.5, 0.0, 0.0, 0)
    tick = tick_with(ticks[-1], pressure={"node": {"cpu": Pressure(stall, None)}})
    made = agent_page.served(tick, past, links=("/metrics",), refresh=True)
    read = read_html(made.text)
    for part in ("node-a", "enforcing", "2-3,8-31", "12.5 %", "BECPUBudget", "Disputed files", "NUMA node 1"):
        assert part in read.text
    assert [value for tag, name, value in read.attributes if name == "style" or name.startswith("on")] == []
    assert scripts(made.text) == [FILTER_SCRIPT, page.LIVE_SCRIPT]
    assert {"explain/cpu/0", "./metrics", "explain/cpuSuppress"} <= {v for _, n, v in read.attributes if n == "href"}


@pytest.mark.parametrize(("refresh", "times"), [(True, 1), (False, 0)])
def test_it_refreshes_by_itself_unless_told_otherwise(ticks: tuple[Tick, ...], refresh: bool, times: int) -> None:
    made = agent_page.served(ticks[0], NOTHING, links=(), refresh=refresh)
    assert made.text.count('http-equiv="refresh"') == times


def test_before_the_first_tick_there_is_a_page(read_html: Callable[[str], Any]) -> None:
    made = agent_page.served(None, NOTHING, links=("/metrics",), refresh=True)
    assert "No tick has ended yet" in read_html(made.text).text


def test_names_from_the_cluster_are_text(ticks: tuple[Tick, ...], read_html: Callable[[str], Any]) -> None:
    evil = Decision('pod/<script>alert(1)</script>" style="x', "hold", "ManyPods", {"why": "<img src=x onerror=y>"})
    tick = tick_with(ticks[0], decisions=(evil,), modes={"x": "observe"})
    made = agent_page.served(tick, Remembered((DecisionEvent(0.0, 0.0, evil),)), links=(), refresh=False)
    read = read_html(made.text)
    assert scripts(made.text) == [FILTER_SCRIPT] and "img" not in read.tags
    assert "alert(1)" in read.text


def test_what_is_wrong_and_a_pause_are_told_at_the_top(
    ticks: tuple[Tick, ...], past: Remembered, read_html: Callable[[str], Any]
) -> None:
    wrong = Problem("node/node-a", "reservation", "{", "not JSON", "fix it")
    pause = Pause(until=ticks[-1].wall + 3600, because="a new disk")
    tick = tick_with(ticks[-1], status="paused", pause=pause, problems=(wrong, wrong))
    made = agent_page.served(tick, past, links=(), refresh=False)
    top = read_html(made.text).text.partition("Node uses")[0]
    assert "2 problems" in top
    assert "(1:00:00 left) by koordlite pause: a new disk; what is in force stays" in top
    assert 'href="#problems"' in made.text and 'id="problems"' in made.text
    calm = agent_page.served(tick_with(ticks[-1], problems=()), past, links=(), refresh=False)
    assert 'href="#problems"' not in calm.text


@pytest.mark.parametrize(("mode", "told"), [("enforce", True), ("observe", True), ("off", False)])
def test_nothing_gives_way_while_suppression_is_off(ticks: tuple[Tick, ...], mode: Mode, told: bool) -> None:
    tick = tick_with(ticks[-1], modes={"cpuSuppress": mode})
    made = agent_page.served(tick, NOTHING, links=(), refresh=False)
    assert ("BE is limited above" in made.text) is told
    assert ("BE is limited above" in status.screen(tick)) is told


def test_the_age_of_our_own_report_is_no_age_of_input(ticks: tuple[Tick, ...]) -> None:
    tick = tick_with(ticks[-1], ages={"node": 1.0, "placement": 300.0})
    assert "placement 300" not in agent_page.served(tick, NOTHING, links=(), refresh=False).text
    assert "oldest input 1.0 s (node)" in status.screen(tick)
