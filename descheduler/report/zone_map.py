"""Nodes × NUMA zones as a heat map, and each node's CPUs by owner with the distances between its zones."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence

from descheduler.picture.cluster import NodeView
from descheduler.plan import EvictionPlan, Outcome
from descheduler.report import numa_map
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el

MAX_NODES = 100
MAX_DETAILS = 24
_STEPS = 10
"""Shades of the heat map."""
_WRONG = Mapping[str, Sequence[Outcome]]


def chosen(plan: EvictionPlan, wrong: _WRONG, text: str = "") -> list[NodeView]:
    """Nodes with `text` in their name or in that of a misplaced pod there; those with most such pods first."""
    nodes = [node for node in plan.view.nodes.values() if text in node.name or _has(wrong.get(node.name, ()), text)]
    return sorted(nodes, key=lambda node: (-len(wrong.get(node.name, ())), node.name))


def _has(wrong: Sequence[Outcome], text: str) -> bool:
    return any(text in outcome.pod.key for outcome in wrong)


def section(nodes: Sequence[NodeView], wrong: _WRONG) -> Markup:
    """One row a node, one cell a zone: the darker, the more of its CPUs someone has. `nodes` as `chosen`."""
    zones = sorted({zone for node in nodes for zone in _zones(node)})
    if not zones:
        known = "None of these nodes has a NodeResourceTopology, so nothing is known of NUMA zones."
        return page.section("Nodes by NUMA zone", note=known if nodes else "There is no such node.")
    drawn = {node.name for node in _drawn(nodes)}
    rows = [_row(node, zones, wrong.get(node.name, ()), drawn) for node in nodes[:MAX_NODES]]
    heads = ("node", *(f"NUMA {zone}" for zone in zones), "wrong#")
    note = "Part of a zone's CPUs that pods hold alone, that are reserved, or reported as taken."
    note += f" The first {MAX_NODES} of {len(nodes)} nodes, most wrong first." if len(nodes) > MAX_NODES else ""
    return page.section("Nodes by NUMA zone", _key(), page.table(heads, rows), note=note)


def details(nodes: Sequence[NodeView], wrong: _WRONG) -> Markup | None:
    """CPUs and distances of the first nodes."""
    drawn = _drawn(nodes)
    if not drawn:
        return None
    words = "BE: best-effort pods may run there as well."
    if len(nodes) > len(drawn):
        words += f" {len(drawn)} of {len(nodes)} nodes; a name above leads to each of the others."
    articles = [_node(node, wrong.get(node.name, ())) for node in drawn]
    return page.section("CPUs by owner", numa_map.legend(), articles, note=words)


def _drawn(nodes: Sequence[NodeView]) -> list[NodeView]:
    return [node for node in nodes if node.topology.cpus][:MAX_DETAILS]


def used(node: NodeView, zone: int) -> float | None:
    """Part of the zone's CPUs that someone has: the larger of what pods hold alone or is reserved, and of what the
    report says is not available any more. None when neither is known."""
    parts = [part for part in (_held(node, zone), _reported(node, zone)) if part is not None]
    return max(parts, default=None)


def _held(node: NodeView, zone: int) -> float | None:
    cpus = _cpus(node, zone)
    return len(cpus & (node.pinned | node.reserved.known)) / len(cpus) if cpus else None


def _reported(node: NodeView, zone: int) -> float | None:
    cpus, left = _cpus(node, zone), node.zones.get(zone, {}).get("cpu")
    if not cpus or left is None:
        return None
    return min(1.0, max(0.0, 1 - left.milli / (1000 * len(cpus))))


def _cpus(node: NodeView, zone: int) -> CPUSet:
    return next((known.cpus for known in node.topology.nodes if known.id == zone), EMPTY)


def _zones(node: NodeView) -> set[int]:
    return {*node.zones, *(zone.id for zone in node.topology.nodes)}


def _row(node: NodeView, zones: Sequence[int], wrong: Sequence[Outcome], drawn: Collection[str]) -> tuple[Child, ...]:
    """`drawn`: names of the nodes that this page draws; the others are drawn on a page of their own."""
    query = "" if node.name in drawn else f"?node={urllib.parse.quote(node.name)}"
    name = el("a", node.name, href=f"{query}#{_anchor(node)}") if node.topology.cpus else node.name
    count = page.badge(str(len(wrong)), "bad") if wrong else "0"
    return name, *(_cell(node, zone, wrong) for zone in zones), count


def _cell(node: NodeView, zone: int, wrong: Sequence[Outcome]) -> Child:
    if zone not in _zones(node):
        return None
    part, cpus = used(node, zone), _cpus(node, zone)
    here = ", ".join(outcome.pod.key for outcome in wrong if numa_map.held(outcome) & cpus)
    words = "not reported" if part is None else f"{100 * part:.0f} %"
    ring = ";outline:3px solid var(--bad)" if here else ""
    title = f"{node.name}, NUMA {zone}: {words}{f'; misplaced: {here}' if here else ''}"
    return el("span", words, title=title, style=f"{_shade(part)}{ring};{_BOX}")


_BOX = "display:inline-block;min-width:5.5em;padding:2px 8px;border-radius:4px;text-align:center"


def _shade(part: float | None) -> str:
    """In steps, so that a page of thousands of cells has a handful of styles."""
    percent = 0 if part is None else round(part * _STEPS) * 8
    return f"background:color-mix(in srgb, var(--be) {percent}%, var(--mark))"


def _key() -> Markup:
    shades = [el("li", el("span", class_="box", style=_shade(part)), f"{100 * part:.0f} %") for part in (0, 0.5, 1)]
    ring = el("span", class_="box", style="border:3px solid var(--bad)")
    return el("ul", shades, el("li", ring, "a misplaced pod is here"), class_="legend")


def _node(node: NodeView, wrong: Sequence[Outcome]) -> Markup:
    pods = ", ".join(outcome.pod.key for outcome in wrong)
    words = f"misplaced: {pods}" if pods else "no misplaced pods"
    facts = page.facts(list(_facts(node)))
    return el(
        "article",
        el("h3", node.name),
        el("p", words, class_="note"),
        numa_map.draw(node, wrong),
        facts,
        *_distances(node),
        id=_anchor(node),
        style="margin-bottom:26px",
    )


def _facts(node: NodeView) -> Iterator[tuple[str, Child]]:
    yield "reserved", _listed(str(node.reserved.known))
    yield "held alone", _listed(str(node.pinned))
    yield "BE", _listed(str(node.be_pool))
    yield "topology manager", f"{node.topology_policy or 'unknown'}, scope {node.topology_scope}"


def _listed(cpus: str) -> Child:
    return page.code(cpus) if cpus else "none"


def _distances(node: NodeView) -> Iterator[Markup]:
    known = node.distances or {zone.id: dict(zone.distances) for zone in node.topology.nodes if zone.distances}
    if not known:
        yield el("p", "Distances between its zones are not reported.", class_="note")
        return
    zones = sorted(known)
    # 255 is the kernel's word for unreachable.
    rows = [(f"NUMA {here}", *(str(known[here].get(there, "–")) for there in zones)) for here in zones]
    heads = ("distance", *(f"to {there}#" for there in zones))
    yield page.details("distances between zones", page.table(heads, rows))


def _anchor(node: NodeView) -> str:
    return f"node-{node.name}"
