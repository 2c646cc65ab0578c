"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from koordlite.report import node_figures, pods, units, view
from koordlite.report.history import History
from koordlite.report.html import chart, node_parts, page
from koordlite.report.html.chart import Line
from koordlite.report.html.page import Markup, el
from koordlite.report.node_figures import Figures
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
    cpu = chart.timeline(
        [row.time for row in rows],
        node_parts.use_lines(rows),
        label=node_parts.USE_LABEL,
        show_time=_clock(history),
        show=units.cores,
        top=tick.figures.capacity_milli or None,
        height_px=300,
        marks=node_parts.marks(history.decisions, lambda d: d.subject == "besteffort" or d.verdict == "evict"),
    )
    limits = page.details("limits, pools and cache", node_parts.facts(view.limits(tick)))
    ran = f"{units.span(summary.seconds)} in {summary.ticks} ticks, ended {units.moment(tick.wall)}"
    return page.page(
        title,
        _tiles(tick, summary),
        page.section("CPU", cpu, note=node_parts.USE_NOTE),
        _allocatable_section(rows, history),
        _problems_section(history),
        node_parts.pods_section(pods.of(tick, history.decisions), first_rows=PODS_SHOWN, longest=70),
        page.section("CPUs and cache at the end", *node_parts.cpu_map(tick.cpus), limits),
        node_parts.section(history),
        _record_section(history, summary),
        lead=[node_parts.status_badge(tick), page.join(f" node {tick.node or 'unknown'}, {ran}", view.because(tick))],
        foot="Made by koordlite. All numbers are also in the JSON report next to this page.",
        script=page.FILTER_SCRIPT,
    )


def thinned(rows: Sequence[T], limit: int) -> list[T]:
    """At most about `limit` rows, evenly chosen, always with the last."""
    stride = -(-len(rows) // limit) or 1
    even = list(rows[::stride])
    return even if not rows or even[-1] is rows[-1] else [*even, rows[-1]]


def _clock(history: History) -> Callable[[float], str]:
    """A moment of the run as the page shows it: by the wall clock of its last tick."""
    tick = history.last or Tick(time=0.0)
    return lambda time: units.stamp(time, tick.wall and tick.wall - tick.time + time)


def _tiles(tick: Tick, summary: Summary) -> Markup:
    above, whole = units.span(summary.seconds_above_threshold), units.span(summary.seconds)
    well, threshold = units.span(summary.seconds_well_above_threshold), units.cores(tick.figures.threshold_milli)
    late = (
        f"over {threshold} cores {node_figures.WELL} for {well} in all, the rest with BE at the two CPUs it keeps; "
        f"over it at all: {above} of {whole}; {node_figures.WHY}"
    )
    limit = units.cores_between(summary.be_limit_min, summary.be_limit_max)
    of_limit = page.tile("Limit of BE, cores", limit, f"of {units.cores(tick.figures.capacity_milli)}")
    if summary.would_limit_min is not None:
        would = units.cores_between(summary.would_limit_min, summary.would_limit_max)
        of_limit = page.tile("Would limit BE to, cores", would, f"nothing is limited yet: BE may use {limit}")
    most = sorted(summary.writes_by_kind.items(), key=lambda item: (-item[1], item[0]))
    kinds = [f"{kind} {count}" for kind, count in most[:3]] + ["…"] * (len(most) > 3)
    foreign, refused = summary.foreign_writes, summary.refusals
    used, allowed = f"{summary.be_core_hours_used:.2f}", f"{summary.be_core_hours_allowed:.2f} were allowed"
    mean, slowest = units.span(summary.tick_seconds_mean), f"{units.span(summary.tick_seconds_max)} at most"
    return page.tiles(
        page.tile("Given to BE, core hours", used, allowed),
        page.tile(
            "Over the threshold, BE not yet at its least",
            units.span(summary.seconds_late),
            late,
            tone="good" if summary.in_time else "bad",
        ),
        of_limit,
        node_parts.offer_tile(tick),
        page.tile("Writes", summary.writes, ", ".join(kinds) or "none"),
        page.tile("Refused", refused, "by the kernel or the API server", tone="bad" if refused else "good"),
        page.tile("Changed by others", foreign, "values we set", tone="warn" if foreign else "good"),
        page.tile("A tick costs", mean, slowest),
    )


def _allocatable_section(rows: Sequence[Figures], history: History) -> Markup:
    drawings = [
        drawing
        for heading, resource, unit in (("CPU, cores", "batch-cpu", 1000), ("Memory, GiB", "batch-memory", 1 << 30))
        if (drawing := _offer(heading, resource, unit, rows, history))
    ]
    if not drawings:
        why = "Nothing: no batch-cpu or batch-memory was on the Node in this run, and beAllocatable decided on none."
        return page.section("What BE pods may request", note=why)
    return page.section("What BE pods may request", el("div", *drawings, class_="pair"))


def _offer(heading: str, resource: str, unit: int, rows: Sequence[Figures], history: History) -> Markup | None:
    """A chart of the offer, dashed where it is only observed; a line without any value is left out, and a chart without
    lines is None."""
    lines, field = [], resource.replace("-", "_")
    for name, of, dashed in ((resource, field, False), (f"would offer {resource}", f"would_{field}", True)):
        amounts = [getattr(row, of) for row in rows]
        values = [None if amount is None else amount / unit for amount in amounts]
        if any(value is not None for value in values):
            lines.append(Line(name, "var(--be)", values, step=True, dashed=dashed))
    if not lines:
        return None
    drawing = chart.timeline(
        [row.time for row in rows],
        lines,
        label=f"{', '.join(line.name for line in lines)} over time",
        show_time=_clock(history),
        show=lambda value: f"{value:.1f}",
        height_px=120,
        marks=node_parts.marks(history.decisions, lambda decision: decision.subject.endswith(f"/{resource}")),
    )
    return el("div", el("h3", heading), drawing)


def _record_section(history: History, summary: Summary) -> Markup:
    """Details for few readers, to open."""
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
    settings = page.facts((name, page.code(value)) for name, value in _flat(history.settings))
    return page.section(
        "For the record",
        page.details("writes by kind of file", kinds),
        page.details(f"the newest {len(rows)} writes", table) if rows else None,
        page.details("environment", page.facts(history.environment.items())),
        page.details("settings", settings),
    )


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
    changed = page.table(("when (UTC)", "where", "ours", "found"), foreign)
    table = page.table(("since (UTC)", *node_parts.PROBLEM_HEADS), problems, empty="no problems", stacked=True)
    return (
        page.section("Problems", table, *((el("h3", "Values changed by others"), changed) if foreign else ()))
        if problems or foreign
        else None
    )


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings under dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
