"""One node: a box for each NUMA node with its CPUs by owner and its memory, distances, containers, charts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.report import units
from koordlite.report.html import chart, page
from koordlite.report.html.page import Child, Markup, el
from koordlite.scheduler.numa_api import distances
from koordlite.scheduler.numa_api.overview_page import TONES, finding
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


class Series(msgspec.Struct, frozen=True):
    """One amount over time: the same moments for every NUMA node."""

    times: Sequence[float]
    by_zone: Mapping[str, Sequence[float | None]]


class Charts(msgspec.Struct, frozen=True):
    """CPU in cores and memory in bytes over time. `why`: why there are none."""

    cpu: Series | None = None
    memory: Series | None = None
    why: str = ""
    source: str = "Prometheus"


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
        distances.section(node, policies),
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
    return f"topology manager {node.policy}, scope {node.scope}; CPU manager {manager}; {len(node.pods)} pods{read}"


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
    drawn = el("rect", x=0, y=0, width=round(100 * part), height=6, fill="var(--be)")
    ground = el("rect", x=0, y=0, width=100, height=6, fill="var(--mark)")
    bar = el("svg", ground, drawn, viewBox="0 0 100 6", preserveAspectRatio="none", style=_BAR, aria_hidden="true")
    return el("div", el("span", f"{name} {100 * part:.0f} % taken", class_="tile-note"), bar)


_BAR = "display:block;width:100%;height:8px;border-radius:4px;margin:2px 0 8px"


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
    by_cpu += distances.spread(node, sorted(placed.cpus_by_numa))
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
        chart.Line(f"NUMA {name}", _LINES[at % len(_LINES)], [_in(unit, value) for value in series.by_zone[name]])
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


def _in(unit: int, value: float | None) -> float | None:
    return None if value is None else value / unit
