"""One node: a box for each NUMA node with its CPUs by owner and its memory, distances, containers, charts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from koordlite.model.nrt import ContainerPlacement
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.numa.nrt import score
from koordlite.numa.nrt.score import Costs
from koordlite.report import units
from koordlite.report.html import chart, page
from koordlite.report.html.page import Child, Markup, el
from koordlite.scheduler.numa_api.charts import Charts, Series
from koordlite.scheduler.numa_api.overview_page import TONES, finding, shade
from koordlite.scheduler.numa_api.view import STALE_SECONDS, NodeView, State, Zone, misplaced_cpus

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
    state, age = node.state(now), node.age(now)
    read = f", placements read {units.span(age)} ago" if age is not None and math.isfinite(age) else ""
    managers = (
        f"topology manager {node.report.policy}, scope {node.report.scope}; "
        f"CPU manager {node.manager.policy or 'unknown'}; {len(node.pods)} pods{read}"
    )
    refreshing = page.refresh_link("?refresh=off" if refresh else "?", refresh)
    return page.page(
        node.name,
        el("p", el("a", "all nodes", href="../../numa"), " · ", refreshing),
        _incomplete(node, state),
        _zones(node, charts or Charts(), now),
        _distances(node, policies),
        _containers(node),
        _violations(node, state),
        _charts(charts) if charts else None,
        lead=[page.badge(state, TONES[state]), " ", managers],
        foot="From the node's NodeResourceTopology and the pods bound to it.",
        refresh_seconds=REFRESH_SECONDS if refresh else None,
    )


def _incomplete(node: NodeView, state: State) -> Markup | None:
    """Reasons why the page is not complete."""
    if state == "no report":
        why = "The node has no NodeResourceTopology, so nothing is known of its NUMA nodes. The agent writes one."
        return page.section("No report", el("p", why))
    if state == "stale":
        why = f"Placements are older than {STALE_SECONDS:g} s: the agent may not run. Pods may have moved since."
        return page.section("Out of date", el("p", why))
    return page.section("Cannot be read", el("ul", [el("li", p) for p in node.problems])) if node.problems else None


def _zones(node: NodeView, charts: Charts, now: float) -> Markup | None:
    """A box for each NUMA node: its CPUs by owner, what is taken of it, and what is in use."""
    wrong, since = misplaced_cpus(node), now - STALE_SECONDS

    def cpu(number: int) -> Markup:
        owner = node.owner(number)
        holder = f" to {node.exclusive[number]}" if number in node.exclusive else ""
        words = f"CPU {number}: {owner}{holder}{'; a misplaced container runs here' if number in wrong else ''}"
        ring = f";{_RING}" if number in wrong else ""
        return el("li", number, style=f"background:{_COLOURS[owner]}{ring}", title=words)

    def meter(name: str, part: float | None) -> Markup:
        """A bar as long as the part that is taken."""
        if part is None:
            return el("p", f"{name}: not reported", class_="note")
        return el("div", el("span", f"{name} {100 * part:.0f} % taken", class_="tile-note"), page.bar(part))

    def box(zone: Zone) -> Markup:
        cores = charts.cpu.latest(zone.id, since) if charts.cpu else None
        memory = charts.memory.latest(zone.id, since) if charts.memory else None
        cpus = el("ul", map(cpu, zone.cpus), class_="cpus") if zone.cpus else None
        facts = [
            ("CPUs", page.code(str(zone.cpus)) if zone.cpus else "–"),
            ("CPU unallocated", f"{units.cores(zone.cpu_left)} of {units.cores(zone.cpu_total)} cores"),
            ("memory unallocated", f"{units.size(zone.memory_left)} of {units.size(zone.memory_total)}"),
            ("CPU in use", "not measured" if cores is None else f"{cores:.1f} cores"),
            ("memory in use", "not measured" if memory is None else units.size(int(memory))),
        ]
        return el(
            "div",
            el("h3", f"NUMA {zone.id}", style="margin-top:0"),
            cpus or el("p", "its CPUs are not reported", class_="note"),
            [meter("CPU", zone.cpu_part), meter("memory", zone.memory_part)],
            page.facts(facts),
            style="border:1px solid var(--line);border-radius:8px;padding:10px 12px;min-width:0",
        )

    if not node.zones:
        return None
    grid = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:12px"
    legend = [(f"background:{colour}", owner) for owner, colour in _COLOURS.items()]
    legend.append((_RING, "a misplaced container runs here"))
    items = [el("li", el("span", class_="box", style=style), words) for style, words in legend]
    boxes = el("div", map(box, node.zones), style=grid)
    return page.section("NUMA nodes", boxes, el("ul", items, class_="legend"))


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


def _violations(node: NodeView, state: State) -> Markup:
    rows = [(each.key, *finding(each.violation)) for each in node.findings]
    empty = "every promise holds" if state == "ok" else "not judged without an up-to-date report"
    table = page.table(("pod", "what is wrong", "facts"), rows, empty=empty, stacked=True)
    old = "As of the last report, which is out of date." if state != "ok" and rows else None
    return page.section("Violations", table, note=old)


def _charts(charts: Charts) -> Markup:
    if charts.why:
        return page.section("Last hour", el("p", charts.why, class_="note"))
    drawings: list[Markup] = []
    for title, series, unit in (("CPU used, cores", charts.cpu, 1), ("Memory used, GiB", charts.memory, 2**30)):
        if series is None or not series.times:
            why = f"{charts.source[:1].upper()}{charts.source[1:]} has no samples of this node yet."
            drawings += [el("h3", title), el("p", why, class_="note")]
        else:
            drawings += [el("h3", title), _drawn(title, series, unit)]
    return page.section("Last hour", drawings, note=f"From {charts.source}.")


def _drawn(title: str, series: Series, unit: int) -> Markup:
    names = sorted(series.by_zone, key=lambda name: (len(name), name))
    lines = [
        chart.Line(f"NUMA {name}", _LINES[at % len(_LINES)], [value and value / unit for value in series.by_zone[name]])
        for at, name in enumerate(names)
    ]
    end = series.times[-1]
    return chart.timeline(
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

    def far(distance: int | None) -> Markup:
        part = None if distance is None else max(0.0, (distance - 10) / max(1, farthest - 10))
        words = "–" if distance is None else str(distance)
        return el("span", words, style=f"{shade(part)};padding:2px 10px;border-radius:4px")

    rows = [(f"NUMA {a}", *(far(costs[a].get(b)) for b in costs)) for a in costs]
    table = page.table(("from", *(f"to {b}" for b in costs)), rows)
    nearest = None
    if 2 < len(costs) <= MOST_DRAWN:  # Of two there is nothing to choose.
        sets = [_of_size(size, costs) for size in range(2, len(costs))]
        rows = [(str(len(each)), ", ".join(map(str, each)), f"{_mean(each, costs):.1f}") for each in sets]
        heads = ("needed", "nearest", "mean distance")
        nearest = el("div", el("h3", "Nearest together"), page.table(heads, rows))
    if policies is None:
        policy = "Whether the policy optimal NUMA distance is open was not read."
    elif policies.distance:
        policy = "Optimal NUMA distance is open: a pod that needs several gets the nearest."
    else:
        policy = "Optimal NUMA distance is closed: a pod that needs several gets the first that have enough."
    note = f"As firmware reports them: 10 is local, 20 twice as far. {policy}"
    return page.section("Distances", _links(costs) if len(costs) <= MOST_DRAWN else None, table, nearest, note=note)


def _spread(node: NodeView, used: Sequence[int]) -> list[Markup]:
    """Distance of the NUMA nodes of a container from each other, and the least of as many."""
    costs = {zone.id: zone.distances for zone in node.zones}
    if len(used) < 2 or len(costs) > MOST_DRAWN or not set(used) <= costs.keys() or not any(costs.values()):
        return []
    mean, best = _mean(used, costs), _mean(_of_size(len(used), costs), costs)
    if mean <= best:
        return [el("div", f"mean distance {mean:.1f}: none are nearer", class_="tile-note")]
    return [el("div", page.badge(f"mean distance {mean:.1f}", "warn"), f" nearest {len(used)}: {best:.1f}")]


def _of_size(size: int, costs: Costs) -> Sequence[int]:
    return min(itertools.combinations(sorted(costs), size), key=lambda nodes: score.distance(nodes, costs))


def _mean(nodes: Sequence[int], costs: Costs) -> float:
    """Mean over all ordered pairs, as kubelet and the extender compare them."""
    return score.distance(nodes, costs) / len(nodes) ** 2


def _links(costs: Costs) -> Markup:
    """NUMA nodes on a circle, each pair joined by a line with its distance."""
    middle, radius, step = 120.0, 90.0, 2 * math.pi / len(costs)
    places = {
        number: (middle + radius * math.cos(step * at - math.pi), middle + radius * math.sin(step * at - math.pi))
        for at, number in enumerate(costs)
    }
    lines, words = list[Markup](), list[str]()
    for a, b in itertools.product(costs, costs):
        if a < b:
            (ax, ay), (bx, by), distance = places[a], places[b], costs[a].get(b, "?")
            # A third of the way, so that the numbers of lines that cross in the middle stay apart.
            x, y = ax + (bx - ax) * 0.36, ay + (by - ay) * 0.36
            ends = {"x1": round(ax, 1), "y1": round(ay, 1), "x2": round(bx, 1), "y2": round(by, 1)}
            lines += [
                el("line", stroke="var(--soft)", stroke_width=1.5, **ends),
                el("rect", x=round(x - 12, 1), y=round(y - 9, 1), width=24, height=18, rx=4, fill="var(--card)"),
                _number(distance, round(x, 1), round(y + 4, 1), 12, "var(--ink)"),
            ]
            words.append(f"{a} to {b} {distance}")
    for number, place in places.items():
        x, y = round(place[0], 1), round(place[1], 1)
        lines += [el("circle", cx=x, cy=y, r=18, fill="var(--prod)"), _number(number, x, y + 5, 14, "var(--card)")]
    size = int(2 * middle)
    top, height = (int(middle) - 30, 60) if len(costs) == 2 else (0, size)
    return el(
        "svg",
        lines,
        viewBox=f"0 {top} {size} {height}",
        width=size,
        height=height,
        role="img",
        aria_label=f"Distances: {', '.join(words)}",
        style="max-width:100%;height:auto;display:block",
    )


def _number(text: str | int, x: float, y: float, size: int, colour: str) -> Markup:
    return el("text", text, x=x, y=y, font_size=size, text_anchor="middle", fill=colour)
