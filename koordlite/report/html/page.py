"""Self-contained HTML pages: a small element builder that escapes by construction, the pieces reports share, and the
page as it is served under a strict content security policy: no inline styles, nothing from elsewhere.

Text given as `str` is always escaped; only `Markup`, which this module makes, goes out as it is. Inline `style`
attributes become classes of the page's one style sheet, and the policy allows that sheet by its hash, as `page` has
allowed its scripts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.model import printable


def asset(name: str) -> str:
    """The text of a style sheet or script that lies beside this module, as it stands in a page."""
    return "\n" + pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")


SHEET = asset("page.css")
"""The style of the pages: one sheet, light and dark, phone and desktop."""
LIVE_SCRIPT = asset("live.js")
"""Asks the server for the page again and changes what differs, so that nothing a reader has opened, typed, chosen or
scrolled to is lost. It asks as often as `data-refresh` of the page's status line says, in seconds, and not while the
tab is hidden.

An element stays the same one while its id, or what leads its section, row or `<details>`, is the same; else it is the
next one of its kind. `open` and `hidden` are the reader's, and a `role=status` is the scripts'. After each change the
document gets the event `changed`. The style sheet is replaced as well, since its classes belong to one answer of the
server (`strict`): by an object, for the policy allows no second `<style>`, not even in one that is only parsed."""
_VOID = frozenset({"br", "hr", "meta", "link", "img", "input", "line", "path", "rect", "polyline", "polygon", "circle"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | Iterable["Child"] | None
"""Contents of an element: text, markup, numbers, or sequences of them; None is nothing."""


def el(tag: str, *children: Child, **attributes: str | int | float | None) -> Markup:
    """The element `tag`. Trailing underscores and inner ones of attribute names become nothing and hyphens:
    `class_`, `aria_label`. An attribute that is None is left out."""
    head = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = join(*children)
    if tag in _VOID and not inner:
        return Markup(f"<{tag}{head}/>")
    return Markup(f"<{tag}{head}>{inner}</{tag}>")


def join(*children: Child) -> Markup:
    """The children one after the other, escaped unless they are markup."""
    return Markup("".join(_render(child) for child in children))


def escape(text: object) -> Markup:
    """`text` made harmless in element content and in quoted attributes, and where the page is printed."""
    return Markup(html.escape(printable.lines(str(text)), quote=True))


def page(
    title: str,
    *body: Child,
    lead: Child = None,
    foot: Child = None,
    refresh_seconds: int | None = None,
    script: str = "",
) -> str:
    """A whole document with the house style inside it; light or dark as the reader's system asks.

    With `refresh_seconds` it changes in place that often (`LIVE_SCRIPT`), or is reloaded by a browser that runs no
    scripts. `script`: one more that it runs. Scripts are ours, nothing is put into them, the policy allows them by
    their hashes, and without them the page says the same.
    """
    scripts = [text for text in (script, LIVE_SCRIPT if refresh_seconds else "") if text]
    hashes = " ".join(f"'sha256-{digest(text)}'" for text in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'{f'; script-src {hashes}' if scripts else ''}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("noscript", el("meta", http_equiv="refresh", content=refresh_seconds)) if refresh_seconds else None,
        el("title", title),
        el("style", Markup(SHEET)),
    )
    state = el("p", class_="live", role="status", data_refresh=refresh_seconds) if refresh_seconds else None
    header = el("header", el("h1", title), el("p", lead, class_="lead") if lead else None)
    footer = el("footer", foot) if foot else None
    last = [el("script", Markup(text)) for text in scripts]
    return "<!doctype html>\n" + el("html", head, el("body", state, header, el("main", *body), footer, last), lang="en")


def digest(text: str) -> str:
    """The hash by which a content security policy allows a script or a style sheet."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def section(title: str, *body: Child, note: Child = None) -> Markup:
    """A titled part of the page; `note` is a line in small print under the title."""
    return el("section", el("h2", title), el("p", note, class_="note") if note else None, *body)


def tile(label: str, value: Child, note: Child = None, *, tone: str = "") -> Markup:
    """One number worth seeing first. `tone` is `good`, `bad`, `warn` or nothing."""
    small = el("div", note, class_="tile-note") if note else None
    title, number = el("div", label, class_="tile-label"), el("div", value, class_="tile-value")
    return el("div", title, number, small, class_=f"tile {tone}".rstrip())


def tiles(*items: Markup) -> Markup:
    """Tiles side by side, as many to a row as fit; five fit a desktop."""
    return el("div", *items, class_="tiles five" if len(items) == 5 else "tiles")


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    empty: str = "none",
    stacked: bool = False,
    labelled: bool = False,
) -> Markup:
    """A table; a heading that ends in `#` makes a right-aligned column.

    On a narrow screen it scrolls sideways or, when `stacked`, each row becomes a block: for rows that hold sentences.
    `labelled` shows the headings beside the cells there.
    """
    numeric = [heading.endswith("#") for heading in headings]
    head = [el("th", h.rstrip("#"), class_="num" if n else None) for h, n in zip(headings, numeric, strict=True)]
    names = [heading.rstrip("#") if labelled else None for heading in headings]
    body = []
    for row in rows:
        cells = zip(row, numeric, names, strict=True)
        body.append(el("tr", [el("td", cell, class_="num" if n else None, data_label=name) for cell, n, name in cells]))
    if not body:
        return el("p", empty, class_="note")
    whole = el("table", el("thead", el("tr", *head)), el("tbody", *body), class_="stack" if stacked else None)
    # Who uses no mouse scrolls what has the focus.
    return el("div", whole, class_="scroll", tabindex=None if stacked else 0)


def distances(zones: Mapping[int, Mapping[int, int]]) -> Markup:
    """A table of the distances between NUMA nodes; 255 is the kernel's word for unreachable."""
    rows = [(f"NUMA {here}", *(str(zones[here].get(there, "–")) for there in sorted(zones))) for here in sorted(zones)]
    return table(("distance", *(f"to {there}#" for there in sorted(zones))), rows)


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Names with their values, one under the other."""
    return el("dl", [join(el("dt", name), el("dd", value)) for name, value in pairs], class_="facts")


def refresh_link(address: str, refresh: bool) -> Markup:
    """Link to the same page with other refreshing: a page that changes is hard to read with a screen reader."""
    return el("a", "stop refreshing" if refresh else "refresh by itself", href=address)


def bar(part: float, colour: str = "var(--be)", *, mark: float | None = None) -> Markup:
    """A bar of which `part`, 0 to 1, is filled; `mark`: a line there. The figures stand beside it in words."""
    ground = el("rect", x=0, y=0, width=100, height=6, fill="var(--mark)")
    drawn = el("rect", x=0, y=0, width=round(100 * part, 1), height=6, fill=colour)
    line = el("rect", x=round(99 * min(mark, 1), 1), y=0, width=1, height=6, fill="var(--limit)") if mark else None
    return el(
        "svg", ground, drawn, line, viewBox="0 0 100 6", preserveAspectRatio="none", style=_BAR, aria_hidden="true"
    )


_BAR = "display:block;width:100%;height:8px;border-radius:4px;margin:2px 0 8px"


def badge(text: str, tone: str = "") -> Markup:
    """A short word with a coloured ground; `tone` as for `tile`."""
    return el("span", text, class_=f"badge {tone}".rstrip())


def code(text: str) -> Markup:
    """Machine words: file names, CPU lists, schemata."""
    return el("code", text)


def details(summary: Child, *body: Child, **attributes: str | int | None) -> Markup:
    """Something to open when wanted."""
    return el("details", el("summary", summary), *body, **attributes)


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, (str, int, float)):
        return escape(child)
    return "".join(_render(item) for item in child)


FILTER_SCRIPT = asset("filter.js")
"""Looks at `[data-item]` and at rows of tables in `details.group` of the section of the field. A group counts as part
of what is in it, and is open while something is looked for. On a live page what came is looked at as well. A word can
also be one of the tags in `data-item`, as a whole; a link with `data-find` puts its words into every field."""


def filter_field(label: str) -> Markup:
    """The field, invisible until the script works. At most one to a section."""
    box = el("input", type="search", data_filter="", aria_label=label, placeholder=label, autocomplete="off")
    return el("p", box, " ", el("span", role="status", class_="note"), class_="filter", hidden="")


def filter_link(text: str, words: str, to: str) -> Markup:
    """Link to the element with the id `to`; where the script works, it shows there only what has `words`."""
    return el("a", text, href=f"#{to}", data_find=words)


def filter_group(summary: str, *body: Markup, note: str = "") -> Markup:
    """A collapsed part of the list; `note` is in the summary, in small print."""
    words = [el("b", summary), el("span", f" {note}", class_="note") if note else None]
    return el("details", el("summary", words), *body, class_="group")


_TAG = re.compile(r"<[a-z][^<>]*? style=\"[^<>]*>")
_STYLE = re.compile(r' style="([^"]*)"')
_CLASS = re.compile(r' class="([^"]*)"')
_SHEET = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_META = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"<>]*)"/>')
_SCRIPTS = re.compile(r"; (script-src [^;]*)")


class Strict(msgspec.Struct, frozen=True):
    """A page and the policy it is served under."""

    text: str
    policy: str
    """Value of the header Content-Security-Policy."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return {"Content-Security-Policy": self.policy, "Referrer-Policy": "no-referrer"}


def strict(document: str, *, forms: bool = False) -> Strict:
    """`document`, made by `page.page`, without inline styles. `forms`: it may ask its own server by forms; its scripts
    always may.

    Text and attributes are escaped in such a page, so what looks like a tag is one.
    """
    names: dict[str, str] = {}
    body = _TAG.sub(lambda match: _classed(match[0], names), document)
    rules = "".join(f".{name}.{name}.{name}{{{html.unescape(style)}}}\n" for style, name in names.items())
    body = _SHEET.sub(lambda match: f"<style>{match[1]}{rules}</style>", body, count=1)
    return Strict(_META.sub("", body, count=1), _strict_policy(body, forms=forms))


def _classed(tag: str, names: dict[str, str]) -> str:
    """The tag with a class in place of its style."""
    style = _STYLE.search(tag)
    if style is None:
        return tag
    name = names.setdefault(style[1], f"i{len(names)}")
    tag = _STYLE.sub("", tag, count=1)
    if _CLASS.search(tag):
        return _CLASS.sub(lambda match: f' class="{match[1]} {name}"', tag, count=1)
    return re.sub(r"^<[a-z0-9]+", lambda match: f'{match[0]} class="{name}"', tag)


def _strict_policy(document: str, *, forms: bool) -> str:
    sheet, policy = _SHEET.search(document), _META.search(document)
    style = f"'sha256-{digest(sheet[1])}'" if sheet else "'none'"
    action = "'self'" if forms else "'none'"
    scripts = _SCRIPTS.search(html.unescape(policy[1])) if policy else None
    runs = f"; {scripts[1]}; connect-src 'self'" if scripts else ""
    return f"default-src 'none'; style-src {style}; base-uri 'none'; form-action {action}; frame-ancestors 'none'{runs}"
