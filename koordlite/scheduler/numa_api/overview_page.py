"""The cluster by NUMA node: one row a node, one cell a NUMA node; filtered, sorted and cut into pages by the server."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from koordlite.model.slo.settings import NUMAPolicy
from koordlite.report import units
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el
from koordlite.scheduler.numa_api.charts import NOT_MEASURED, Usage, Use
from koordlite.scheduler.numa_api.view import NodeView, Zone

REFRESH_SECONDS = 30
MOST_ROWS, MOST_CELLS = 100, 800
"""Maximum numbers on one page: of nodes with many NUMA nodes there are fewer rows."""
MOST_ZONES = 16
_STEPS = 10
"""Shades of a cell."""
SHOW = {"all": "all nodes", "violations": "with violations", "stale": "not up to date", "no report": "without a report"}
SORT = {"violations": "most violations", "name": "name", "cpu": "fullest CPUs", "memory": "fullest memory"}
TONES = {"ok": "good", "stale": "warn", "unreadable": "bad", "no report": ""}
T = TypeVar("T")


class Selection(msgspec.Struct, frozen=True):
    """Selection of nodes, their order, and the part that is shown."""

    text: str = ""
    """Part of the name of a node, or of a pod there."""
    show: str = "all"
    sort: str = "violations"
    page: int = 1
    refresh: bool = True
    """True where the page reloads by itself."""

    @classmethod
    def of(cls, query: Mapping[str, str], show: Mapping[str, str], sort: Mapping[str, str]) -> Selection:
        """Out of query parameters; unknown words count as not given, which means the first of those that there are."""
        number = query.get("page", "")
        return cls(
            query.get("q", "").strip(),
            query["show"] if query.get("show") in show else next(iter(show)),
            query["sort"] if query.get("sort") in sort else next(iter(sort)),
            max(1, int(number)) if number.isascii() and number.isdigit() and len(number) < 7 else 1,
            query.get("refresh") != "off",
        )

    def link(self, number: int, *, refresh: bool | None = None) -> str:
        """Address of another part, or of this one with other reloading."""
        off = not (self.refresh if refresh is None else refresh)
        words = {"q": self.text, "show": self.show, "sort": self.sort, "page": str(number)}
        words["refresh"] = "off" if off else ""
        return "?" + urllib.parse.urlencode({name: word for name, word in words.items() if word})


def document(
    nodes: Collection[NodeView],
    selection: Selection,
    now: float,
    *,
    problem: str = "",
    policies: NUMAPolicy | None = None,
    usage: Usage | None = None,
) -> str:
    """The page at `now`, in seconds since the epoch. `problem`: why the whole may be out of date. `policies`: None
    where they were not read. `usage`: None where nobody can be asked for it."""
    selected = select(nodes, selection, now)
    more = {
        "last night of every node": "numa/nights",
        "violations (JSON)": "rest/scheduling/v1/numa/violations",
        "interface (OpenAPI)": "rest/scheduling/v1/openapi.json",
        "nodes (JSON)": "rest/scheduling/v1/numa/nodes",
    }
    links = [el("li", el("a", text, href=address)) for text, address in more.items()]
    return page.page(
        "NUMA nodes of the cluster",
        out_of_date(problem),
        _tiles(nodes, now),
        _policies(policies),
        form(selection, SHOW, SORT, hint="node or pod"),
        _table(selected, selection, now, usage or {}, is_known=bool(nodes)),
        _violations(selected, now),
        page.section("More", el("ul", links, class_="legend")),
        lead=[
            "CPU and memory of each NUMA node that pods have taken, and pods that are not where they were promised; ",
            page.refresh_link(selection.link(selection.page, refresh=not selection.refresh), selection.refresh),
        ],
        foot="From NodeResourceTopologies; every number is also at /rest/scheduling/v1/numa/nodes.",
        refresh_seconds=REFRESH_SECONDS if selection.refresh else None,
    )


def out_of_date(problem: str) -> Markup | None:
    """Reason why a page cannot be believed; nothing where there is none."""
    return page.section("Out of date", el("p", page.badge("stale", "warn"), f" {problem}")) if problem else None


def select(nodes: Collection[NodeView], selection: Selection, now: float) -> list[NodeView]:
    """The nodes that `selection` is about, in its order."""
    keep: dict[str, Callable[[NodeView], bool]] = {
        "all": lambda node: True,
        "violations": lambda node: bool(node.findings),
        "stale": lambda node: node.state(now) in ("stale", "unreadable"),
        "no report": lambda node: not node.has_report,
    }
    key: dict[str, Callable[[NodeView], Any]] = {
        "name": lambda node: node.name,
        "violations": lambda node: (-len(node.findings), node.name),
        "cpu": lambda node: (-_fullest(zone.cpu_part for zone in node.zones), node.name),
        "memory": lambda node: (-_fullest(zone.memory_part for zone in node.zones), node.name),
    }
    selected = [node for node in nodes if keep[selection.show](node)]
    selected = [node for node in selected if any(selection.text in name for name in (node.name, *node.pods))]
    return sorted(selected, key=key[selection.sort])


def _fullest(parts: Any) -> float:
    return max((part for part in parts if part is not None), default=-1.0)


def _tiles(nodes: Collection[NodeView], now: float) -> Markup:
    states = [node.state(now) for node in nodes]
    zones = [zone for node in nodes for zone in node.zones]
    total = sum(zone.cpu_total or 0 for zone in zones)
    free = sum(zone.cpu_left or 0 for zone in zones if zone.cpu_total)
    wrong = sum(len(node.findings) for node, state in zip(nodes, states, strict=True) if state == "ok")
    old = len(states) - states.count("ok") - states.count("no report")
    calm = "good" if "ok" in states else ""
    used = f"{100 * (1 - free / total):.0f} %" if total else "–"
    return page.tiles(
        page.tile("Nodes", len(nodes), f"{states.count('no report')} without a report"),
        page.tile("NUMA nodes", len(zones), f"CPUs taken: {used}"),
        page.tile("Violations", wrong, "promises that do not hold", tone="bad" if wrong else calm),
        page.tile("Not up to date", old, "stale or unreadable reports", tone="warn" if old else calm),
    )


def form(selection: Selection, shows: Mapping[str, str], sorts: Mapping[str, str], *, hint: str) -> Markup:
    """Works without scripts: the server filters and sorts."""
    field = el(
        "input",
        type="search",
        name="q",
        value=selection.text,
        placeholder=hint,
        aria_label=f"part of the name of a {hint}",
    )
    show, sort = (
        el(
            "select",
            [el("option", text, value=word, selected="selected" if word == chosen else None) for word, text in words],
            name=name,
            aria_label=name,
        )
        for name, words, chosen in (("show", shows.items(), selection.show), ("sort", sorts.items(), selection.sort))
    )
    everything = el("a", "show all", href="?") if selection != Selection.of({}, shows, sorts) else None
    refresh = None if selection.refresh else el("input", type="hidden", name="refresh", value="off")
    children = (field, " ", show, " ", sort, " ", refresh, el("button", "show"), " ", everything)
    return el("form", *children, method="get", style="margin:0 0 16px")


def _table(nodes: Sequence[NodeView], selection: Selection, now: float, usage: Usage, *, is_known: bool) -> Markup:
    widest = min(MOST_ZONES, max((len(node.zones) for node in nodes), default=1) or 1)
    page_nodes, where = part(nodes, selection, min(MOST_ROWS, MOST_CELLS // widest))
    empty = "no node matches" if is_known else "the API server knows no nodes, or they were not listed yet"
    ids = sorted({zone.id for node in page_nodes for zone in node.zones})[:MOST_ZONES]
    heads = ("node", *(f"NUMA {zone}" for zone in ids), "violations#", "report")
    table = page.table(heads, [_row(node, ids, now, usage.get(node.name, {})) for node in page_nodes], empty=empty)
    note = f"{len(nodes)} nodes. In each cell: CPU taken, then memory taken"
    note += "; below, where measured, what is in use." if usage else "."
    return page.section("Nodes by NUMA node", table, where, note=note)


def part(rows: Sequence[T], selection: Selection, rows_each: int) -> tuple[Sequence[T], Markup | None]:
    """The rows of the part that is asked for, and where it lies among the others, with links to them."""
    pages = max(1, math.ceil(len(rows) / rows_each))
    number = min(selection.page, pages)
    steps = [("first", 1), ("previous", number - 1)] if number > 1 else []
    steps += [("next", number + 1), ("last", pages)] if number < pages else []
    links = [[" ", el("a", text, href=selection.link(to))] for text, to in steps]
    where = el("p", f"Page {number} of {pages} ", links, class_="note") if pages > 1 else None
    return rows[(number - 1) * rows_each : number * rows_each], where


def _row(node: NodeView, ids: Sequence[int], now: float, use: Mapping[int, Use]) -> tuple[Child, ...]:
    zones, state = {zone.id: zone for zone in node.zones}, node.state(now)
    name = el("a", node.name, href=node_link(node.name))
    count = page.badge(str(len(node.findings)), "bad") if node.findings else "0"
    cells = [_cell(zones.get(number), use.get(number, NOT_MEASURED)) for number in ids]
    return name, *cells, count, page.badge(state, TONES[state])


def _cell(zone: Zone | None, use: Use) -> Child:
    if zone is None:
        return None
    parts = [] if use.cpu_cores is None else [f"{use.cpu_cores:.1f} cores"]
    parts += [] if use.memory_bytes is None else [units.size(int(use.memory_bytes))]
    words = el("div", ", ".join(parts), class_="tile-note") if parts else None
    return [_shaded(zone.cpu_part), " ", _shaded(zone.memory_part), words]


def _shaded(part: float | None) -> Markup:
    words = "–" if part is None else f"{100 * part:.0f} %"
    box = "display:inline-block;min-width:3.6em;padding:2px 4px;border-radius:4px;text-align:center;margin:1px 0"
    return el("span", words, style=f"{shade(part)};{box}")


def shade(part: float | None) -> str:
    """Shade in steps, so that a page of many cells has a handful of styles; never so strong that numbers are hard to
    read."""
    percent = 0 if part is None else round(part * _STEPS) * 45 // 10
    return f"background:color-mix(in srgb, var(--be) {percent}%, var(--mark))"


def node_link(name: str) -> str:
    """Address of a node's page, from the overview."""
    return f"numa/nodes/{urllib.parse.quote(name, safe='')}"


def _violations(nodes: Sequence[NodeView], now: float) -> Markup:
    listed = [(node, each) for node in nodes if node.state(now) == "ok" for each in node.findings]
    rows = [
        (el("a", node.name, href=node_link(node.name)), each.key, *finding(each.violation))
        for node, each in listed[:MOST_ROWS]
    ]
    note = f"The first {MOST_ROWS} of {len(listed)}." if len(listed) > MOST_ROWS else None
    current = sum(node.state(now) == "ok" for node in nodes)
    holds = f"every promise holds on the {current} nodes with an up-to-date report"
    empty = holds if current else "no node can be judged"
    table = page.table(("node", "pod", "what is wrong", "facts"), rows, empty=empty, stacked=True)
    return page.section("Violations", table, note=note)


def finding(wrong: Any) -> tuple[Child, Child]:
    """A violation's word with its colour, and its facts."""
    tone = {"hard": "bad", "fixable": "warn", "exposed": ""}[wrong.severity]
    where = "" if wrong.container == "*" else f"{wrong.container}: "
    facts = ", ".join(f"{name} {value}" for name, value in wrong.evidence.items())
    return page.badge(wrong.reason, tone), f"{where}{facts}"


def _policies(policies: NUMAPolicy | None) -> Markup:
    """Switches of this project; Volcano's is asked about only on its own page."""
    badges = {None: ("not read", "warn"), True: ("open", "good"), False: ("closed", "")}
    states = {
        "optimal NUMA distance": policies.distance if policies else None,
        "affinity of pods": policies.pod_affinity if policies else None,
    }
    items = [el("li", f"{name}: ", page.badge(*badges[state])) for name, state in states.items()]
    link = el("li", el("a", "all policies, and their switches", href="numa/policies"))
    return page.section("Policies", el("ul", items, link, class_="legend"))
