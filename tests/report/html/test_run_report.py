"""One page that needs nothing else, whatever the names in it are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from reported import tick_of, tick_with

from koordlite.changes.cgroup import CgroupChange
from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.report.history import History
from koordlite.report.html import node_parts, page, run_report
from koordlite.report.html.page import FILTER_SCRIPT
from koordlite.report.tick import Tick

EVIL = '<script>alert("1")</script>&\'"><img src=x onerror=alert(1)>'
Read = Callable[[str], Any]


def test_page_is_well_formed_and_needs_nothing_from_elsewhere(history: History, read_html: Read) -> None:
    found = read_html(run_report.document(history))
    assert {"svg", "path", "table", "title"} <= set(found.tags)
    assert not {"link", "img", "iframe"} & set(found.tags)
    assert found.tags.count("script") == 1, "the filter"
    assert not [value for _, name, value in found.attributes if name in ("src", "href", "xlink:href")]


def test_page_shows_what_the_summary_says(history: History, read_html: Read) -> None:
    shown = read_html(run_report.document(history)).text
    for part in ("node node-a", "8.0 – 18.0", "cpuset.cpus 38", "L3:0=f;1=f MB:0=50;1=50", "the JSON ends too early"):
        assert part in shown
    assert "shrinks 18 → 17 CPUs" in shown


def test_hostile_names_stay_text(ticks: tuple[Tick, ...], read_html: Read) -> None:
    run = History({EVIL: {EVIL: EVIL}}, {EVIL: EVIL})
    tick = tick_with(
        ticks[0],
        node=EVIL,
        because=EVIL,
        ls_pool=EVIL,
        schemata={EVIL: EVIL},
        decisions=(Decision(EVIL, "refuse", EVIL, {EVIL: EVIL}, (), EVIL),),
        applied=(AppliedStep(CgroupChange(EVIL, "cpu.quota", 1).place, EVIL, ok=False, error=EVIL),),
        foreign=(ForeignWrite(CgroupChange(EVIL, "cpu.quota", 1).place, EVIL, EVIL),),
        problems=(Problem(EVIL, EVIL, EVIL, EVIL, EVIL),),
    )
    run.add(tick)
    page = run_report.document(run, title=EVIL)
    found = read_html(page)
    assert "img" not in found.tags
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    assert page.count("<script") == 1 and f"<script>{FILTER_SCRIPT}</script>" in page


def test_a_run_without_ticks_has_a_page_too(read_html: Read) -> None:
    assert "ended before its first tick" in read_html(run_report.document(History({}, {}))).text


def test_unknown_values_leave_gaps_not_zeros(read_html: Read) -> None:
    run = History({}, {})
    for second, used in enumerate([1000, None, 2000]):
        run.add(tick_of(time=float(second), node_cpu=used, capacity_milli=4000))
    found = read_html(run_report.document(run))
    paths = [value for tag, name, value in found.attributes if (tag, name) == ("path", "d")]
    assert "M0 225M1000 150" in paths


@pytest.mark.parametrize(("count", "limit"), [(1, 10), (10, 10), (11, 10), (2000, 720), (7, 3)])
def test_thinning_keeps_the_ends_and_the_limit(history: History, count: int, limit: int) -> None:
    rows = [dataclasses.replace(history.rows[0], time=float(i)) for i in range(count)]
    chosen = run_report.thinned(rows, limit)
    assert (chosen[0], chosen[-1]) == (rows[0], rows[-1])
    assert len(chosen) <= limit + 1


def test_the_only_script_is_ours_and_allowed_by_its_hash(history: History) -> None:
    made = run_report.document(history)
    policy = f"script-src 'sha256-{page.digest(FILTER_SCRIPT)}'"
    assert str(page.escape(policy)) in made


def test_decisions_are_grouped_by_subject_and_the_newest_listed(history: History, read_html: Read) -> None:
    run = History({}, {})
    for second in range(node_parts.OF_ONE + 5):
        reason = "BECPUBudget" if second % 2 else "NoMetrics"
        said = Decision("besteffort", "hold", reason, {"n": second}, (), "cpuSuppress")
        run.add(tick_of(time=float(second), node_cpu=1, capacity_milli=4000, decisions=(said,)))
    made = node_parts.section(run)
    assert made.count('class="group"') == 1
    assert f"{node_parts.OF_ONE + 5} changes, the last at 0:34" in made
    assert f"the newest {node_parts.OF_ONE} are listed" in made
    assert made.count("<tr>") == node_parts.OF_ONE + 1
    assert "nothing was decided" in node_parts.section(History({}, {}))


def test_what_held_before_anything_was_measured_is_no_part_of_the_scale(read_html: Read) -> None:
    run = History({}, {})
    for second, (used, limit) in enumerate([(None, 32000), (1000, 4000), (2000, 6000)]):
        run.add(tick_of(time=float(second), node_cpu=used, be_limit=limit, capacity_milli=8000))
    assert [row.time for row in node_parts.measured(run.rows)] == [1.0, 2.0]
    assert "4.0 – 6.0" in read_html(run_report.document(run)).text
    assert node_parts.measured(run.rows[:1]) == run.rows[:1], "where nothing ever was, all is shown"
