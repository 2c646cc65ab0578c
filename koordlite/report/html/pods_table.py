"""The pods of a node as a section of a page: the busiest at once, the others to open."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from koordlite.report import pod_rows
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el
from koordlite.report.pod_rows import PodRow

SHOWN = 12
"""Pods of the table that is open."""
LONGEST = 140
"""Characters of a decision: the whole is in the decisions, or behind the link of its pod."""


def section(rows: Sequence[PodRow], *, link: str = "", shown: int = SHOWN, longest: int = LONGEST) -> Markup:
    """`rows` as `pods.of` gives them. With `link` each name leads to that path and the name. The first `shown` are
    open; of a decision `longest` characters are there."""
    more = rows[shown:]
    others = (
        page.details(f"{len(more)} more pod{'s' if len(more) > 1 else ''}", _table(more, link, longest))
        if more
        else None
    )
    note = "The busiest first. Pressure: the part of the last ten seconds in which some task of the pod waited."
    return page.section("Pods", _table(rows[:shown], link, longest), others, note=note if rows else None)


def _table(rows: Sequence[PodRow], link: str, longest: int) -> Markup:
    heads = [f"{column.title}{'#' if column.is_number else ''}" for column in pod_rows.COLUMNS]
    return page.table(
        heads, [_cells(row, link, longest) for row in rows], empty="no pod runs here", stacked=True, labelled=True
    )


def _cells(row: PodRow, link: str, longest: int) -> list[Child]:
    shown: dict[str, Child] = {column.key: column.show(row) for column in pod_rows.COLUMNS}
    if link:
        shown["name"] = el("a", row.name, href=f"{link}{row.name}")
    shown["decided"] = textwrap.shorten(pod_rows.decided(row), longest, placeholder=" …")
    return list(shown.values())
