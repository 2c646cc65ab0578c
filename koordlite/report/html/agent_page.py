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


def explained(subject: str, text: str, tick: Tick, *, up: str) -> Strict:
    """An explanation as a page: a section for each part of its text; `up` leads to the front page."""
    parts = [part.strip("\n").splitlines() for part in text.split("\n\n") if part.strip()]
    sections = [
        page.section(head.rstrip(":"), el("p", textwrap.dedent("\n".join(lines)), class_="words") if lines else None)
        for head, *lines in parts
        if lines or head != subject
    ]
    lead = [el("a", view.node(tick), href=up or "."), f" · {units.moment(tick.wall)}"]
    return page.strict(page.page(f"explain {subject}", *sections, lead=lead, foot="Made by koordlite on the node."))


def served(tick: Tick | None, past: Remembered, *, links: Sequence[str], refresh: bool) -> Strict:
    """The page for `tick`; without one it says that none has ended yet. `links` are the other paths of the server; with
    `refresh` it reloads itself."""
    body = _body(tick, past) if tick else [page.section("No tick has ended yet", el("p", "Try again in a moment."))]
    lead: list[Child] = []
    if tick:
        switch = page.refresh_link("?refresh=off" if refresh else "?", refresh)
        lead = [node_parts.status_badge(tick), f"{view.because(tick)} {units.moment(tick.wall)} · ", switch]
        # What must be seen without scrolling.
        if tick.problems:
            lead += [" · ", el("a", units.count(len(tick.problems), "problem"), href="#problems")]
        for fact in view.paused(tick):
            lead += [el("br"), f"Paused {fact.value}."]
    items = [el("li", el("a", path, href=f".{path}")) for path in links]
    document = page.page(
        (tick.node if tick else "") or "koordlite",
        *body,
        page.section("For programs", el("ul", items, class_="legend")),
        lead=lead or None,
        foot="Made by koordlite on the node itself.",
        refresh_seconds=REFRESH_SECONDS if refresh else None,
        script=page.FILTER_SCRIPT,
    )
    return page.strict(document)


def _body(tick: Tick, past: Remembered) -> list[Markup]:
    figures, rows = tick.figures, node_parts.measured(past.rows)
    drawing = chart.timeline(
        [row.time for row in rows],
        node_parts.use_lines(rows),
        label=node_parts.USE_LABEL,
        show_time=lambda time: "now" if tick.time - time < 0.5 else f"−{units.clock(tick.time - time)}",
        show=units.cores,
        top=figures.capacity_milli or None,
        height_px=220,
        origin=tick.time,
    )
    return [
        page.tiles(
            page.tile("Node uses, cores", units.cores(figures.node_cpu), f"of {units.cores(figures.capacity_milli)}"),
            page.tile("LS uses, cores", units.cores(figures.prod_cpu), view.threshold(tick)),
            page.tile("BE uses, cores", units.cores(figures.be_cpu), view.be_limit(tick)),
            node_parts.offer_tile(tick),
        ),
        page.section("CPU, the last minutes", drawing, note=node_parts.USE_NOTE),
        node_parts.pods_section(pods.of(tick, past.events), link="explain/pod/"),
        _machine(tick),
        _pressure(tick),
        _decisions(past.events),
        *_strategies(tick),
        *_trouble(tick, past),
    ]


def _machine(tick: Tick) -> Markup:
    """CPUs and facts; distances between NUMA nodes, where the machine has several and reports them."""
    nodes = {node.id: dict(node.distances) for node in tick.snapshot.topology.nodes if node.distances}
    return page.section(
        "CPUs, pools and cache",
        *node_parts.cpu_map(tick.cpus, link="explain/cpu/"),
        node_parts.facts((*view.limits(tick), *view.inputs(tick))),
        page.details("distances between NUMA nodes", page.distances(nodes)) if len(nodes) > 1 else None,
    )


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
        decisions = [decision for decision in tick.decisions if decision.strategy == name]
        lines = [el("div", headline(decision)) for decision in decisions[:3]]
        more = el("div", f"and {len(decisions) - 3} more", class_="note") if len(decisions) > 3 else None
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
