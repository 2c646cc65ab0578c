"""Distances between the NUMA nodes of a node, on its page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from koordlite.model.slo.settings import NUMAPolicy
from koordlite.numa.nrt import score
from koordlite.numa.nrt.score import Costs
from koordlite.report.html import page
from koordlite.report.html.page import Markup, el
from koordlite.scheduler.numa_api.overview_page import shade
from koordlite.scheduler.numa_api.view import NodeView

MOST_DRAWN = 8
"""NUMA nodes in the drawing, and among which the nearest are looked for; more are in the table only."""


def section(node: NodeView, policies: NUMAPolicy | None) -> Markup | None:
    """Table and drawing, and which NUMA nodes are nearest together; nothing with one NUMA node. `policies`: None where
    they were not read."""
    if len(node.zones) < 2:
        return None
    known = {zone.id: zone.distances for zone in node.zones}
    if not any(known.values()):
        return page.section("Distances", el("p", "The report has no distances between NUMA nodes.", class_="note"))
    farthest = max(far for row in known.values() for far in row.values())
    rows = [(f"NUMA {a}", *(_far(known[a].get(b), farthest) for b in known)) for a in known]
    table = page.table(("from", *(f"to {b}" for b in known)), rows)
    drawing = _links(known) if len(known) <= MOST_DRAWN else None
    note = f"As firmware reports them: 10 is local, 20 twice as far. {_policy(policies)}"
    return page.section("Distances", drawing, table, _nearest(known), note=note)


def spread(node: NodeView, used: Sequence[int]) -> list[Markup]:
    """For a container on several NUMA nodes: how far apart they are, and how near as many could be."""
    known = {zone.id: zone.distances for zone in node.zones}
    if len(used) < 2 or len(known) > MOST_DRAWN or not set(used) <= known.keys() or not any(known.values()):
        return []
    mean, best = _mean(used, known), _mean(_of_size(len(used), known), known)
    if mean <= best:
        return [el("div", f"mean distance {mean:.1f}: none are nearer", class_="tile-note")]
    return [el("div", page.badge(f"mean distance {mean:.1f}", "warn"), f" nearest {len(used)}: {best:.1f}")]


def _policy(policies: NUMAPolicy | None) -> str:
    if policies is None:
        return "Whether the policy optimal NUMA distance is open was not read."
    if policies.distance:
        return "Optimal NUMA distance is open: a pod that needs several gets the nearest."
    return "Optimal NUMA distance is closed: a pod that needs several gets the first that have enough."


def _nearest(known: Costs) -> Markup | None:
    """With two NUMA nodes there is nothing to choose."""
    if not 2 < len(known) <= MOST_DRAWN:
        return None
    sets = [_of_size(size, known) for size in range(2, len(known))]
    rows = [(str(len(each)), ", ".join(map(str, each)), f"{_mean(each, known):.1f}") for each in sets]
    table = page.table(("needed", "nearest", "mean distance"), rows)
    return el("div", el("h3", "Nearest together"), table)


def _of_size(size: int, known: Costs) -> Sequence[int]:
    return min(itertools.combinations(sorted(known), size), key=lambda nodes: score.distance(nodes, known))


def _mean(nodes: Sequence[int], known: Costs) -> float:
    """Over all ordered pairs, as kubelet and the extender compare them."""
    return score.distance(nodes, known) / len(nodes) ** 2


def _far(distance: int | None, farthest: int) -> Markup:
    part = None if distance is None else max(0.0, (distance - 10) / max(1, farthest - 10))
    words = "–" if distance is None else str(distance)
    return el("span", words, style=f"{shade(part)};padding:2px 10px;border-radius:4px")


def _links(known: Costs) -> Markup:
    """NUMA nodes on a circle, each pair joined by a line with its distance."""
    ids, middle, radius = list(known), 120.0, 90.0
    places = {
        number: (
            middle + radius * math.cos(2 * math.pi * at / len(ids) - math.pi),
            middle + radius * math.sin(2 * math.pi * at / len(ids) - math.pi),
        )
        for at, number in enumerate(ids)
    }
    lines = [_link(places[a], places[b], known[a].get(b)) for a in ids for b in ids if a < b]
    dots = [_dot(place, number) for number, place in places.items()]
    label = "Distances: " + ", ".join(f"{a} to {b} {known[a].get(b, '?')}" for a in ids for b in ids if a < b)
    size = int(2 * middle)
    shape = "max-width:100%;height:auto;display:block"
    top, height = (int(middle) - 30, 60) if len(ids) == 2 else (0, size)
    view = f"0 {top} {size} {height}"
    return el("svg", lines, dots, viewBox=view, width=size, height=height, role="img", aria_label=label, style=shape)


def _link(a: tuple[float, float], b: tuple[float, float], distance: int | None) -> list[Markup]:
    # A third of the way, so that the numbers of lines that cross in the middle stay apart.
    x, y = a[0] + (b[0] - a[0]) * 0.36, a[1] + (b[1] - a[1]) * 0.36
    ends = {"x1": round(a[0], 1), "y1": round(a[1], 1), "x2": round(b[0], 1), "y2": round(b[1], 1)}
    line = el("line", stroke="var(--soft)", stroke_width=1.5, **ends)
    ground = el("rect", x=round(x - 12, 1), y=round(y - 9, 1), width=24, height=18, rx=4, fill="var(--card)")
    words = "?" if distance is None else distance
    number = el("text", words, x=round(x, 1), y=round(y + 4, 1), font_size=12, text_anchor="middle", fill="var(--ink)")
    return [line, ground, number]


def _dot(place: tuple[float, float], number: int) -> list[Markup]:
    x, y = round(place[0], 1), round(place[1], 1)
    circle = el("circle", cx=x, cy=y, r=18, fill="var(--prod)")
    return [circle, el("text", number, x=x, y=y + 5, font_size=14, text_anchor="middle", fill="var(--card)")]
