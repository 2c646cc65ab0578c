"""The agent's front page: what `koordlite top` shows, and the last decisions, made on the server; no scripts."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence

from koordlite.report import pausing, units
from koordlite.report.explain import pieces
from koordlite.report.history import DecisionEvent
from koordlite.report.html import chart, page, strict
from koordlite.report.html.chart import Line
from koordlite.report.html.page import Child, Markup, el
from koordlite.report.html.strict import Strict
from koordlite.report.past import Remembered
from koordlite.report.present import CPUCell
from koordlite.report.sentence import sentence, terms
from koordlite.report.terminal.status import inputs
from koordlite.report.tick import Tick

REFRESH_SECONDS = 5
MAX_EVENTS = 40
_TONES = {"shrink": "warn", "grow": "good", "release": "good", "refuse": "bad", "evict": "bad", "skip": "warn"}
_STATUS_TONES = {"enforcing": "good", "paused": "warn", "degraded": "bad"}
_COLORS = {"reserved": "--reserved", "system": "--system", "LSE": "--lse", "LSR": "--lsr", "LS": "--ls"}
_OWNERS = {"reserved": "reserved", "system": "SYSTEM pods", "LSE": "LSE", "LSR": "LSR", "LS": "LS only"}


def served(tick: Tick | None, past: Remembered, *, links: Sequence[str], refresh: bool) -> Strict:
    """The page with its policy. `links` are the other paths of the server; `refresh` loads the page anew by itself."""
    return strict.strict(document(tick, past, links=links, refresh=refresh))


def document(tick: Tick | None, past: Remembered, *, links: Sequence[str], refresh: bool) -> str:
    """The page for `tick`; without one it says that none has ended yet."""
    title = (tick.node if tick else "") or "koordlite"
    every = REFRESH_SECONDS if refresh else None
    body = _body(tick, past) if tick else [page.section("No tick has ended yet", el("p", "Look again in a moment."))]
    return page.page(
        title,
        *body,
        _links(links),
        lead=_lead(tick, refresh) if tick else None,
        foot="Made by koordlite on the node itself.",
        refresh_seconds=every,
    )


def _lead(tick: Tick, refresh: bool) -> list[Child]:
    at = datetime.datetime.fromtimestamp(tick.wall, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    paused = f" ({tick.because})" if tick.because else ""
    switch = el("a", "stop refreshing", href="?refresh=off") if refresh else el("a", "refresh by itself", href="?")
    badge = page.badge(tick.status, _STATUS_TONES.get(tick.status, ""))
    return [badge, f"{paused} {at} · ", switch, *_warned(tick)]


def _warned(tick: Tick) -> Iterator[Child]:
    """What nobody should have to scroll for: that something is wrong, and how long the agent only looks on, and why."""
    if tick.problems:
        many = f"{len(tick.problems)} problem{'s' if len(tick.problems) > 1 else ''}"
        yield from (" · ", el("a", many, href="#problems"))
    if tick.pause:
        yield from (el("br"), f"Paused {pausing.words(tick.pause, wall=tick.wall)}.")


def _body(tick: Tick, past: Remembered) -> list[Markup]:
    return [
        _tiles(tick),
        _chart(tick, past),
        _machine(tick),
        _pressure(tick),
        _decisions(past.events),
        *_strategies(tick),
        *_trouble(tick, past),
    ]


def _tiles(tick: Tick) -> Markup:
    gives_way = tick.threshold_milli is not None and tick.modes.get("cpuSuppress") != "off"
    threshold = f"BE gives way above {units.cores(tick.threshold_milli)}" if gives_way else ""
    return page.tiles(
        page.tile("Node uses, cores", units.cores(tick.node_cpu), f"of {units.cores(tick.capacity_milli)}"),
        page.tile("LS uses, cores", units.cores(tick.prod_cpu), threshold),
        page.tile("BE uses, cores", units.cores(tick.be_cpu), f"may use {units.cores(tick.be_limit)}"),
        page.tile("BE may request, cores", units.cores(tick.batch_cpu), units.size(tick.batch_memory)),
    )


def _chart(tick: Tick, past: Remembered) -> Markup:
    rows = list(past.rows)
    lines = [
        Line("best-effort (BE)", "var(--be)", [row.be_cpu for row in rows], area=True),
        Line("limit of BE", "var(--limit)", [row.be_limit for row in rows], step=True, dashed=True),
        Line("latency-sensitive (LS)", "var(--prod)", [row.prod_cpu for row in rows]),
        Line("node", "var(--node)", [row.node_cpu for row in rows]),
    ]
    drawing = chart.timeline(
        [row.time for row in rows],
        lines,
        label="CPU use of node, latency-sensitive and best-effort work against the limit of best-effort, over time",
        show_time=lambda time: _ago(tick.time - time),
        show=units.cores,
        top=tick.capacity_milli or None,
        height_px=220,
    )
    return page.section("CPU, the last minutes", drawing, note="Cores. Point at the drawing for the numbers.")


def _ago(seconds: float) -> str:
    return "now" if seconds < 0.5 else f"−{units.clock(seconds)}"


def _machine(tick: Tick) -> Markup:
    facts: list[tuple[str, Child]] = [
        ("BE runs on", _listed(tick.be_cpuset)),
        ("LS shared pool", _listed(tick.ls_pool)),
        ("BE shared pool", _listed(tick.be_pool)),
        *((f"resctrl {group}", page.code(line)) for group, line in tick.schemata.items()),
        ("age of input", ", ".join(f"{name} {age:.1f} s" for name, age in inputs(tick.ages).items()) or "unknown"),
    ]
    return page.section("CPUs, pools and cache", *_map(tick), page.facts(facts), *_distances(tick))


def _distances(tick: Tick) -> Iterator[Markup]:
    """How far the NUMA nodes are from each other, where the machine has several and says so."""
    nodes = tick.picture.topology.nodes if tick.picture else ()
    known = {node.id: dict(node.distances) for node in nodes if node.distances}
    if len(known) > 1:
        rows = [(f"NUMA {here}", *(str(far.get(there, "–")) for there in known)) for here, far in known.items()]
        heads = ("distance", *(f"to {there}#" for there in known))
        yield page.details("distances between NUMA nodes", page.table(heads, rows))


def _listed(cpus: str) -> Child:
    return page.code(cpus) if cpus else "none"


def _map(tick: Tick) -> Iterator[Markup]:
    cells = sorted(tick.cpus, key=lambda cell: (cell.node, cell.cpu))
    for node, group in itertools.groupby(cells, key=lambda cell: cell.node):
        yield el("h3", f"NUMA node {node}")
        yield el("ul", [_cpu(cell) for cell in group], class_="cpus")
    kinds = {(cell.owner, cell.best_effort): cell for cell in cells}
    if kinds:
        yield el("ul", [_key(cell) for _, cell in sorted(kinds.items())], class_="legend", style="margin-bottom:16px")


def _cpu(cell: CPUCell) -> Markup:
    link = el("a", cell.cpu, href=f"explain/cpu/{cell.cpu}", style="color:inherit;text-decoration:none")
    return el("li", link, style=_ground(cell), title=f"CPU {cell.cpu}: {_meaning(cell)}")


def _key(cell: CPUCell) -> Markup:
    return el("li", el("span", class_="box", style=_ground(cell)), _meaning(cell))


def _meaning(cell: CPUCell) -> str:
    if not cell.best_effort:
        return _OWNERS[cell.owner]
    return "LS and BE" if cell.owner == "LS" else f"{_OWNERS[cell.owner]} and BE"


def _ground(cell: CPUCell) -> str:
    """The owner's colour; with a broad edge in best effort's where it may run there as well."""
    ground = f"background:var({_COLORS[cell.owner]})"
    if not cell.best_effort:
        return ground
    return "background:var(--both)" if cell.owner == "LS" else f"{ground};box-shadow:inset 0 -4px var(--both)"


def _pressure(tick: Tick) -> Markup:
    rows = [
        (who, waits, *(f"{part:.1f} %" for part in (one.some.avg10, one.some.avg60, one.some.avg300)))
        for subject, who in (("node", "node"), ("besteffort", "BE"))
        for waits, one in tick.pressure.get(subject, {}).items()
    ]
    heads = ("who", "waits for", "10 s#", "60 s#", "300 s#")
    table = page.table(heads, rows, empty="this kernel tells no pressure (PSI), or there was no look at it yet")
    return page.section("Pressure", table, note="Part of the time in which some task waited.")


def _decisions(events: Sequence[DecisionEvent]) -> Markup:
    shown = list(events)[-MAX_EVENTS:][::-1]
    table = page.table(("when", "about", "what", "why"), map(_event, shown), empty="nothing yet", stacked=True)
    return page.section("Decided anew", table, note=f"The newest first: {len(shown)} of {len(events)} remembered.")


def _event(event: DecisionEvent) -> tuple[Child, ...]:
    decision = event.decision
    why = [sentence(decision), page.details("numbers", page.facts(terms(decision))) if decision.evidence else None]
    verdict = page.badge(decision.verdict, _TONES.get(decision.verdict, ""))
    return units.clock(event.time), decision.subject, page.join(verdict, decision.reason), why


def _strategies(tick: Tick) -> Iterator[Markup]:
    rows: list[tuple[Child, ...]] = []
    for name, mode in tick.modes.items():
        found = [decision for decision in tick.decisions if decision.strategy == name]
        said = [el("div", f"{d.subject}: {d.verdict}, {d.reason}: {sentence(d)}") for d in found[:3]]
        more = el("div", f"and {len(found) - 3} more", class_="note") if len(found) > 3 else None
        rows.append((el("a", name, href=f"explain/{name}"), mode, [said, more]))
    yield page.section("Strategies", page.table(("strategy", "mode", "at present"), rows, stacked=True))


def _trouble(tick: Tick, past: Remembered) -> Iterator[Markup]:
    problems = [(p.object, page.code(p.field), p.why, p.do) for p in tick.problems]
    heads = ("object", "field", "what is wrong", "what to do")
    table = page.table(heads, problems, empty="none", stacked=True)
    yield el("div", page.section("Problems", table), id="problems")
    places = [*past.foreign, *(t.place for t in tick.troubles if t.place not in past.foreign)]
    if places:
        rows = [
            (page.code(place), [el("div", line) for line in pieces.about_place(place, tick, past)]) for place in places
        ]
        yield page.section("Disputed files", page.table(("file", "what happened"), rows[:MAX_EVENTS], stacked=True))


def _links(paths: Sequence[str]) -> Markup:
    items = [el("li", el("a", path, href=f".{path}")) for path in paths]
    return page.section("For programs", el("ul", items, class_="legend"))
