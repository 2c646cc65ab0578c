"""A field that hides what does not have the words typed into it, in a page without a server."""

from __future__ import annotations

from koordlite.report.html.page import Markup, asset, el

SCRIPT = asset("filter.js")
"""Looks at `[data-item]` and at rows of tables in `details.group` of the section of the field. A group counts as part
of what is in it, and is open while something is looked for. On a live page what came is looked at as well. A word can
also be one of the tags in `data-item`, as a whole; a link with `data-find` puts its words into every field."""


def field(label: str) -> Markup:
    """The field, invisible until the script works. At most one to a section."""
    box = el("input", type="search", data_filter="", aria_label=label, placeholder=label, autocomplete="off")
    return el("p", box, " ", el("span", role="status", class_="note"), class_="filter", hidden="")


def link(text: str, words: str, to: str) -> Markup:
    """To the element with the id `to`; where the script works, it shows there only what has `words`."""
    return el("a", text, href=f"#{to}", data_find=words)


def group(summary: str, *body: Markup, note: str = "") -> Markup:
    """A collapsed part of the list; `note` is in the summary, in small print."""
    words = [el("b", summary), el("span", f" {note}", class_="note") if note else None]
    return el("details", el("summary", words), *body, class_="group")
