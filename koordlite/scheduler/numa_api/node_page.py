"""One node: a box for each NUMA node with its CPUs by owner and its memory, distances, containers, charts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.numa.nrt import score
from koordlite.numa.nrt.score import Costs
from koordlite.report import units
from koordlite.report.html import chart, page
from koordlite.report.html.page import Child, Markup, el
from koordlite.scheduler.numa_api.charts import Charts, Series
from koordlite.scheduler.numa_api.overview_page import TONES, finding, shade
from koordlite.scheduler.numa_api.view import STALE_SECONDS, NodeView, Zone, misplaced_cpus

REFRESH_SECONDS = 30
MOST_CONTAINERS = 200
_COLOURS = {"reserved": "var(--reserved)", "exclusive": "var(--lse)", "shared": "var(--ls)"}
_LINES = (
    "var(--prod)",
    "var(--be)",
    "var(--lse)",
    "var(--lsr)",
    "var(--good)",
    "var(--bad)",
    "var(--node)",
    "var(--aid)",
)
_RING = "box-shadow:inset 0 0 0 3px var(--bad)"


def document(
    node: NodeView, now: float, charts: Charts | None, policies: NUMAPolicy | None = None, *, refresh: bool = True
) -> str:
    """The page at `now`, in seconds since the epoch. `charts`: None where nothing can be asked for them. `policies`:
    None where they were not read."""
    return page.page(
        node.name,
        el(
            "p",
            el("a", "all nodes", href="../../numa"),
            " · ",
            page.refresh_link("?refresh=off" if refresh else "?", refresh),
        ),
        _state(node, now),
        _boxes(node, charts, now),
        _distances(node, policies),
        _containers(node),
        _violations(node, now),
        _charts(charts) if charts else None,
        lead=[page.badge(node.state(now), TONES[node.state(now)]), " ", _lead(node, now)],
        foot="From the node's NodeResourceTopology and the pods bound to it.",
        refresh_seconds=REFRESH_SECONDS if refresh else None,
    )


def _lead(node: NodeView, now: float) -> str:
    age = node.age(now)
    read = f", placements read {units.span(age)} ago" if age is not None and math.isfinite(age) else ""
    manager = node.manager.policy or "unknown"
    kubelet = f"topology manager {node.report.policy}, scope {node.report.scope}; CPU manager {manager}"
    return f"{kubelet}; {len(node.pods)} pods{read}"


def _state(node: NodeView, now: float) -> Markup | None:
    """Reasons why the page is not complete."""
    state = node.state(now)
    if state == "no report":
        why = "The node has no NodeResourceTopology, so nothing is known of its NUMA nodes. The agent writes one."
        return page.section("No report", el("p", why))
    if state == "stale":
        why = f"Placements are older than {STALE_SECONDS:g} s: the agent may not run. Pods may have moved since."
        return page.section("Out of date", el("p", why))
    return page.section("Cannot be read", el("ul", [el("li", p) for p in node.problems])) if node.problems else None


def _boxes(node: NodeView, charts: Charts | None, now: float) -> Markup | None:
    if not node.zones:
        return None
    wrong = misplaced_cpus(node)
    boxes = [_box(node, zone, wrong, _in_use(charts or Charts(), zone.id, now)) for zone in node.zones]
    grid = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:12px"
    return page.section("NUMA nodes", el("div", boxes, style=grid), _legend())


def _in_use(charts: Charts, zone: int, now: float) -> list[tuple[str, str]]:
    """Present use there, beside what is not allocated."""

    def latest(series: Series | None) -> float | None:
        if series is None or not series.times or now - series.times[-1] > STALE_SECONDS:
            return None
        values = series.by_zone.get(str(zone), ())
        return values[-1] if values else None

    cpu, memory = latest(charts.cpu), latest(charts.memory)
    unknown = "not measured"
    return [
        ("CPU in use", unknown if cpu is None else f"{cpu:.1f} cores"),
        ("memory in use", unknown if memory is None else units.size(int(memory))),
    ]


def _box(node: NodeView, zone: Zone, wrong: CPUSet, in_use: list[tuple[str, str]]) -> Markup:
    cells = [_cpu(node, cpu, wrong) for cpu in zone.cpus]
    cpus = el("ul", cells, class_="cpus") if cells else el("p", "its CPUs are not reported", class_="note")
    facts = [
        ("CPUs", page.code(str(zone.cpus)) if zone.cpus else "–"),
        ("CPU unallocated", f"{units.cores(zone.cpu_left)} of {units.cores(zone.cpu_total)} cores"),
        ("memory unallocated", f"{units.size(zone.memory_left)} of {units.size(zone.memory_total)}"),
        *in_use,
    ]
    meters = [_meter("CPU", zone.cpu_part), _meter("memory", zone.memory_part)]
    frame = "border:1px solid var(--line);border-radius:8px;padding:10px 12px;min-width:0"
    return el("div", el("h3", f"NUMA {zone.id}", style="margin-top:0"), cpus, meters, page.facts(facts), style=frame)


def _cpu(node: NodeView, cpu: int, wrong: CPUSet) -> Markup:
    owner = node.owner(cpu)
    holder = f" to {node.exclusive[cpu]}" if cpu in node.exclusive else ""
    words = f"CPU {cpu}: {owner}{holder}{'; a misplaced container runs here' if cpu in wrong else ''}"
    return el("li", cpu, style=f"background:{_COLOURS[owner]}{f';{_RING}' if cpu in wrong else ''}", title=words)


def _meter(name: str, part: float | None) -> Markup:
    """A bar as long as the part that is taken."""
    if part is None:
        return el("p", f"{name}: not reported", class_="note")
    return el("div", el("span", f"{name} {100 * part:.0f} % taken", class_="tile-note"), page.bar(part))


def _legend() -> Markup:
    items = [el("li", el("span", class_="box", style=f"background:{c}"), owner) for owner, c in _COLOURS.items()]
    ring = el("li", el("span", class_="box", style=_RING), "a misplaced container runs here")
    return el("ul", items, ring, class_="legend")


def _containers(node: NodeView) -> Markup:
    rows = [_container(node, each) for each in node.containers[:MOST_CONTAINERS]]
    more = len(node.containers) - len(rows) + node.more
    heads = ("container", "promise", "runs", "CPUs by NUMA node", "memory by NUMA node")
    empty = "no container has a promise, or the agent does not publish placements"
    note = "Containers with a promise, and those on CPUs where none may run." + (f" {more} more." if more else "")
    return page.section("Containers", page.table(heads, rows, empty=empty, stacked=True), note=note)


def _container(node: NodeView, placed: ContainerPlacement) -> tuple[Child, ...]:
    nodes = ", ".join(f"NUMA {number}" for number in placed.promised_nodes)
    promise = [page.code(str(placed.promised_cpus)) if placed.promised_cpus else None, " ", nodes]
    words = ["promised ", promise, f" by {placed.source}"] if placed.source != "none" else "nothing promised"
    fits = not placed.promised_cpus or placed.cpuset <= placed.promised_cpus
    runs = ["on ", page.code(str(placed.cpuset)), None if fits else [" ", page.badge("elsewhere", "bad")]]
    by_cpu = [el("div", f"NUMA {number}: {len(cpus)} CPUs") for number, cpus in sorted(placed.cpus_by_numa.items())]
    by_cpu += _spread(node, sorted(placed.cpus_by_numa))
    memory = [el("div", f"NUMA {number}: {units.size(used)}") for number, used in sorted(placed.memory_by_numa.items())]
    return f"{placed.namespace}/{placed.pod} {placed.container}", words, runs, by_cpu, memory or "not measured"


def _violations(node: NodeView, now: float) -> Markup:
    rows = [(each.key, *finding(each.violation)) for each in node.findings]
    empty = "every promise holds" if node.state(now) == "ok" else "not judged without an up-to-date report"
    table = page.table(("pod", "what is wrong", "facts"), rows, empty=empty, stacked=True)
    old = "As of the last report, which is out of date." if node.state(now) != "ok" and rows else None
    return page.section("Violations", table, note=old)


def _charts(charts: Charts) -> Markup:
    if charts.why:
        return page.section("Last hour", el("p", charts.why, class_="note"))
    cpu = _drawn("CPU used, cores", charts.cpu, 1, charts.source)
    memory = _drawn("Memory used, GiB", charts.memory, 2**30, charts.source)
    return page.section("Last hour", list(cpu), list(memory), note=f"From {charts.source}.")


def _drawn(title: str, series: Series | None, unit: int, source: str) -> Iterator[Markup]:
    yield el("h3", title)
    if series is None or not series.times:
        yield el("p", f"{source[:1].upper()}{source[1:]} has no samples of this node yet.", class_="note")
        return
    names = sorted(series.by_zone, key=lambda name: (len(name), name))
    lines = [
        chart.Line(f"NUMA {name}", _LINES[at % len(_LINES)], [value and value / unit for value in series.by_zone[name]])
        for at, name in enumerate(names)
    ]
    end = series.times[-1]
    yield chart.timeline(
        series.times,
        lines,
        label=f"{title}, by NUMA node over the last hour",
        show_time=lambda time: "now" if end - time < 1 else f"−{units.clock(end - time)}",
        show=lambda value: f"{value:.1f}",
        height_px=200,
    )


MOST_DRAWN = 8
"""NUMA nodes in the drawing, and among which the nearest are looked for; more are in the table only."""


def _distances(node: NodeView, policies: NUMAPolicy | None) -> Markup | None:
    """Table and drawing, and which NUMA nodes are nearest together; nothing with one NUMA node. `policies`: None where
    they were not read."""
    if len(node.zones) < 2:
        return None
    costs = {zone.id: zone.distances for zone in node.zones}
    if not any(costs.values()):
        return page.section("Distances", el("p", "The report has no distances between NUMA nodes.", class_="note"))
    farthest = max(far for row in costs.values() for far in row.values())
    rows = [(f"NUMA {a}", *(_far(costs[a].get(b), farthest) for b in costs)) for a in costs]
    table = page.table(("from", *(f"to {b}" for b in costs)), rows)
    drawing = _links(costs) if len(costs) <= MOST_DRAWN else None
    note = f"As firmware reports them: 10 is local, 20 twice as far. {_policy(policies)}"
    return page.section("Distances", drawing, table, _nearest(costs), note=note)


def _spread(node: NodeView, used: Sequence[int]) -> list[Markup]:
    """For a container on several NUMA nodes: how far apart they are, and how near as many could be."""
    costs = {zone.id: zone.distances for zone in node.zones}
    if len(used) < 2 or len(costs) > MOST_DRAWN or not set(used) <= costs.keys() or not any(costs.values()):
        return []
    mean, best = _mean(used, costs), _mean(_of_size(len(used), costs), costs)
    if mean <= best:
        return [el("div", f"mean distance {mean:.1f}: none are nearer", class_="tile-note")]
    return [el("div", page.badge(f"mean distance {mean:.1f}", "warn"), f" nearest {len(used)}: {best:.1f}")]


def _policy(policies: NUMAPolicy | None) -> str:
    if policies is None:
        return "Whether the policy optimal NUMA distance is open was not read."
    if policies.distance:
        return "Optimal NUMA distance is open: a pod that needs several gets the nearest."
    return "Optimal NUMA distance is closed: a pod that needs several gets the first that have enough."


def _nearest(costs: Costs) -> Markup | None:
    """With two NUMA nodes there is nothing to choose."""
    if not 2 < len(costs) <= MOST_DRAWN:
        return None
    sets = [_of_size(size, costs) for size in range(2, len(costs))]
    rows = [(str(len(each)), ", ".join(map(str, each)), f"{_mean(each, costs):.1f}") for each in sets]
    table = page.table(("needed", "nearest", "mean distance"), rows)
    return el("div", el("h3", "Nearest together"), table)


def _of_size(size: int, costs: Costs) -> Sequence[int]:
    return min(itertools.combinations(sorted(costs), size), key=lambda nodes: score.distance(nodes, costs))


def _mean(nodes: Sequence[int], costs: Costs) -> float:
    """Over all ordered pairs, as kubelet and the extender compare them."""
    return score.distance(nodes, costs) / len(nodes) ** 2


def _far(distance: int | None, farthest: int) -> Markup:
    part = None if distance is None else max(0.0, (distance - 10) / max(1, farthest - 10))
    words = "–" if distance is None else str(distance)
    return el("span", words, style=f"{shade(part)};padding:2px 10px;border-radius:4px")


def _links(costs: Costs) -> Markup:
    """NUMA nodes on a circle, each pair joined by a line with its distance."""
    ids, middle, radius = list(costs), 120.0, 90.0
    places = {
        number: (
            middle + radius * math.cos(2 * math.pi * at / len(ids) - math.pi),
            middle + radius * math.sin(2 * math.pi * at / len(ids) - math.pi),
        )
        for at, number in enumerate(ids)
    }
    lines = [_link(places[a], places[b], costs[a].get(b)) for a in ids for b in ids if a < b]
    dots = [_dot(place, number) for number, place in places.items()]
    label = "Distances: " + ", ".join(f"{a} to {b} {costs[a].get(b, '?')}" for a in ids for b in ids if a < b)
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
