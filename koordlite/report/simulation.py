"""The outcome of a simulation, as values, as text and as JSON.

As JSON, version 1: CPU in millicores unless the name says otherwise, time in simulated seconds.

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

from collections.abc import Mapping, Sequence

import msgspec

from koordlite.report import node_figures, paragraph, units
from koordlite.report.history import History
from koordlite.report.json import run_report
from koordlite.report.json.run_report import Object

Figures = Mapping[str, float | None]
"""The numbers two runs are compared by: name → value, None where there is none."""

FIGURES = {
    "beCoreHoursUsed": "core hours best effort used",
    "beCoreHoursAllowed": "core hours best effort was allowed",
    "beCoreHoursBudget": "core hours the formula left it",
    "beOfBudgetPercent": "what it used of these, %",
    "beLimitCoresMin": "its lowest limit, cores",
    "beLimitCoresMean": "its average limit, cores",
    "batchCoresMean": "what it may request, on average, cores",
    "unmetPercent": "CPU time that other pods wanted and did not get, %",
    "aboveThresholdSeconds": "seconds the node used more than the threshold",
    "wellAboveThresholdSeconds": f"of these {node_figures.WELL} ({node_figures.WHY})",
    "lsAboveThresholdSeconds": "seconds other pods alone used more than that",
    "writes": "writes",
    "refusedWrites": "writes refused",
    "foreignWrites": "values changed by others",
    "evictions": "pods evicted",
    "restarts": "containers killed by the kernel",
}
"""Name → what it counts, in the order of reports."""


class ExpectationResult(msgspec.Struct, frozen=True):
    """An expectation and what was found."""

    words: str
    found: str
    ok: bool


class Happening(msgspec.Struct, frozen=True):
    """Something the scenario did."""

    time: float
    words: str


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time that a pod wanted and got, over its whole life in the simulation."""

    pod: str
    """NAMESPACE/NAME."""
    qos: str
    wanted_core_hours: float
    used_core_hours: float
    end: float | None = None
    """Time at which it was last seen, where that is not the end."""
    restarts: int = 0

    @property
    def unmet_percent(self) -> float:
        """Part of what it wanted that it did not get."""
        unmet = self.wanted_core_hours - self.used_core_hours
        return 100 * unmet / self.wanted_core_hours if self.wanted_core_hours else 0.0


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    name: str
    about: str
    label: str
    """The configuration's name, where two are compared."""
    machine: str
    seconds: float
    seed: int
    history: History
    workloads: tuple[Workload, ...]
    happenings: tuple[Happening, ...]
    checks: tuple[ExpectationResult, ...]
    figures: Figures

    @property
    def ok(self) -> bool:
        """True when everything came out as expected."""
        return all(check.ok for check in self.checks)


def text(run: Simulated, *, width: int = 100) -> str:
    """One run for a terminal."""
    lines = [
        f"{run.name}: {units.clock(run.seconds)} on {run.machine}, seed {run.seed}",
        *paragraph.wrap(run.about, width - 2, first="  "),
        *_section("what happened", [f"{units.clock(h.time):>8}  {h.words}" for h in run.happenings]),
        *_section("outcome", [f"{shown(name, run.figures.get(name)):>9}  {words}" for name, words in FIGURES.items()]),
        *_section("pods", [_pod(workload) for workload in run.workloads]),
        *_section("expected", [_check(check) for check in run.checks]),
        *_section("problems", [f"{units.clock(time):>8}  {problem}" for problem, time in run.history.problems.items()]),
    ]
    return "\n".join(lines) + "\n"


def compared(runs: Sequence[Simulated]) -> str:
    """Runs of one scenario side by side; what differs is marked."""
    first = runs[0]
    wide = max(len(words) for words in FIGURES.values()) + 2
    columns = [max(10, len(run.label) + 2) for run in runs]
    heads = "".join(f"{run.label:>{column}}" for run, column in zip(runs, columns, strict=True))
    lines = [f"{first.name}: {units.clock(first.seconds)} on {first.machine}, seed {first.seed}", ""]
    lines.append(f"  {'':<{wide}}{heads}")
    for name, words in FIGURES.items():
        values = [shown(name, run.figures.get(name)) for run in runs]
        cells = "".join(f"{value:>{column}}" for value, column in zip(values, columns, strict=True))
        lines.append(f"  {words:<{wide}}{cells}{'  *' if len(set(values)) > 1 else ''}")
    for run in runs:
        lines += _section(f"expected, {run.label}", [_check(check) for check in run.checks])
    return "\n".join(lines) + "\n"


def shown(name: str, value: float | None) -> str:
    """A figure as people read it: hours, cores and percent with decimals, the rest whole."""
    if value is None:
        return "–"
    return f"{value:.2f}" if "Core" in name or "core" in name or "Percent" in name else f"{value:.0f}"


def _pod(workload: Workload) -> str:
    ended = f", gone at {units.clock(workload.end)}" if workload.end is not None else ""
    killed = f", killed {workload.restarts} times" if workload.restarts else ""
    used, demand = workload.used_core_hours, workload.wanted_core_hours
    got = f"{used:8.2f} of {demand:8.2f} core hours, {workload.unmet_percent:5.1f} % unmet"
    return f"{workload.pod:<24} {workload.qos:<6} {got}{ended}{killed}"


def _check(check: ExpectationResult) -> str:
    return f"{'holds' if check.ok else 'FAILS':<6} {check.words}: {check.found}"


def _section(title: str, rows: Sequence[str]) -> list[str]:
    return ["", f"  {title}", *(f"    {row}" for row in rows)] if rows else []


VERSION = 1


def document(runs: Sequence[Simulated]) -> Object:
    """All runs, as plain values."""
    return {"version": VERSION, "kind": "koordlite-simulation", "runs": [_document(run) for run in runs]}


def _document(run: Simulated) -> Object:
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
        "pods": [{**run_report.fields(each), "unmetPercent": each.unmet_percent} for each in run.workloads],
        **{part: whole[part] for part in ("ticks", "decisions", "writes", "foreign", "problems")},
    }
