"""The agent's front page: what `koordlite top` shows, and the last decisions, made on the server."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from koordlite.report import pods, units, view
from koordlite.report.explain import pieces
from koordlite.report.history import DecisionEvent, Remembered
from koordlite.report.html import chart, node_parts, page
from koordlite.report.html.page import Child, Markup, Strict, el
from koordlite.report.sentence import headline
from koordlite.report.tick import Tick

REFRESH_SECONDS = 5
NEWEST, MAX_EVENTS = 8, 60
"""Decisions that are seen at once, and that can be opened: each costs the agent a third of a millisecond a page."""
MAX_PLACES = 40


def served(tick: Tick | None, past: Remembered, *, links: Sequence[str], refresh: bool) -> Strict:
    """The page with its policy. `links` are the other paths of the server; with `refresh` it reloads itself."""
    return page.strict(document(tick, past, links=links, refresh=refresh))


def explained(subject: str, text: str, tick: Tick, *, up: str) -> Strict:
    """An explanation as a page: a section for each part of its text; `up` leads to the front page."""
    parts = [part.strip("\n").splitlines() for part in text.split("\n\n") if part.strip()]
    sections = [
        page.section(first.rstrip(":"), el("p", textwrap.dedent("\n".join(rest)), class_="words") if rest else None)
        for first, *rest in parts
        if rest or first != subject
    ]
    lead = [el("a", view.node(tick), href=up or "."), f" · {units.moment(tick.wall)}"]
    return page.strict(page.page(f"explain {subject}", *sections, lead=lead, foot="Made by koordlite on the node."))


def document(tick: Tick | None, past: Remembered, *, links: Sequence[str], refresh: bool) -> str:
    """The page for `tick`; without one it says that none has ended yet."""
    title = (tick.node if tick else "") or "koordlite"
    every = REFRESH_SECONDS if refresh else None
    body = _body(tick, past) if tick else [page.section("No tick has ended yet", el("p", "Try again in a moment."))]
    return page.page(
        title,
        *body,
        _links(links),
        lead=_lead(tick, refresh) if tick else None,
        foot="Made by koordlite on the node itself.",
        refresh_seconds=every,
        script=page.FILTER_SCRIPT,
    )


def _lead(tick: Tick, refresh: bool) -> list[Child]:
    switch = page.refresh_link("?refresh=off" if refresh else "?", refresh)
    when = f"{view.because(tick)} {units.moment(tick.wall)} · "
    return [node_parts.status_badge(tick), when, switch, *_warned(tick)]


def _warned(tick: Tick) -> Iterator[Child]:
    """Warnings that must be seen without scrolling: problems, and how long the agent is paused, and why."""
    if tick.problems:
        many = f"{len(tick.problems)} problem{'s' if len(tick.problems) > 1 else ''}"
        yield from (" · ", el("a", many, href="#problems"))
    for fact in view.paused(tick):
        yield from (el("br"), f"Paused {fact.value}.")


def _body(tick: Tick, past: Remembered) -> list[Markup]:
    return [
        _tiles(tick),
        _chart(tick, past),
        node_parts.pods_section(pods.of(tick, past.events), link="explain/pod/"),
        _machine(tick),
        _pressure(tick),
        _decisions(past.events),
        *_strategies(tick),
        *_trouble(tick, past),
    ]


def _tiles(tick: Tick) -> Markup:
    figures = tick.figures
    return page.tiles(
        page.tile("Node uses, cores", units.cores(figures.node_cpu), f"of {units.cores(figures.capacity_milli)}"),
        page.tile("LS uses, cores", units.cores(figures.prod_cpu), view.threshold(tick)),
        page.tile("BE uses, cores", units.cores(figures.be_cpu), view.be_limit(tick)),
        node_parts.offer_tile(tick),
    )


def _chart(tick: Tick, past: Remembered) -> Markup:
    rows = node_parts.measured(past.rows)
    drawing = chart.timeline(
        [row.time for row in rows],
        node_parts.use_lines(rows),
        label=node_parts.USE_LABEL,
        show_time=lambda time: _ago(tick.time - time),
        show=units.cores,
        top=tick.figures.capacity_milli or None,
        height_px=220,
        origin=tick.time,
    )
    return page.section("CPU, the last minutes", drawing, note=node_parts.USE_NOTE)


def _ago(seconds: float) -> str:
    return "now" if seconds < 0.5 else f"−{units.clock(seconds)}"


def _machine(tick: Tick) -> Markup:
    facts = node_parts.facts((*view.limits(tick), *view.inputs(tick)))
    cells = node_parts.cpu_map(tick.cpus, link="explain/cpu/")
    return page.section("CPUs, pools and cache", *cells, facts, *_distances(tick))


def _distances(tick: Tick) -> Iterator[Markup]:
    """Distances between NUMA nodes, where the machine has several and reports them."""
    nodes = tick.snapshot.topology.nodes
    known = {node.id: dict(node.distances) for node in nodes if node.distances}
    if len(known) > 1:
        rows = [(f"NUMA {here}", *(str(far.get(there, "–")) for there in known)) for here, far in known.items()]
        heads = ("distance", *(f"to {there}#" for there in known))
        yield page.details("distances between NUMA nodes", page.table(heads, rows))


def _pressure(tick: Tick) -> Markup:
    rows = [
        (who, waits, *(f"{part:.1f} %" for part in (one.some.avg10, one.some.avg60, one.some.avg300)))
        for subject, who in (("node", "node"), ("besteffort", "BE"))
        for waits, one in tick.pressure.get(subject, {}).items()
    ]
    heads = ("who", "waits for", "10 s#", "60 s#", "300 s#")
    table = page.table(heads, rows, empty="this kernel reports no pressure (PSI), or none was read yet")
    return page.section("Pressure", table, note="Part of the time in which some task waited.")


def _decisions(events: Sequence[DecisionEvent]) -> Markup:
    if not events:
        return page.section("Recent decisions", note="nothing yet")
    newest, recent = events[-NEWEST:][::-1], events[-MAX_EVENTS:]
    table = page.table(node_parts.DECISION_HEADS, map(node_parts.decision_row, newest), stacked=True)
    note = f"Newest first; below, the last {len(recent)} of {len(events)} remembered, by subject."
    return page.section("Recent decisions", table, *node_parts.by_subject(recent), note=note)


def _strategies(tick: Tick) -> Iterator[Markup]:
    rows: list[tuple[Child, ...]] = []
    for name, mode in tick.modes.items():
        found = [decision for decision in tick.decisions if decision.strategy == name]
        lines = [el("div", headline(d)) for d in found[:3]]
        more = el("div", f"and {len(found) - 3} more", class_="note") if len(found) > 3 else None
        rows.append((el("a", name, href=f"explain/{name}", class_="word"), mode, [lines, more]))
    yield page.section("Strategies", page.table(("strategy", "mode", "at present"), rows, stacked=True))


def _trouble(tick: Tick, past: Remembered) -> Iterator[Markup]:
    problems = [(p.object, page.code(p.field), p.why, p.do) for p in tick.problems]
    table = page.table(node_parts.PROBLEM_HEADS, problems, empty="none", stacked=True)
    yield el("div", page.section("Problems", table), id="problems")
    places = view.disputed(tick, past)
    if places:
        rows = [
            (page.code(str(place)), [el("div", line) for line in pieces.about_place(place, tick, past)])
            for place in places
        ]
        yield page.section("Disputed files", page.table(("file", "what happened"), rows[:MAX_PLACES], stacked=True))


def _links(paths: Sequence[str]) -> Markup:
    items = [el("li", el("a", path, href=f".{path}")) for path in paths]
    return page.section("For programs", el("ul", items, class_="legend"))
