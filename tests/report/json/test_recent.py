"""What `/recent` says of the last minutes."""

from __future__ import annotations

import json as jsons

from koordlite.report.history import History
from koordlite.report.json import run_report
from koordlite.report.tick import Tick


def test_rows_and_decisions_are_those_that_are_remembered(ticks: tuple[Tick, ...]) -> None:
    run = History({}, {})
    for tick in ticks:
        run.add(tick)
    document = jsons.loads(run_report.encode(run_report.recent(run.remembered())))
    assert [row["beLimit"] for row in document["rows"]] == [tick.figures.be_limit for tick in ticks]
    assert len(document["decisions"]) == min(run_report.MAX_EVENTS, len(run.decisions)) > 30
    last = document["decisions"][-1]
    assert (last["time"], last["reason"]) == (run.decisions[-1].time, run.decisions[-1].decision.reason)
