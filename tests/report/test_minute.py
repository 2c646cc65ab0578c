"""The line a minute: the first tick at once, then what varied since the last line."""

from __future__ import annotations

from reported import tick_of

from koordlite import changes
from koordlite.model.status import AppliedStep
from koordlite.report.terminal.decision_log import Minutes
from koordlite.report.tick import Tick

STEPS = (
    AppliedStep(changes.parse("a/cpu.quota"), "1"),
    AppliedStep(changes.parse("b/cpu.quota"), "1", ok=False, error="EINVAL"),
)


def tick(second: float, node: int | None = None, **fields: int | None) -> Tick:
    return tick_of(time=second, node_cpu=node, be_limit=32000, applied=STEPS, **fields)  # type: ignore[arg-type]


def test_a_line_at_once_and_then_one_a_minute_with_rounds_between_ticks() -> None:
    minutes = Minutes()
    said = [minutes.add(tick(step / 4, 1000 * (step // 4)), 1) for step in range(4 * 150)]
    lines = [(step / 4, line) for step, line in enumerate(said) if line]
    assert [second for second, _ in lines] == [0.0, 60.0, 120.0]
    assert "CPU node 0.0 – 60.0  LS unknown  BE unknown of 32.0  may request nothing" in lines[1][1]
    assert lines[1][1].endswith("decisions 240 new  writes 240  refused 240")
    assert minutes.rest().startswith("observing  CPU node ")
    assert minutes.rest() == ""


def test_what_would_hold_stands_beside_what_holds() -> None:
    minutes = Minutes()
    minutes.add(tick(0.0), 0)
    minutes.add(tick(30.0, would_limit=14000, would_batch_cpu=6000), 0)
    shown = minutes.add(tick(60.0, would_limit=2000, would_batch_cpu=7000), 0)
    assert "of 32.0 (would be limited to 2.0 – 14.0)  may request nothing (would be offered 6.0 – 7.0)" in shown
