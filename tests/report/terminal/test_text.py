"""Plain text: one screen, one line, one explanation, one undo list."""

from __future__ import annotations

from reported import tick_of, tick_with

from koordlite import changes
from koordlite.cli.undo import undo_lines
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.report import summary
from koordlite.report.history import History
from koordlite.report.terminal import status
from koordlite.report.tick import Tick


def test_status_shows_use_limit_pools_and_every_strategy_within_the_width(ticks: tuple[Tick, ...]) -> None:
    shown = status.screen(ticks[-1], width=90)
    for part in ("node-a: enforcing", "L3:0=f;1=f MB:0=50;1=50", "2-3,8-31", "cpuSuppress    enforce", "20.8 cores"):
        assert part in shown
    assert max(map(len, shown.splitlines())) <= 90


def test_status_of_an_agent_that_sees_nothing_says_so() -> None:
    shown = status.screen(tick_of(time=0.0, status="degraded", because="no metrics since 40 s"))
    assert shown.startswith("node not seen yet: degraded (no metrics since 40 s)")
    assert "–" in shown


def test_status_names_problems_refusals_and_other_writers(ticks: tuple[Tick, ...]) -> None:
    tick = tick_with(
        ticks[40],
        applied=(
            AppliedStep(changes.parse("kubepods/besteffort/cpu.quota"), "2000", ok=False, error="EINVAL: below 1 ms"),
        ),
        foreign=(ForeignWrite(changes.parse("kubepods/besteffort/cpuset.cpus"), "0-3", "0-31"),),
    )
    shown = status.screen(tick)
    assert "kubepods/besteffort/cpu.quota ← 2000: EINVAL: below 1 ms" in shown
    assert "ours was 0-3, found 0-31" in shown
    assert "the JSON ends too early" in shown


def test_undo_list_says_what_restore_writes_where() -> None:
    shown = undo_lines([("cpuset.cpus", "4-7\n", "0-31\n"), ("cpu.max", "max 100000", "max 100000")])
    assert shown == ["cpuset.cpus  '4-7' → '0-31'", "cpu.max      stays 'max 100000'"]
    assert "nothing to restore" in undo_lines([])[0]


def test_summary_is_short_and_complete(history: History) -> None:
    shown = summary.text(history.summary())
    assert "4:00, 241 ticks" in shown
    assert "writes             38 (cpuset.cpus 38), 0 refused" in shown
    assert "changed by others  1" in shown
    assert "limit of BE        8.0 – 18.0 cores" in shown


def test_summary_of_no_run() -> None:
    shown = summary.text(History({}, {}).summary())
    assert "limit of BE        unknown" in shown
    assert "would" not in shown
