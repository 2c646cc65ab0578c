"""Simulations as JSON. Version 1; CPU in millicores unless the name says otherwise, time in simulated seconds.

version      1
kind         "koordlite-simulation"
runs         one, or those that are compared:
  name       of the scenario
  label      of the configuration
  about machine seconds seed ok
  figures    the numbers runs are compared by
  expected   words, found, ok
  happenings time, words
  pods       pod, qos, wantedCoreHours, usedCoreHours, unmetPercent, end (null: to the end), restarts
  ticks decisions writes foreign problems  as in the report of a run
"""

from __future__ import annotations

from collections.abc import Sequence

from koordlite.report.json import run_report
from koordlite.report.json.run_report import Object
from koordlite.report.simulation import Simulated, Workload

VERSION = 1


def document(runs: Sequence[Simulated]) -> Object:
    """All runs, as plain values."""
    return {"version": VERSION, "kind": "koordlite-simulation", "runs": [_run(run) for run in runs]}


def _run(run: Simulated) -> Object:
    whole = run_report.document(run.history)
    return {
        "name": run.name,
        "label": run.label,
        "about": run.about,
        "machine": run.machine,
        "seconds": run.seconds,
        "seed": run.seed,
        "ok": run.ok,
        "figures": dict(run.figures),
        "expected": [run_report.fields(check) for check in run.checks],
        "happenings": [run_report.fields(each) for each in run.happenings],
        "pods": [_pod(workload) for workload in run.workloads],
        **{part: whole[part] for part in ("ticks", "decisions", "writes", "foreign", "problems")},
    }


def _pod(workload: Workload) -> Object:
    return {**run_report.fields(workload), "unmetPercent": workload.unmet_percent}
