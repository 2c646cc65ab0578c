"""The committed results, and the figure that leads the README: made from each other."""

from __future__ import annotations

import pathlib

from tests.perf.colocation import page, results

ROOT = pathlib.Path(__file__).parents[2]
MEASURED = ROOT / "tests/perf/colocation/measured.jsonl"


def test_the_figure_is_what_the_command_makes_of_the_results() -> None:
    table = results.rows(results.Results(MEASURED).kept())
    made = page.summary(page.TITLE, table, only=page.LEADING)
    do = "make it again: python -m tests.perf.colocation --report-only --results tests/perf/colocation/measured.jsonl"
    assert (ROOT / "docs/images/colocation.svg").read_text() == made, f"{do} --figure docs/images/colocation.svg"


def test_the_tour_and_the_readme_lead_with_it() -> None:
    assert "docs/images/colocation.svg" in (ROOT / "README.md").read_text().partition("## ")[0]
    tour = (ROOT / "scripts/tour").read_text()
    assert tour.index("measured.jsonl") < tour.index("koordlite")
    assert all(f'"{name}"' in tour for name in page.LEADING)
