"""A frame of the live view is as wide and as high as the terminal, whatever there is to say."""

from __future__ import annotations

import io

import msgspec
import pytest
from reported import tick_with
from rich.console import Console

from koordlite.model.picture.usage import Pressure, Stall
from koordlite.report.history import DecisionEvent, Remembered
from koordlite.report.terminal import screen
from koordlite.report.tick import Tick

STALL = Stall(12.0, 0.0, 0.0, 0)


def drawn(ticks: tuple[Tick, ...], width: int, height: int, *, color: bool = False) -> list[str]:
    last = tick_with(ticks[-1], pressure={"besteffort": {"cpu": Pressure(STALL, None)}})
    events = [DecisionEvent(tick.time, tick.wall, decision) for tick in ticks for decision in tick.decisions]
    past = Remembered(events, rows=[tick.figures for tick in ticks[:-1]])
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=color, no_color=not color)
    console.print(screen.render("", last, past, width=width, height=height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 40), (120, 30), (160, 45), (300, 80)])
def test_a_frame_fits_the_terminal(ticks: tuple[Tick, ...], width: int, height: int) -> None:
    lines = drawn(ticks, width, height)
    assert max(len(line.rstrip()) for line in lines) <= width
    assert len(lines) <= height


def test_a_frame_of_a_large_machine_fits_a_small_terminal(ticks: tuple[Tick, ...]) -> None:
    """Lists of CPUs and schemata are cut off before the chart, the map and the newest decisions are."""
    cells = tuple(msgspec.structs.replace(ticks[-1].cpus[0], cpu=cpu, node=cpu // 64) for cpu in range(256))
    many = ",".join(f"{cpu}-{cpu + 4}" for cpu in range(0, 256, 8))
    caches = " ".join(f"{part}:{';'.join(f'{cache}=fff' for cache in range(16))}" for part in ("L3", "MB"))
    groups = {name: f"{caches}{name}" for name in ("BE", "LS")}
    big = tick_with(ticks[-1], cpus=cells, be_cpuset=many, ls_pool=many, be_pool=many, schemata=groups)
    lines = drawn((*ticks[:-1], big), 80, 24)
    assert len(lines) <= 24
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert [part for part in ("NUMA 3", "BE may use", "…", "besteffort: ") if part not in "\n".join(lines)] == []


@pytest.mark.parametrize("width", [80, 160])
def test_a_frame_has_map_limits_pools_pressure_and_decisions(ticks: tuple[Tick, ...], width: int) -> None:
    shown = "\n".join(drawn(ticks, width, 45))
    parts = (
        "node-a",
        "NUMA 1",
        "BE may use",
        "LS shared pool",
        "BE shared pool",
        "resctrl BE",
        "pressure, BE",
        "besteffort: ",
    )
    assert [part for part in parts if part not in shown] == []


def test_every_owner_has_a_letter_so_that_the_map_reads_without_colours(ticks: tuple[Tick, ...]) -> None:
    lines = drawn(ticks, 80, 45)
    assert next(line for line in lines if line.startswith("NUMA 0")).split()[2].startswith("##")
    key = next(line for line in lines if "reserved" in line)
    assert all(part in key.replace("\N{NO-BREAK SPACE}", " ") for part in ("# reserved", "E LSE", "R LSR", "· LS only"))


def test_colours_are_there_when_they_are_wanted(ticks: tuple[Tick, ...]) -> None:
    assert any("\x1b[" in line for line in drawn(ticks, 80, 45, color=True))
    assert not any("\x1b[" in line for line in drawn(ticks, 80, 45))
