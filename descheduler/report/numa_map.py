"""A node's CPUs drawn by NUMA node: whose they are, and which of them a misplaced pod runs on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from descheduler.framework import NodeView
from descheduler.plan import NodeChange, Outcome, ZoneChange
from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.report.html.page import Markup, el

_CELL, _GAP, _COLUMNS, _LABEL = 26, 4, 16, 92
_STEP = _CELL + _GAP
_ZONE_GAP = 10
COLOURS = {
    "reserved": "var(--reserved)",
    "exclusive": "var(--lse)",
    "shared": "var(--ls)",
    "shared with BE": "var(--both)",
}


def draw(node: NodeView, wrong: Iterable[Outcome]) -> Markup:
    """The node as SVG, cells by NUMA node. CPUs of pods that have to move are ringed; if none has to, of the others."""
    outcomes = list(wrong)
    hard = [o for o in outcomes if o.main.severity == "hard"]
    holders = {o.pod.key: held(o) for o in hard or outcomes}
    zones = [(zone.id, [_cpu(cpu, node, holders) for cpu in zone.cpus]) for zone in node.topology.nodes]
    return _drawing(f"CPUs of {node.name} by NUMA node", zones)


def counted(change: NodeChange, coming: Sequence[Outcome]) -> Markup:
    """A node's CPUs after the plan, as many cells of each use as there will be; which ones these are, nobody knows yet.
    `coming`: the pods that the plan counts on this node for."""
    return _drawing(
        f"number of CPUs of {change.node} by NUMA node after the plan",
        [(zone.zone, list(_uses(zone, change.node, coming))) for zone in change.zones],
    )


def _uses(zone: ZoneChange, node: str, coming: Sequence[Outcome]) -> Iterator[_Cell]:
    """Reserved, pods' own, pods' own that come, shared."""
    arrive = [(o.pod.key, _booked(o, node, zone.zone)) for o in coming]
    stay = max(0, zone.after.exclusive - sum(count for _, count in arrive))
    cells = [_Cell("reserved")] * zone.reserved + [_Cell("exclusive")] * stay
    for pod, count in arrive:
        cells += [_Cell("exclusive", f"comes: {pod}", "var(--good)")] * count
    yield from (*cells, *[_Cell("shared")] * zone.after.shared)


def _booked(outcome: Outcome, node: str, zone: int) -> int:
    """CPUs of a NUMA node that the plan counts on for this pod."""
    places = outcome.search.places if outcome.search else ()
    bookings = next((place.bookings for place in places if place.node == node), ())
    return sum(amounts["cpu"].value for number, amounts in bookings if number == zone and "cpu" in amounts)


class _Cell(msgspec.Struct, frozen=True):
    """One CPU as it is drawn."""

    use: str
    words: str = ""
    ring: str = ""
    """Colour of what is drawn around it; empty: nothing, and the cell is pale."""
    number: str = ""


def _drawing(label: str, zones: Sequence[tuple[int, Sequence[_Cell]]]) -> Markup:
    """Cells in rows, NUMA node under NUMA node."""
    columns = min(_COLUMNS, max((len(cells) for _, cells in zones), default=1))
    width, top, rows = _LABEL + max(1, columns) * _STEP, 4, []
    for zone, cells in zones:
        rows.append(el("text", f"NUMA {zone}", x=0, y=top + _CELL / 2 + 4, font_size=13, fill="var(--soft)"))
        for place, cell in enumerate(cells):
            row, column = divmod(place, _COLUMNS)
            rows.append(_drawn(cell, _LABEL + column * _STEP, top + row * _STEP))
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


def held(outcome: Outcome) -> CPUSet:
    """CPUs of the containers that something is wrong with."""
    blamed = {finding.container for finding in outcome.findings}
    return cpuset.union(c.cpuset for c in outcome.pod.containers if c.container in blamed or "*" in blamed)


def _cpu(cpu: int, node: NodeView, holders: Mapping[str, CPUSet]) -> _Cell:
    pods, use = ", ".join(pod for pod, cpus in holders.items() if cpu in cpus), use_of(cpu, node)
    return _Cell(use, f"CPU {cpu}: {use}{f', held by {pods}' if pods else ''}", "var(--bad)" if pods else "", str(cpu))


def _drawn(cell: _Cell, x: int, y: int) -> Markup:
    place = {"x": x, "y": y, "width": _CELL, "height": _CELL, "rx": 4}
    box = el("rect", fill=COLOURS[cell.use], fill_opacity=1 if cell.ring else 0.35, **place)
    ring = el("rect", fill="none", stroke=cell.ring, stroke_width=3, **place) if cell.ring else None
    middle = {"x": x + _CELL / 2, "y": y + _CELL / 2 + 4}
    ink = "var(--card)" if cell.ring else "var(--ink)"
    number = el("text", cell.number, font_size=11, text_anchor="middle", fill=ink, **middle) if cell.number else None
    return el("g", el("title", cell.words or cell.use), box, ring, number)


def use_of(cpu: int, node: NodeView) -> str:
    """`reserved` counts before `exclusive`: a pod's own CPU that is reserved is exactly what is wrong."""
    if cpu in node.reserved.known:
        return "reserved"
    if cpu in node.pinned:
        return "exclusive"
    return "shared with BE" if cpu in node.be_pool else "shared"


def legend(*, coming: bool = False) -> Markup:
    """What the colours mean; with `coming`, that of `counted` as well."""
    items = [el("li", el("span", class_="box", style=f"background:{colour}"), use) for use, colour in COLOURS.items()]
    rings = {"held by a pod that has to move": "var(--bad)"}
    rings |= {"for a pod that comes": "var(--good)"} if coming else {}
    items += [el("li", el("span", class_="box", style=f"border:3px solid {c}"), words) for words, c in rings.items()]
    return el("ul", items, class_="legend")
