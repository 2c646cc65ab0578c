"""The status screen: one line a strategy, idle ones together, within the width, colours only when asked for."""

from __future__ import annotations

import pytest
from reported import tick_of, tick_with

from koordlite.model.decision import Decision
from koordlite.model.status import Pause
from koordlite.report.terminal import status
from koordlite.report.tick import Tick

IDLE = Decision("node", "hold", "BurstOff", strategy="cpuBurst")
SHRINK = Decision("besteffort", "shrink", "Disabled", strategy="cpuSuppress")
HOLD = Decision("besteffort", "hold", "Disabled", strategy="cpuSuppress")
TICK = tick_of(
    time=0.0,
    node="n",
    status="enforcing",
    modes={"cpuSuppress": "enforce", "cpuBurst": "observe", "resctrl": "off"},
    decisions=(HOLD, SHRINK, IDLE),
)


def test_the_weightiest_decision_of_a_strategy_is_shown_and_the_others_counted() -> None:
    line = next(line for line in status.screen(TICK).splitlines() if "cpuSuppress" in line)
    assert "enforce shrink besteffort:" in line
    assert line.endswith("(and 1 more)")


def test_strategies_without_anything_to_do_and_those_switched_off_are_only_named() -> None:
    shown = status.screen(TICK)
    assert "nothing to do  cpuBurst" in shown
    assert "off            resctrl" in shown


@pytest.mark.parametrize("width", [60, 80, 160])
def test_it_stays_within_the_width(ticks: tuple[Tick, ...], width: int) -> None:
    assert max(map(len, status.screen(ticks[-1], width=width).splitlines())) <= width


def test_many_idle_strategies_are_counted_where_their_names_would_fill_the_screen() -> None:
    names = [f"strategyNumber{number}" for number in range(12)]
    idle = tuple(Decision("node", "hold", "BurstOff", strategy=name) for name in names)
    tick = tick_of(time=0.0, modes=dict.fromkeys(names, "observe"), decisions=idle)
    assert "12 strategies, see koordlite explain NAME" in status.screen(tick, width=80)
    assert "strategyNumber11" in status.screen(tick, width=400)


def test_equal_groups_of_resctrl_share_a_line() -> None:
    tick = tick_of(time=0.0, schemata={"(root)": "L3:0=f", "LS": "L3:0=f", "BE": "L3:0=1"})
    lines = [line.split() for line in status.screen(tick).splitlines() if "resctrl" in line]
    assert lines == [["resctrl", "(root),", "LS", "L3:0=f"], ["resctrl", "BE", "L3:0=1"]]


def test_colours_only_when_asked_for() -> None:
    assert "\x1b[32menforcing\x1b[0m" in status.screen(TICK, color=True)
    assert "\x1b" not in status.screen(TICK)


def test_a_pause_is_told_with_its_end_and_its_reason() -> None:
    pause = Pause(until=7200.0, because="upgrade of the kernel")
    shown = status.screen(tick_with(TICK, status="paused", pause=pause))
    assert "upgrade of the kernel" in " ".join(shown.split())
