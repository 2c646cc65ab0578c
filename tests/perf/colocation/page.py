"""Results as an HTML page, and as one figure that stands alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from koordlite.report.html import page
from koordlite.report.html.page import Markup, el
from tests.perf.colocation import goals, loads, measure, results, ways
from tests.perf.colocation.results import Results, Row, rows

TITLE = "A service and batch work on one machine"
LEADING = ("compute, steady beside compute", "memory, steady beside stream")
"""The loads of the figure that leads the README."""
INK, SOFT, LINE, GROUND = "#1d2327", "#5b6670", "#dfe3e6", "#ffffff"
SERVICE_COLOR, BATCH_COLOR = "#1f6fd6", "#b85c08"
CURVES = ("#1d2327", "#187546", "#7b3fc4", "#b3261e", "#b85c08", "#1f6fd6", "#0a7f7f", "#c0267e", "#746000", "#86616f")
SYSTEM_FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
_SLOWEST = 1e-3
"""The curves end at the slowest of so many requests."""
ROW_PX, LABEL_PX, BAR_PX, GAP_PX, TOP_PX = 26, 270, 260, 80, 58


def words(name: str) -> str:
    """A way for readers who have not seen its name on the command line."""
    way = ways.parse(name)
    settings = ", ".join(f"{key.partition('.')[2] or key} {value}" for key, value in way.settings.items())
    base = {
        "alone": "the service alone",
        "plain": "Kubernetes groups, no agent",
        "idle": "best effort idle, no agent",
        "slices": f"slices of {way.word} ms, no agent",
        "static": f"a quota that never changes{f' ({way.word} CPUs)' if way.word else ''}",
        "koordinator": f"Koordinator's algorithm, {way.word}",
        "agent": f"koordlite, {way.word}" + (f" p99 {way.p99_to_alone:g} × alone" if way.has_objective else ""),
    }[way.kind]
    return f"{base}, {settings}" if settings else base


def groups(table: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each load, with its name."""
    for _, those in itertools.groupby(table, key=lambda row: (row.service, row.pattern, row.batch)):
        load = list(those)
        yield results.load_name(load[0]), load


def summary(title: str, table: Sequence[Row], *, only: Sequence[str]) -> str:
    """The figure of the loads named in `only`, or of all, as a file."""
    chosen = [
        (name, rows) for name, rows in groups(results.as_shipped(table)) if rows[0].batch and name in (only or [name])
    ]
    return f"{figure(title, chosen)}\n"


def figure(title: str, loads_of: Sequence[tuple[str, Sequence[Row]]]) -> Markup:
    """p99 of the service and CPUs of batch work as bars, a row a way; it needs no style sheet."""
    slowest = max((row.p99 for _, table in loads_of for row in table), default=1.0)
    most = max((row.batch_cpus for _, table in loads_of for row in table), default=1.0)
    y, parts = TOP_PX if title else 0, []
    for name, table in loads_of:
        parts.append(_text(0, y + 17, name, weight=600))
        y += ROW_PX
        parts.append(_text(LABEL_PX, y + 17, "p99 of the service, ms", fill=SERVICE_COLOR))
        parts.append(_text(LABEL_PX + BAR_PX + GAP_PX, y + 17, "CPUs that batch work got", fill=BATCH_COLOR))
        y += ROW_PX
        for row in table:
            parts.append(_text(0, y + 17, words(row.way), fill=SOFT))
            p99, got = row.p99 / slowest * BAR_PX, row.batch_cpus / (most or 1) * BAR_PX
            parts += _bar(LABEL_PX, y, p99, SERVICE_COLOR, f"{row.p99:.1f}")
            if row.way != "alone":
                parts += _bar(LABEL_PX + BAR_PX + GAP_PX, y, got, BATCH_COLOR, f"{row.batch_cpus:.2f}")
            y += ROW_PX
        y += 14
    width = LABEL_PX + 2 * (BAR_PX + GAP_PX)
    return el(
        "svg",
        el("title", title or "p99 of the service and CPUs of batch work, by way"),
        el("rect", x=-16, y=0, width=width + 32, height=y + 8, fill=GROUND),
        _text(0, 34, title, size=18, weight=650) if title else None,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"-16 0 {width + 32} {y + 8}",
        font_family=SYSTEM_FONT,
        role="img",
    )


def _text(x: float, y: float, text: str, *, size: int = 14, fill: str = INK, weight: int = 400) -> Markup:
    return el("text", text, x=x, y=y, font_size=size, fill=fill, font_weight=weight)


def _bar(x: float, y: float, width: float, color: str, value: str) -> list[Markup]:
    return [
        el("rect", x=x, y=y + 5, width=round(max(width, 1), 1), height=ROW_PX - 10, fill=color, rx=2),
        _text(round(x + width + 6, 1), y + 17, value, size=13),
    ]


def curves(table: Sequence[Row]) -> Markup:
    """For each way, which part of requests took longer than a time; both axes are logarithmic."""
    width, height = 900, 320
    longest = max(max(row.histogram, default=0) for row in table)
    shortest = min(min(row.histogram, default=0) for row in table)
    low, high = math.floor(shortest / measure.BINS_A_DECADE), math.ceil(longest / measure.BINS_A_DECADE)

    def x(number: float) -> float:
        return round((number / measure.BINS_A_DECADE - low) / (high - low) * width, 1)

    def y(part: float) -> float:
        return round(math.log10(max(part, _SLOWEST)) / math.log10(_SLOWEST) * height, 1)

    grid = [
        *(el("line", class_="grid", x1=0, x2=width, y1=y(part), y2=y(part)) for part in (1, 0.5, 0.1, 0.01, 0.001)),
        *(
            el("line", class_="grid", x1=x(d * measure.BINS_A_DECADE), x2=x(d * measure.BINS_A_DECADE), y1=0, y2=height)
            for d in range(low, high + 1)
        ),
    ]
    labels = [
        *(_text(-8, y(p) + 4, f"{p:.1%}", size=12, fill="var(--soft)") for p in (0.5, 0.1, 0.01, 0.001)),
        *(
            _text(x(d * measure.BINS_A_DECADE), height + 18, f"{10**d / 1000:g} ms", size=12, fill="var(--soft)")
            for d in range(low, high + 1)
        ),
    ]
    for label in range(4):
        labels[label] = Markup(labels[label].replace("<text ", '<text text-anchor="end" '))
    colors = dict(zip([row.way for row in table], itertools.cycle(CURVES), strict=False))
    lines = [
        el("polyline", class_="series", stroke=_both(colors[row.way]), points=_points(row.histogram, x, y))
        for row in table
    ]
    key = el(
        "ul",
        *(
            el("li", el("span", class_="swatch", style=f"border-color:{_both(colors[row.way])}"), words(row.way))
            for row in table
        ),
        class_="legend",
    )
    drawing = el(
        "svg",
        *grid,
        *labels,
        *lines,
        viewBox=f"-60 -10 {width + 90} {height + 40}",
        role="img",
        aria_label="share of requests that took longer than a time, a curve a way",
    )
    return el("figure", drawing, key, style="margin:0")


def _both(color: str) -> str:
    """Ink in the colour of the reader's theme."""
    return "var(--ink)" if color == INK else color


def _points(histogram: Mapping[int, int], x: object, y: object) -> str:
    assert callable(x) and callable(y)
    total = left = sum(histogram.values())
    points = []
    for number in sorted(histogram):
        points.append(f"{x(number)},{y(left / total)}")
        left -= histogram[number]
    return " ".join(points)


def document(found: Results) -> str:
    """The whole page."""
    table = rows(found.kept())
    head = found.header
    thrown = [run for run in found.runs if run.thrown_away]
    machine = f"{head.cpus} CPUs, {head.processor}, Linux {head.kernel}. " if head else ""
    lead = f"{machine}{results.trust(found)}"
    return page.page(
        "Services and batch work on one machine",
        page.section("Goals", *_goals(table), note="Each from runs that took turns. A dash: not measured."),
        *(_section(name, those) for name, those in groups(table)),
        page.section(
            "Thrown away", page.details(f"{len(thrown)} runs", el("ul", [el("li", _thrown(run)) for run in thrown]))
        ),
        lead=lead,
        foot="Latency counts from when a request was due, whether the client or the service was late. "
        "The client is real, open-loop and of real-time priority; arrivals are the same in every way.",
    )


def _thrown(run: measure.Result) -> str:
    return f"{run.service} {run.pattern} {run.batch} {run.way}, round {run.seed}: {run.thrown_away}"


def _goals(table: Sequence[Row]) -> Iterable[Markup]:
    judged = goals.judge(table)
    lines = [
        [
            page.badge("met" if each.met else "missed" if each.met is False else "–", _tone(each.met)),
            each.load,
            each.words,
            each.figures,
        ]
        for each in judged
    ]
    yield page.table(["", "load", "goal", "measured"], lines, stacked=True)


def _tone(met: bool | None) -> str:
    return "" if met is None else "good" if met else "bad"


def _section(name: str, table: Sequence[Row]) -> Markup:
    service, batch = loads.SERVICES[table[0].service], loads.BATCHES.get(table[0].batch)
    about = f"{service.about}, {service.rate:g} requests a second" + (f"; batch: {batch.about}" if batch else "")
    heads = [
        "way",
        "p50 ms#",
        "p99#",
        "p99.9#",
        "rounds' p99#",
        "p99 × alone#",
        "batch CPUs#",
        "budget#",
        "of it#",
        "rounds#",
    ]
    lines = [
        [
            words(row.way),
            f"{row.p50:.2f}",
            f"{row.p99:.2f}",
            f"{row.p999:.2f}",
            f"{row.p99_span[0]:.2f}–{row.p99_span[1]:.2f}",
            "–" if math.isnan(row.p99_ratio) else f"{row.p99_ratio:.2f}",
            *(
                ["–", "–", "–"]
                if row.way == "alone"
                else [f"{row.batch_cpus:.2f}", f"{row.budget_cpus:.2f}", f"{row.of_budget:.0%}"]
            ),
            row.rounds,
        ]
        for row in table
    ]
    bars = figure("", [(name, table)])
    return page.section(name, bars, page.table(heads, lines), curves(table), note=about)
