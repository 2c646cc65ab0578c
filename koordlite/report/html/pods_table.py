"""The pods of a node as a section of a page: the busiest at once, the others to open."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from koordlite.report import pods
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el
from koordlite.report.pods import PodRow

SHOWN = 12
"""Pods of the table that is open."""
_LONGEST = 140
"""Characters of a decision: the whole is in the decisions, or behind the link of its pod."""


def section(rows: Sequence[PodRow], *, link: str = "") -> Markup:
    """`rows` as `pods.of` gives them. With `link` each name leads to that path and the name."""
    more = rows[SHOWN:]
    others = page.details(f"{len(more)} more pods", _table(more, link)) if more else None
    note = "The busiest first. Pressure: the part of the last ten seconds in which some task of the pod waited."
    return page.section("Pods", _table(rows[:SHOWN], link), others, note=note if rows else None)


def _table(rows: Sequence[PodRow], link: str) -> Markup:
    heads = [f"{column.title}{'#' if column.is_number else ''}" for column in pods.COLUMNS]
    return page.table(heads, [_cells(row, link) for row in rows], empty="no pod runs here", stacked=True, labelled=True)


def _cells(row: PodRow, link: str) -> list[Child]:
    shown: dict[str, Child] = {column.key: column.show(row) for column in pods.COLUMNS}
    if link:
        shown["name"] = el("a", row.name, href=f"{link}{row.name}")
    shown["decided"] = textwrap.shorten(pods.decided(row), _LONGEST, placeholder=" …")
    return list(shown.values())
