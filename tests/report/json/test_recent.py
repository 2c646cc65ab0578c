"""What `/recent` says of the last minutes."""

from __future__ import annotations

import json as jsons

from koordlite.report.history import History, Past
from koordlite.report.json import run_report
from koordlite.report.tick import Tick


def test_rows_and_decisions_are_those_that_are_remembered(ticks: tuple[Tick, ...]) -> None:
    past, run = Past(), History({}, {})
    for tick in ticks:
        past.add(tick, run.add(tick))
    document = jsons.loads(run_report.encode(run_report.recent(past.remembered())))
    assert [row["beLimit"] for row in document["rows"]] == [tick.figures.be_limit for tick in ticks]
    assert len(document["decisions"]) == min(run_report.MAX_EVENTS, len(run.decisions)) > 30
    last = document["decisions"][-1]
    assert (last["time"], last["reason"]) == (run.decisions[-1].time, run.decisions[-1].decision.reason)
