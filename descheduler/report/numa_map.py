"""CPUs by NUMA node: one node drawn with whose they are and which of them a misplaced pod runs on, and all nodes × NUMA
zones as a heat map.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Mapping, Sequence

import msgspec

from descheduler.framework import NodeView
from descheduler.plan import EvictionPlan, NodeChange, Outcome
from koordlite.model import cpuset
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el

_CELL, _GAP, _COLUMNS, _LABEL = 26, 4, 16, 92
_STEP = _CELL + _GAP
_ZONE_GAP = 10
COLOURS = {
    "reserved": "var(--reserved)",
    "exclusive": "var(--lse)",
    "shared": "var(--ls)",
    "shared with BE": "var(--both)",
}


class _Cell(msgspec.Struct, frozen=True):
    """A CPU as it is drawn."""

    use: str
    words: str = ""
    ring: str = ""
    """Colour of what is drawn around it; empty: nothing, and the cell is pale."""
    number: str = ""


def draw(node: NodeView, wrong: Sequence[Outcome]) -> Markup:
    """The node as SVG, cells by NUMA node. CPUs of pods that have to move are ringed; if none has to, of the others."""
    hard = [outcome for outcome in wrong if outcome.main.severity == "hard"]
    holders = {outcome.pod.key: cpus_at_fault(outcome) for outcome in hard or wrong}
    zones = []
    for zone in node.topology.nodes:
        cells = []
        for cpu in zone.cpus:
            pods, use = ", ".join(pod for pod, cpus in holders.items() if cpu in cpus), use_of(cpu, node)
            words = f"CPU {cpu}: {use}{f', held by {pods}' if pods else ''}"
            cells.append(_Cell(use, words, "var(--bad)" if pods else "", str(cpu)))
        zones.append((zone.id, cells))
    return _drawing(f"CPUs of {node.name} by NUMA node", zones)


def draw_counts(change: NodeChange, coming: Sequence[Outcome]) -> Markup:
    """A node's CPUs after the plan, as many cells of each use as there will be; which ones these are, nobody knows yet.
    `coming`: the pods that the plan counts on this node for."""
    zones = []
    for zone in change.zones:
        arrive = []
        for outcome in coming:
            places = outcome.search.places if outcome.search else ()
            bookings = next((place.bookings for place in places if place.node == change.node), ())
            booked = sum(amounts["cpu"].value for at, amounts in bookings if at == zone.zone and "cpu" in amounts)
            arrive += [_Cell("exclusive", f"comes: {outcome.pod.key}", "var(--good)")] * booked
        stay = [_Cell("exclusive")] * (zone.after.exclusive - len(arrive))
        reserved, shared = [_Cell("reserved")] * zone.reserved, [_Cell("shared")] * zone.after.shared
        zones.append((zone.zone, [*reserved, *stay, *arrive, *shared]))
    return _drawing(f"number of CPUs of {change.node} by NUMA node after the plan", zones)


def _drawing(label: str, zones: Sequence[tuple[int, Sequence[_Cell]]]) -> Markup:
    """Cells in rows, NUMA node under NUMA node."""
    columns = min(_COLUMNS, max((len(cells) for _, cells in zones), default=1))
    width, top, rows = _LABEL + max(1, columns) * _STEP, 4, []
    for zone, cells in zones:
        rows.append(el("text", f"NUMA {zone}", x=0, y=top + _CELL / 2 + 4, font_size=13, fill="var(--soft)"))
        for place, cell in enumerate(cells):
            row, column = divmod(place, _COLUMNS)
            rows.append(_draw_cell(cell, _LABEL + column * _STEP, top + row * _STEP))
        top += max(1, -(-len(cells) // _COLUMNS)) * _STEP + _ZONE_GAP
    return el(
        "svg",
        rows,
        viewBox=f"0 0 {width} {top}",
        width=width,
        height=top,
        role="img",
        aria_label=label,
        style="max-width:100%;height:auto;display:block",
    )


def cpus_at_fault(outcome: Outcome) -> CPUSet:
    """CPUs of the containers that something is wrong with."""
    blamed = {finding.container for finding in outcome.findings}
    return cpuset.union(c.cpuset for c in outcome.pod.containers if c.container in blamed or "*" in blamed)


def _draw_cell(cell: _Cell, x: int, y: int) -> Markup:
    place = {"x": x, "y": y, "width": _CELL, "height": _CELL, "rx": 4}
    box = el("rect", fill=COLOURS[cell.use], fill_opacity=1 if cell.ring else 0.35, **place)
    ring = el("rect", fill="none", stroke=cell.ring, stroke_width=3, **place) if cell.ring else None
    middle = {"x": x + _CELL / 2, "y": y + _CELL / 2 + 4}
    ink = "var(--card)" if cell.ring else "var(--ink)"
    number = el("text", cell.number, font_size=11, text_anchor="middle", fill=ink, **middle) if cell.number else None
    return el("g", el("title", cell.words or cell.use), box, ring, number)


def use_of(cpu: int, node: NodeView) -> str:
    """`reserved` counts before `exclusive`: a pod's own CPU that is reserved is exactly what is wrong."""
    if cpu in node.reserved.cpus:
        return "reserved"
    if cpu in node.pinned:
        return "exclusive"
    return "shared with BE" if cpu in node.be_pool else "shared"


def legend(*, coming: bool = False) -> Markup:
    """Key of the colours; with `coming`, that of `draw_counts` as well."""
    items = [el("li", el("span", class_="box", style=f"background:{colour}"), use) for use, colour in COLOURS.items()]
    rings = {"held by a pod that has to move": "var(--bad)"}
    rings |= {"for a pod that comes": "var(--good)"} if coming else {}
    items += [el("li", el("span", class_="box", style=f"border:3px solid {c}"), words) for words, c in rings.items()]
    return el("ul", items, class_="legend")


MAX_NODES = 100
MAX_DETAILS = 24
_STEPS = 10
"""Shades of the heat map."""
_WRONG = Mapping[str, Sequence[Outcome]]


def matching_nodes(plan: EvictionPlan, wrong: _WRONG, text: str = "") -> list[NodeView]:
    """Nodes with `text` in their name or in that of a misplaced pod there; those with most such pods first."""
    names = {name for name, outcomes in wrong.items() if any(text in outcome.pod.key for outcome in outcomes)}
    nodes = [node for node in plan.view.nodes.values() if text in node.name or node.name in names]
    return sorted(nodes, key=lambda node: (-len(wrong.get(node.name, ())), node.name))


def section(nodes: Sequence[NodeView], wrong: _WRONG) -> Markup:
    """A row for each node, a cell for each zone: the darker, the more of its CPUs someone has.
    `nodes` as `matching_nodes`."""
    zones = sorted({zone for node in nodes for zone in (*node.zones, *_cpus(node))})
    if not zones:
        reason = "None of these nodes has a NodeResourceTopology, so nothing is known of NUMA zones."
        return page.section("Nodes by NUMA zone", note=reason if nodes else "There is no such node.")
    drawn = {node.name for node in _with_cpus(nodes)}
    rows = [_row(node, zones, wrong.get(node.name, ()), drawn) for node in nodes[:MAX_NODES]]
    heads = ("node", *(f"NUMA {zone}" for zone in zones), "wrong#")
    note = "Part of a zone's CPUs that pods hold alone, that are reserved, or reported as taken."
    note += f" The first {MAX_NODES} of {len(nodes)} nodes, most wrong first." if len(nodes) > MAX_NODES else ""
    shades = [el("li", el("span", class_="box", style=_shade(part)), f"{100 * part:.0f} %") for part in (0, 0.5, 1)]
    ring = el("li", el("span", class_="box", style="border:3px solid var(--bad)"), "a misplaced pod is here")
    key = el("ul", shades, ring, class_="legend")
    return page.section("Nodes by NUMA zone", key, page.table(heads, rows), note=note)


def details(nodes: Sequence[NodeView], wrong: _WRONG) -> Markup | None:
    """CPUs and distances of the first nodes."""
    drawn = _with_cpus(nodes)
    if not drawn:
        return None
    words = "BE: best-effort pods may run there as well."
    if len(nodes) > len(drawn):
        words += f" {len(drawn)} of {len(nodes)} nodes; a name above leads to each of the others."
    articles = [_node(node, wrong.get(node.name, ())) for node in drawn]
    return page.section("CPUs by owner", legend(), articles, note=words)


def _with_cpus(nodes: Sequence[NodeView]) -> list[NodeView]:
    return [node for node in nodes if node.topology.cpus][:MAX_DETAILS]


def share_in_use(node: NodeView, zone: int) -> float | None:
    """Part of the zone's CPUs that someone has: the larger of what pods hold alone or is reserved, and of what the
    report says is not available any more. None when neither is known."""
    cpus, available = _cpus(node).get(zone, EMPTY), node.zones.get(zone, {}).get("cpu")
    if not cpus:
        return None
    share = len(cpus & (node.pinned | node.reserved.cpus)) / len(cpus)
    return share if available is None else max(share, min(1.0, max(0.0, 1 - available.milli / (1000 * len(cpus)))))


def _cpus(node: NodeView) -> dict[int, CPUSet]:
    """CPUs by NUMA node, as the topology has them."""
    return {zone.id: zone.cpus for zone in node.topology.nodes}


def _row(node: NodeView, zones: Sequence[int], wrong: Sequence[Outcome], drawn: Collection[str]) -> tuple[Child, ...]:
    """`drawn`: names of the nodes that this page draws; the others are drawn on a page of their own."""
    query = "" if node.name in drawn else f"?node={urllib.parse.quote(node.name)}"
    name = el("a", node.name, href=f"{query}#node-{node.name}") if node.topology.cpus else node.name
    count = page.badge(str(len(wrong)), "bad") if wrong else "0"
    return name, *(_cell(node, zone, wrong) for zone in zones), count


def _cell(node: NodeView, zone: int, wrong: Sequence[Outcome]) -> Child:
    if zone not in (*node.zones, *_cpus(node)):
        return None
    part, cpus = share_in_use(node, zone), _cpus(node).get(zone, EMPTY)
    here = ", ".join(outcome.pod.key for outcome in wrong if cpus_at_fault(outcome) & cpus)
    words = "not reported" if part is None else f"{100 * part:.0f} %"
    ring = ";outline:3px solid var(--bad)" if here else ""
    title = f"{node.name}, NUMA {zone}: {words}{f'; misplaced: {here}' if here else ''}"
    return el("span", words, title=title, style=f"{_shade(part)}{ring};{_BOX}")


_BOX = "display:inline-block;min-width:5.5em;padding:2px 8px;border-radius:4px;text-align:center"


def _shade(part: float | None) -> str:
    """Shade in steps, so that a page of thousands of cells has a handful of styles."""
    percent = 0 if part is None else round(part * _STEPS) * 8
    return f"background:color-mix(in srgb, var(--be) {percent}%, var(--mark))"


def _node(node: NodeView, wrong: Sequence[Outcome]) -> Markup:
    pods = ", ".join(outcome.pod.key for outcome in wrong)
    words = f"misplaced: {pods}" if pods else "no misplaced pods"
    sets = {"reserved": node.reserved.cpus, "held alone": node.pinned, "BE": node.be_pool}
    facts: dict[str, Child] = {name: page.code(str(cpus)) if cpus else "none" for name, cpus in sets.items()}
    facts["topology manager"] = f"{node.topology_policy or 'unknown'}, scope {node.topology_scope}"
    distances = node.distances or {zone.id: dict(zone.distances) for zone in node.topology.nodes if zone.distances}
    return el(
        "article",
        el("h3", node.name),
        el("p", words, class_="note"),
        draw(node, wrong),
        page.facts(facts.items()),
        page.details("distances between zones", page.distances(distances))
        if distances
        else el("p", "Distances between its zones are not reported.", class_="note"),
        id=f"node-{node.name}",
        style="margin-bottom:26px",
    )
