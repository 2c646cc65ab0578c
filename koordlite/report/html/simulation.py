"""Simulations as one HTML page that needs nothing else: a timeline a run, on the same scales, and the numbers beside
each other."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

from koordlite.report import units
from koordlite.report.html import chart, node_parts, page
from koordlite.report.html.page import Markup, el
from koordlite.report.html.run_report import MAX_POINTS, thinned
from koordlite.report.node_figures import Figures
from koordlite.report.sentence import headline
from koordlite.report.simulation import FIGURES, Simulated, shown

MAX_DECISIONS = 60
_GAP = 2.5
"""Factor of the usual time between two rows beyond which the lines of a chart are broken."""


def document(runs: Sequence[Simulated], *, title: str) -> str:
    """The page for runs of one scenario, or of several."""
    top = max((run.history.last.figures.capacity_milli for run in runs if run.history.last), default=0)
    # Of several runs the title of each part says whose it is.
    named = [(run, f", {run.label}" if len(runs) > 1 else "") for run in runs]
    return page.page(
        title,
        _figures(runs),
        *(_timeline(run, whose, top) for run, whose in named),
        *(_expected(run, whose) for run, whose in named if run.checks),
        *(_pods(run, whose) for run, whose in named),
        *(_decisions(run, whose) for run, whose in named),
        lead=_lead(runs),
        foot="Made by koordlite simulate. The same scenario, settings and seed give this page again, byte by byte.",
    )


def _lead(runs: Sequence[Simulated]) -> list[Markup]:
    first = runs[0]
    ok = all(run.ok for run in runs)
    verdict = page.badge("as expected" if ok else "not as expected", "good" if ok else "bad")
    if len({run.label for run in runs}) > 1:
        verdict = page.badge("compared")  # What is expected was written for one configuration.
    where = f"on an emulated {first.machine}, seed {first.seed}"
    return [verdict, page.join(f" {units.clock(first.seconds)} {where}, with times since its start. {first.about}")]


def _figures(runs: Sequence[Simulated]) -> Markup:
    rows = []
    for name, words in FIGURES.items():
        values = [shown(name, run.figures.get(name)) for run in runs]
        differs = len(set(values)) > 1
        rows.append([words, *(el("strong", value) if differs else value for value in values)])
    heads = ["", *(f"{run.label}#" for run in runs)]
    note = "What differs is bold." if len(runs) > 1 else None
    return page.section("Outcome", page.table(heads, rows), note=note)


def _timeline(run: Simulated, whose: str, top: int) -> Markup:
    rows = list(_with_gaps(thinned(run.history.rows, MAX_POINTS)))
    drawing = chart.timeline(
        [row.time for row in rows],
        node_parts.use_lines(rows),
        label=f"CPU use against the limit of best effort, over time: {run.label}",
        show_time=units.clock,
        show=units.cores,
        top=top or None,
    )
    happened = [el("li", f"{units.clock(each.time)}  {each.words}") for each in run.happenings]
    events = el("ul", happened) if happened else None
    return page.section(f"CPU{whose}", drawing, events, note=node_parts.USE_NOTE)


def _with_gaps(rows: Sequence[Figures]) -> Iterator[Figures]:
    """An empty row where the agent was dead, so that no line is drawn through that time."""
    spans = [after.time - before.time for before, after in itertools.pairwise(rows)]
    usual = statistics.median(spans) if spans else 0.0
    for number, row in enumerate(rows):
        yield row
        if number + 1 < len(rows) and rows[number + 1].time - row.time > _GAP * usual:
            yield Figures(time=row.time + usual)


def _expected(run: Simulated, whose: str) -> Markup:
    rows = [
        [page.badge("holds" if each.ok else "fails", "good" if each.ok else "bad"), each.words, page.code(each.found)]
        for each in run.checks
    ]
    return page.section(f"Expected{whose}", page.table(["", "what", "found"], rows, stacked=True))


def _pods(run: Simulated, whose: str) -> Markup:
    rows = [
        [
            each.pod,
            each.qos,
            f"{each.wanted_core_hours:.2f}",
            f"{each.used_core_hours:.2f}",
            f"{each.unmet_percent:.1f} %",
            "–" if each.end is None else units.clock(each.end),
        ]
        for each in run.workloads
    ]
    heads = ["pod", "class", "wanted, core hours#", "got#", "unmet#", "gone at#"]
    return page.section(f"Pods{whose}", page.table(heads, rows))


def _decisions(run: Simulated, whose: str) -> Markup:
    events = list(run.history.decisions)[-MAX_DECISIONS:]
    rows = [[units.clock(each.time), headline(each.decision)] for each in events]
    return page.section(
        f"Last decisions{whose}", page.details(f"{len(rows)} decisions", page.table(["at", "what"], rows))
    )
