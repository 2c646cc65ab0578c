"""The live view fits its terminal, and is plain lines where there is none."""

from __future__ import annotations

import dataclasses
import io

import pytest
from reported import tick_of, tick_with
from rich.console import Console

from koordlite import changes
from koordlite.model.pod.values import Pod
from koordlite.model.status import AppliedStep
from koordlite.report.history import NOTHING, History, Remembered
from koordlite.report.terminal import screen
from koordlite.report.terminal.live import LiveView
from koordlite.report.tick import UNSEEN, Tick


def frame(ticks: tuple[Tick, ...], run: History, *, width: int, height: int = 40) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True, force_terminal=True)
    past = Remembered(tuple(run.decisions), rows=[tick.figures for tick in ticks[:-1]])
    console.print(screen.render("intel-2s-ht", ticks[-1], past, width=width, height=height))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_a_frame_fits_and_shows_everything(ticks: tuple[Tick, ...], history: History, width: int) -> None:
    lines = frame(ticks, history, width=width)
    assert max(map(len, lines)) <= width
    shown = "\n".join(lines)
    for part in (
        "node-a intel-2s-ht",
        "enforcing",
        "2026-09-21 14:17:20 UTC",
        "BE limit 16.0",
        "NUMA 0  ##··EERR bbbbbbbb",
        "6.3 cores",
    ):
        assert part in shown
    assert "resctrl BE      L3:0=f;1=f MB:0=50;1=50" in shown
    assert "BE may use 16.9 cores" in shown


@pytest.mark.parametrize(("width", "height"), [(80, 40), (80, 24), (160, 34)])
def test_a_frame_is_not_taller_than_a_usual_terminal(
    ticks: tuple[Tick, ...], history: History, width: int, height: int
) -> None:
    assert len(frame(ticks, history, width=width, height=height)) <= max(height, 36)


def test_problems_and_refusals_are_in_the_frame(ticks: tuple[Tick, ...], history: History) -> None:
    tick = tick_with(
        ticks[40],
        applied=(AppliedStep(changes.parse("kubepods/besteffort/cpuset.cpus"), "4", ok=False, error="EBUSY"),),
    )
    shown = "\n".join(frame((tick,), history, width=120))
    assert "! node/node-a: reservation" in shown
    assert "! refused: kubepods/besteffort/cpuset.cpus" in shown


def test_a_frame_of_an_agent_that_knows_nothing() -> None:
    assert frame((tick_of(time=0.0),), History({}, {}), width=80)


def test_markup_in_names_is_shown_not_obeyed(ticks: tuple[Tick, ...], history: History) -> None:
    tick = tick_with(ticks[0], node="[red]evil[/]")
    assert "[red]evil[/]" in "\n".join(frame((tick,), history, width=80))


def test_without_a_terminal_there_is_a_line_a_minute_and_one_for_each_decision(ticks: tuple[Tick, ...]) -> None:
    stream, run = io.StringIO(), History({}, {})
    view = LiveView(run, stream, title="intel-2s-ht")
    for tick in ticks[:75]:
        for part in (0.0, 0.3, 0.6):
            moved = tick_with(tick, time=tick.time + part)
            view.update(moved, run.add(moved))
    view.close()
    lines = stream.getvalue().splitlines()
    minutes = [line.split()[0] for line in lines if "CPU node" in line]
    assert minutes == ["2026-09-21T14:13:20Z", "2026-09-21T14:14:20Z", "2026-09-21T14:14:34Z"]
    assert len([line for line in lines if "BE may use" in line]) == run.decisions_seen - 1
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_the_frame_is_drawn_over(ticks: tuple[Tick, ...]) -> None:
    out, run = io.StringIO(), History({}, {})
    view = LiveView(run, console=Console(file=out, force_terminal=True, width=80, height=40), title="small")
    view.update(ticks[0])
    first = len(out.getvalue())
    view.update(ticks[1])
    view.close()
    assert "\x1b[" in out.getvalue()[first:]
    assert "node-a small" in out.getvalue()


def test_no_pod_is_dropped_without_a_word() -> None:
    pods = tuple(Pod(namespace="lab", name=f"p{number}", uid=f"p{number}") for number in range(20))
    tick = tick_of(time=0.0, snapshot=dataclasses.replace(UNSEEN, pods=pods))
    for height, said in ((30, "20 pods: koordlite top lists them"), (50, "and 10 more: koordlite top")):
        console = Console(file=io.StringIO(), width=100, height=height)
        console.print(screen.render("", tick, NOTHING, width=100, height=height))
        assert said in console.file.getvalue()  # type: ignore[attr-defined]
