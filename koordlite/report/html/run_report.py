"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from koordlite.report import pods, present, units, view
from koordlite.report.history import History
from koordlite.report.html import chart, node_parts, page
from koordlite.report.html.chart import Line
from koordlite.report.html.page import Markup, el
from koordlite.report.present import Figures
from koordlite.report.summary import Summary
from koordlite.report.tick import Tick

T = TypeVar("T")
MAX_POINTS = 720
MAX_EVENTS = 200
PODS_SHOWN = 8


def document(history: History, *, title: str = "koordlite run") -> str:
    """The page for everything `history` remembers."""
    tick, summary = history.last, history.summary()
    if tick is None:
        return page.page(title, page.section("Nothing happened", el("p", "The run ended before its first tick.")))
    rows = thinned(node_parts.measured(history.rows), MAX_POINTS)
    return page.page(
        title,
        _tiles(tick, summary),
        _cpu_section(rows, tick, history),
        _allocatable_section(rows, history),
        _problems_section(history),
        node_parts.pods_section(pods.of(tick, history.decisions), shown=PODS_SHOWN, longest=70),
        _machine_section(tick),
        node_parts.section(history),
        _record_section(history, summary),
        lead=_lead(tick, summary),
        foot="Made by koordlite. All numbers are also in the JSON report next to this page.",
        script=page.FILTER_SCRIPT,
    )


def thinned(rows: Sequence[T], limit: int) -> list[T]:
    """At most about `limit` rows, evenly chosen, always with the last."""
    stride = -(-len(rows) // limit) or 1
    chosen = list(rows[::stride])
    return chosen if not rows or chosen[-1] is rows[-1] else [*chosen, rows[-1]]


def _clock(history: History) -> Callable[[float], str]:
    """A moment of the run as the page shows it: by the wall clock of its last tick."""
    tick = history.last or Tick(time=0.0)
    return lambda time: units.stamp(time, tick.wall and tick.wall - tick.time + time)


def _lead(tick: Tick, summary: Summary) -> list[Markup]:
    ran = f"{units.span(summary.seconds)} in {summary.ticks} ticks, ended {units.moment(tick.wall)}"
    return [node_parts.status_badge(tick), page.join(f" node {tick.node or 'unknown'}, {ran}", view.because(tick))]


def _tiles(tick: Tick, summary: Summary) -> Markup:
    above, whole = units.span(summary.seconds_above_threshold), units.span(summary.seconds)
    late, well = summary.seconds_late, summary.seconds_well_above_threshold
    threshold = tick.figures.threshold_milli
    note = (
        f"over {units.cores(threshold)} cores {present.WELL} for {units.span(well)} in all, the rest "
        f"with BE at the two CPUs it keeps; over it at all: {above} of {whole}; {present.WHY}"
    )
    tone = "good" if summary.in_time else "bad"
    used, allowed = f"{summary.be_core_hours_used:.2f}", f"{summary.be_core_hours_allowed:.2f} were allowed"
    mean, most = units.span(summary.tick_seconds_mean), f"{units.span(summary.tick_seconds_max)} at most"
    others, refused = summary.foreign_writes, summary.refusals
    return page.tiles(
        page.tile("Given to BE, core hours", used, allowed),
        page.tile("Over the threshold, BE not yet at its least", units.span(late), note, tone=tone),
        _limit_tile(tick, summary),
        node_parts.offer_tile(tick),
        page.tile("Writes", summary.writes, _kinds(summary)),
        page.tile("Refused", refused, "by the kernel or the API server", tone="bad" if refused else "good"),
        page.tile("Changed by others", others, "values we set", tone="warn" if others else "good"),
        page.tile("A tick costs", mean, most),
    )


def _limit_tile(tick: Tick, summary: Summary) -> Markup:
    held = units.cores_between(summary.be_limit_min, summary.be_limit_max)
    if summary.would_limit_min is None:
        return page.tile("Limit of BE, cores", held, f"of {units.cores(tick.figures.capacity_milli)}")
    would = units.cores_between(summary.would_limit_min, summary.would_limit_max)
    return page.tile("Would limit BE to, cores", would, f"nothing is limited yet: BE may use {held}")


def _kinds(summary: Summary) -> str:
    """The three most frequent; all are in a table below."""
    most = sorted(summary.writes_by_kind.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{kind} {count}" for kind, count in most[:3]] + ["…"] * (len(most) > 3)
    return ", ".join(shown) or "none"


def _cpu_section(rows: Sequence[Figures], tick: Tick, history: History) -> Markup:
    drawing = chart.timeline(
        [row.time for row in rows],
        node_parts.use_lines(rows),
        label=node_parts.USE_LABEL,
        show_time=_clock(history),
        show=units.cores,
        top=tick.figures.capacity_milli or None,
        height_px=300,
        marks=node_parts.marks(history.decisions, node_parts.about_limit),
    )
    return page.section("CPU", drawing, note=node_parts.USE_NOTE)


def _allocatable_section(rows: Sequence[Figures], history: History) -> Markup:
    cpu = _offers("batch-cpu", "var(--be)", [(row.batch_cpu, row.would_batch_cpu) for row in rows], 1000)
    gib = _offers("batch-memory", "var(--be)", [(row.batch_memory, row.would_batch_memory) for row in rows], 1 << 30)
    if not cpu and not gib:
        why = "Nothing: no batch-cpu or batch-memory was on the Node in this run, and beAllocatable decided on none."
        return page.section("What BE pods may request", note=why)
    both = (("CPU, cores", "/batch-cpu", cpu), ("Memory, GiB", "/batch-memory", gib))
    drawn = [el("div", el("h3", name), _offer(rows, lines, of, history)) for name, of, lines in both if lines]
    return page.section("What BE pods may request", el("div", *drawn, class_="pair"))


def _offers(name: str, color: str, values: Sequence[tuple[int | None, int | None]], unit: int) -> list[Line]:
    """Lines of the offer, dashed where it is only observed; one without any value is left out."""
    both = zip(*values, strict=True) if values else ()
    scaled = [[None if value is None else value / unit for value in series] for series in both]
    made = (
        Line(words, color, series, step=True, dashed=dashed)
        for series, (words, dashed) in zip(scaled, ((name, False), (f"would offer {name}", True)), strict=False)
    )
    return [line for line in made if any(value is not None for value in line.values)]


def _offer(rows: Sequence[Figures], lines: Sequence[Line], resource: str, history: History) -> Markup:
    return chart.timeline(
        [row.time for row in rows],
        lines,
        label=f"{', '.join(line.name for line in lines)} over time",
        show_time=_clock(history),
        show=lambda value: f"{value:.1f}",
        height_px=120,
        marks=node_parts.marks(history.decisions, lambda decision: decision.subject.endswith(resource)),
    )


def _machine_section(tick: Tick) -> Markup:
    cells = node_parts.cpu_map(tick.cpus)
    limits = page.details("limits, pools and cache", node_parts.facts(view.limits(tick)))
    return page.section("CPUs and cache at the end", *cells, limits)


def _record_section(history: History, summary: Summary) -> Markup:
    """Details for few readers, to open."""
    environment = page.details("environment", page.facts(history.environment.items()))
    pairs = ((name, page.code(value)) for name, value in _flat(history.settings))
    settings = page.details("settings", page.facts(pairs))
    return page.section("For the record", *_writes(history, summary), environment, settings)


def _writes(history: History, summary: Summary) -> Iterator[Markup]:
    kinds = page.table(("kind of file", "writes#"), summary.writes_by_kind.items(), empty="nothing was written")
    newest, clock = list(history.writes)[-MAX_EVENTS:][::-1], _clock(history)
    rows = [
        (
            clock(time),
            page.code(str(step.place)),
            page.code(step.value),
            page.badge("ok", "good") if step.ok else page.join(page.badge("refused", "bad"), step.error),
        )
        for time, step in newest
    ]
    table = page.table(("when (UTC)", "where", "value", "outcome"), rows, stacked=True)
    yield page.details("writes by kind of file", kinds)
    if rows:
        yield page.details(f"the newest {len(rows)} writes", table)


def _problems_section(history: History) -> Markup | None:
    """Open where there is something wrong; else the tiles have said it."""
    clock = _clock(history)
    problems = [
        (clock(time), problem.object, page.code(problem.field), problem.why, problem.do)
        for problem, time in history.problems.items()
    ]
    foreign = [
        (clock(time), page.code(str(write.place)), page.code(write.ours), page.code(write.found))
        for time, write in history.foreign
    ]
    others = (el("h3", "Values changed by others"), page.table(("when (UTC)", "where", "ours", "found"), foreign))
    table = page.table(("since (UTC)", *node_parts.PROBLEM_HEADS), problems, empty="no problems", stacked=True)
    return page.section("Problems", table, *(others if foreign else ())) if problems or foreign else None


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings under dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
