"""A node's CPUs drawn by NUMA node: whose they are, and which of them a misplaced pod runs on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from descheduler.framework import NodeView
from descheduler.plan import Outcome
from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import NUMANode
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
    tops, bottom = _tops(node)
    columns = min(_COLUMNS, max((len(zone.cpus) for zone in node.topology.nodes), default=1))
    width = _LABEL + max(1, columns) * _STEP
    rows = [_zone(zone, node, holders, top) for zone, top in zip(node.topology.nodes, tops, strict=True)]
    return el(
        "svg",
        rows,
        viewBox=f"0 0 {width} {bottom}",
        width=width,
        height=bottom,
        role="img",
        aria_label=f"CPUs of {node.name} by NUMA node",
        style="max-width:100%;height:auto;display:block",
    )


def held(outcome: Outcome) -> CPUSet:
    """CPUs of the containers that something is wrong with."""
    blamed = {finding.container for finding in outcome.findings}
    return cpuset.union(c.cpuset for c in outcome.pod.containers if c.container in blamed or "*" in blamed)


def _tops(node: NodeView) -> tuple[list[int], int]:
    """Where each zone's first row starts, and how high the drawing is."""
    tops, top = [], 4
    for zone in node.topology.nodes:
        tops.append(top)
        rows = max(1, -(-len(zone.cpus) // _COLUMNS))
        top += rows * _STEP + _ZONE_GAP
    return tops, top


def _zone(zone: NUMANode, node: NodeView, holders: Mapping[str, CPUSet], top: int) -> Iterator[Markup]:
    middle = top + _CELL / 2 + 4
    yield el("text", f"NUMA {zone.id}", x=0, y=middle, font_size=13, fill="var(--soft)")
    for place, cpu in enumerate(zone.cpus):
        row, column = divmod(place, _COLUMNS)
        pods = ", ".join(pod for pod, cpus in holders.items() if cpu in cpus)
        yield _cell(cpu, use_of(cpu, node), pods, _LABEL + column * _STEP, top + row * _STEP)


def _cell(cpu: int, use: str, pods: str, x: int, y: int) -> Markup:
    title = f"CPU {cpu}: {use}{f', held by {pods}' if pods else ''}"
    place = {"x": x, "y": y, "width": _CELL, "height": _CELL, "rx": 4}
    box = el("rect", fill=COLOURS[use], fill_opacity=1 if pods else 0.35, **place)
    ring = el("rect", fill="none", **place, **_RING) if pods else None
    middle = {"x": x + _CELL / 2, "y": y + _CELL / 2 + 4}
    number = el("text", cpu, font_size=11, text_anchor="middle", fill="var(--card)" if pods else "var(--ink)", **middle)
    return el("g", el("title", title), box, ring, number)


_RING: dict[str, str | int] = {"stroke": "var(--bad)", "stroke_width": 3}


def use_of(cpu: int, node: NodeView) -> str:
    """`reserved` counts before `exclusive`: a pod's own CPU that is reserved is exactly what is wrong."""
    if cpu in node.reserved.known:
        return "reserved"
    if cpu in node.pinned:
        return "exclusive"
    return "shared with BE" if cpu in node.be_pool else "shared"


def legend() -> Markup:
    """What the colours mean."""
    items = [el("li", el("span", class_="box", style=f"background:{colour}"), use) for use, colour in COLOURS.items()]
    ring = el("span", class_="box", style="border:3px solid var(--bad)")
    return el("ul", items, el("li", ring, "held by a pod that has to move"), class_="legend")
