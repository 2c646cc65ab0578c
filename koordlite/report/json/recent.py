"""The last minutes of a running agent as JSON: what `/recent` serves.

version    1
kind       "koordlite-recent"
rows       numbers of the last ticks: time, nodeCpu, prodCpu, beCpu, beLimit, beBudget, batchCpu, batchMemory,
           thresholdMilli; wouldLimit, wouldBatchCpu, wouldBatchMemory while the strategy only observes
decisions  recent decisions, the newest last: time, wall, because (whose use moved a budget, else empty), and the
           decision as in `/state`
"""

from __future__ import annotations

from typing import Any

from koordlite.report.json import run_report
from koordlite.report.past import Remembered

MAX_EVENTS = 50


def document(past: Remembered) -> dict[str, Any]:
    """What `/recent` serves."""
    events = list(past.events)[-MAX_EVENTS:]
    return {
        "version": run_report.VERSION,
        "kind": "koordlite-recent",
        "rows": [run_report.fields(row) for row in past.rows],
        "decisions": [{"wall": event.wall, **run_report.event(event)} for event in events],
    }
