"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence

from koordlite.report import threshold, units
from koordlite.report.history import DecisionEvent, History, Row
from koordlite.report.html import chart, page
from koordlite.report.html.chart import Line
from koordlite.report.html.page import Markup, el
from koordlite.report.present import CPUCell
from koordlite.report.sentence import sentence, terms
from koordlite.report.summary import Summary
from koordlite.report.tick import Tick

MAX_POINTS = 720
MAX_EVENTS = 200
_TONES = {"shrink": "warn", "grow": "good", "release": "good", "refuse": "bad", "evict": "bad", "skip": "warn"}
_STATUS_TONES = {"enforcing": "good", "paused": "warn", "degraded": "bad"}
_PROBLEM_HEADS = ("since", "object", "field", "what is wrong", "what to do")
_COLORS = {"reserved": "--reserved", "system": "--system", "LSE": "--lse", "LSR": "--lsr", "LS": "--ls"}


def document(history: History, *, title: str = "koordlite run") -> str:
    """The page for everything `history` remembers."""
    tick, summary = history.last, history.summary()
    if tick is None:
        return page.page(title, page.section("Nothing happened", el("p", "The run ended before its first tick.")))
    rows = thinned(history.rows, MAX_POINTS)
    return page.page(
        title,
        _tiles(tick, summary),
        _cpu_section(rows, tick),
        _allocatable_section(rows),
        _machine_section(tick),
        _decisions_section(history),
        _writes_section(history, summary),
        _problems_section(history),
        _environment_section(history),
        lead=_lead(tick, summary),
        foot="Made by koordlite. All numbers are also in the JSON report next to this page.",
    )


def thinned(rows: Sequence[Row], limit: int) -> list[Row]:
    """At most about `limit` rows, evenly chosen, always with the last."""
    stride = -(-len(rows) // limit) or 1
    chosen = list(rows[::stride])
    return chosen if not rows or chosen[-1] is rows[-1] else [*chosen, rows[-1]]


def _lead(tick: Tick, summary: Summary) -> list[Markup]:
    ended = datetime.datetime.fromtimestamp(tick.wall, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    status = page.badge(tick.status, _STATUS_TONES.get(tick.status, ""))
    said = f" node {tick.node or 'unknown'}, {units.span(summary.seconds)} in {summary.ticks} ticks, ended {ended}"
    return [status, page.join(said, f" ({tick.because})" if tick.because else None)]


def _tiles(tick: Tick, summary: Summary) -> Markup:
    above, whole = units.span(summary.seconds_above_threshold), units.span(summary.seconds)
    well = f"{units.span(summary.seconds_well_above_threshold)} {threshold.WELL} ({threshold.WHY})"
    limit = units.cores(tick.threshold_milli)
    limits = f"{units.cores(summary.be_limit_min)} – {units.cores(summary.be_limit_max)}"
    used, allowed = f"{summary.be_core_hours_used:.2f}", f"{summary.be_core_hours_allowed:.2f} were allowed"
    mean, most = units.span(summary.tick_seconds_mean), f"{units.span(summary.tick_seconds_max)} at most"
    others, refused = summary.foreign_writes, summary.refusals
    return page.tiles(
        page.tile("Node above the threshold", above, f"of {whole} at {limit} cores; {well}"),
        page.tile("Limit of BE, cores", limits, f"of {units.cores(tick.capacity_milli)}"),
        page.tile("Given to BE, core hours", used, allowed),
        page.tile("BE may request, cores", units.cores(tick.batch_cpu), units.size(tick.batch_memory)),
        page.tile("Writes", summary.writes, _kinds(summary)),
        page.tile("Refused", refused, "by the kernel or the API server", tone="bad" if refused else "good"),
        page.tile("Changed by others", others, "values of ours", tone="warn" if others else "good"),
        page.tile("A tick costs", mean, most),
    )


def _kinds(summary: Summary) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in summary.writes_by_kind.items()) or "none"


def _cpu_section(rows: Sequence[Row], tick: Tick) -> Markup:
    lines = [
        Line("best-effort (BE)", "var(--be)", [row.be_cpu for row in rows], area=True),
        Line("limit of BE", "var(--limit)", [row.be_limit for row in rows], step=True, dashed=True),
        Line("latency-sensitive (LS)", "var(--prod)", [row.prod_cpu for row in rows]),
        Line("node", "var(--node)", [row.node_cpu for row in rows]),
    ]
    if tick.threshold_milli is not None:
        lines.append(Line("BE gives way above", "var(--aid)", [row.threshold_milli for row in rows], step=True))
    drawing = chart.timeline(
        [row.time for row in rows],
        lines,
        label="CPU use of node, latency-sensitive and best-effort work against the limit of best-effort, over time",
        show_time=units.clock,
        show=units.cores,
        top=tick.capacity_milli or None,
        height_px=300,
    )
    return page.section("CPU", drawing, note="Cores over time. Point at the drawing for the numbers of a moment.")


def _allocatable_section(rows: Sequence[Row]) -> Markup:
    cpu = [None if row.batch_cpu is None else row.batch_cpu / 1000 for row in rows]
    memory = [None if row.batch_memory is None else row.batch_memory / (1 << 30) for row in rows]
    return page.section(
        "What BE pods may request",
        el("h3", "CPU, cores"),
        _offer(rows, Line("batch-cpu", "var(--be)", cpu, step=True)),
        el("h3", "Memory, GiB"),
        _offer(rows, Line("batch-memory", "var(--aid)", memory, step=True)),
    )


def _offer(rows: Sequence[Row], line: Line) -> Markup:
    return chart.timeline(
        [row.time for row in rows],
        [line],
        label=f"{line.name} over time",
        show_time=units.clock,
        show=lambda value: f"{value:.1f}",
        height_px=120,
    )


def _machine_section(tick: Tick) -> Markup:
    schemata = [(f"resctrl {group}", page.code(line)) for group, line in tick.schemata.items()]
    facts = [
        ("BE runs on", page.code(tick.be_cpuset) if tick.be_cpuset else "unknown"),
        ("LS shared pool", page.code(tick.ls_pool) if tick.ls_pool else "none"),
        ("BE shared pool", page.code(tick.be_pool) if tick.be_pool else "none"),
        *schemata,
    ]
    return page.section("CPUs and cache at the end", *_cpu_map(tick), page.facts(facts))


def _cpu_map(tick: Tick) -> Iterator[Markup]:
    cells = sorted(tick.cpus, key=lambda cell: (cell.node, cell.cpu))
    for node, group in itertools.groupby(cells, key=lambda cell: cell.node):
        yield el("h3", f"NUMA node {node}")
        yield el("ul", [_cpu(cell) for cell in group], class_="cpus")
    kinds = {_owner(cell): _color(cell) for cell in cells}
    boxes = [el("li", el("span", class_="box", style=f"background:{color}"), name) for name, color in kinds.items()]
    if boxes:
        yield el("ul", boxes, class_="legend", style="margin-bottom:16px")


def _cpu(cell: CPUCell) -> Markup:
    return el("li", cell.cpu, style=f"background:{_color(cell)}", title=f"CPU {cell.cpu}: {_owner(cell)}")


def _owner(cell: CPUCell) -> str:
    names = {"LS": "latency-sensitive"}
    return names.get(cell.owner, cell.owner) + (" and best-effort" if cell.best_effort else "")


def _color(cell: CPUCell) -> str:
    return "var(--both)" if cell.best_effort else f"var({_COLORS[cell.owner]})"


def _decisions_section(history: History) -> Markup:
    shown = list(history.decisions)[-MAX_EVENTS:]
    note = f"What changed, newest first: {len(shown)} of {history.decisions_seen}."
    rows = [_decision(event) for event in reversed(shown)]
    heads = ("when", "about", "what", "why")
    return page.section("Decisions", page.table(heads, rows, empty="nothing was decided", stacked=True), note=note)


def _decision(event: DecisionEvent) -> tuple[page.Child, ...]:
    decision = event.decision
    why = [sentence(decision), page.details("numbers", page.facts(terms(decision))) if decision.evidence else None]
    verdict = page.badge(decision.verdict, _TONES.get(decision.verdict, ""))
    return units.clock(event.time), decision.subject, page.join(verdict, decision.reason), why


def _writes_section(history: History, summary: Summary) -> Markup:
    kinds = page.table(("kind of file", "writes#"), summary.writes_by_kind.items(), empty="nothing was written")
    newest = list(history.writes)[-MAX_EVENTS:][::-1]
    rows = [
        (units.clock(e.time), page.code(e.step.place), page.code(e.step.value), _outcome(e.step.ok, e.step.error))
        for e in newest
    ]
    table = page.table(("when", "where", "value", "outcome"), rows, stacked=True)
    listed = page.details(f"the newest {len(rows)} writes", table) if rows else None
    return page.section("Writes", kinds, listed)


def _outcome(ok: bool, error: str) -> Markup:
    return page.badge("ok", "good") if ok else page.join(page.badge("refused", "bad"), error)


def _problems_section(history: History) -> Markup:
    problems = [
        (units.clock(e.time), e.problem.object, page.code(e.problem.field), e.problem.why, e.problem.do)
        for e in history.problems.values()
    ]
    foreign = [
        (units.clock(e.time), page.code(e.write.place), page.code(e.write.ours), page.code(e.write.found))
        for e in history.foreign
    ]
    others = (el("h3", "Values changed by others"), page.table(("when", "where", "ours", "found"), foreign))
    table = page.table(_PROBLEM_HEADS, problems, empty="no problems", stacked=True)
    return page.section("Problems", table, *(others if foreign else ()))


def _environment_section(history: History) -> Markup:
    environment = page.facts(history.environment.items())
    settings = page.facts((name, page.code(value)) for name, value in _flat(history.settings))
    return page.section("Environment", environment, page.details("settings", settings))


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings under dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
