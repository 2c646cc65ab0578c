"""The live view of a running agent, and the same as text, frame by frame."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, cast

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from koordlite.model import printable
from koordlite.report import pod_rows, pods, units, view
from koordlite.report.history import DecisionEvent, Remembered
from koordlite.report.node_figures import CPUCell, Figures
from koordlite.report.pod_rows import PodRow
from koordlite.report.sentence import sentence
from koordlite.report.terminal import canvas
from koordlite.report.tick import Tick

NODE, PROD, BE, LIMIT, THRESHOLD = "bright_black", "dodger_blue1", "dark_orange", "bold", "magenta"
OWNERS = {
    "reserved": ("#", "black on grey62"),
    "system": ("S", "black on grey42"),
    "LSE": ("E", "white on purple"),
    "LSR": ("R", "black on dark_cyan"),
    "LS": ("·", "white on dodger_blue3"),
}
"""Letter and colours of a CPU by owner, so that the map reads without colours too."""
SHARED = ("b", "black on dark_orange")
"""A CPU that best-effort pods may use."""
_STYLES = {"good": "green", "info": "cyan", "warn": "yellow", "bad": "bold red"}
_WIDE = 120
_EVENTS = 16
_LEAST_ROWS = 3
_HIGH = 40
"""Height from which a frame has a table of pods."""
_LONG = 40
"""Characters of a pod's name that are shown."""
_AXIS = 6
_NAME = 16
_HARD_SPACE = "\N{NO-BREAK SPACE}"


def render(
    title: str, tick: Tick, past: Remembered, *, width: int, height: int, with_pods: bool = True
) -> RenderableType:
    """The frame for `tick`; two columns from 120 characters on. The state is shown where it fits, then the busiest
    pods, then decisions; the chart gets the height that is left."""
    header = Text(no_wrap=True, overflow="ellipsis")
    header.append(printable.one_line(" ".join(filter(None, (tick.node, title)))) or "koordlite", "bold")
    header.append("  ").append(tick.status, _STYLES.get(view.STATUS_TONES.get(tick.status, ""), ""))
    header.append(view.because(tick)).append(f"  {units.when(tick.time, tick.wall)}", "bold")
    header.append(f"  tick {units.span(tick.tick_seconds)}", "dim")
    busiest = pods.of(tick, past.events) if with_pods else ()
    trouble, table = list(_trouble(tick)), list(_pods(busiest, width, height))
    lines = height - 1 - len(trouble) - sum(part.row_count + 1 if isinstance(part, Table) else 1 for part in table)
    state = [*_cpu_map(tick), Text()]
    for fact in (*view.limits(tick), *view.pressure(tick), *view.paused(tick)):
        state.append(Text(overflow="fold").append(f"{fact.name:<{_NAME - 1}} ", "dim").append(fact.value))
    drawn = [*(row for row in past.rows if row.time < tick.time), tick.figures]
    if not view.threshold(tick):
        drawn = [dataclasses.replace(each, threshold_milli=None) for each in drawn]
    # Zones follow the node: left out.
    decisions = [event for event in past.events if event.decision.kind != "zone"]
    body = _wide if width >= _WIDE else _narrow
    return Group(header, *body(drawn, state, decisions, width, lines), *table, *trouble)


def _wide(
    ticks: Sequence[Figures], state: list[Text], events: Sequence[DecisionEvent], width: int, lines: int
) -> Iterator[RenderableType]:
    """The state beside the chart, the decisions below both."""
    right = min(width // 2 - 4, 52)
    below = _many(events, lines - max(_lines(state, right), _LEAST_ROWS + 1), at_most=lines * 2 // 5)
    high = lines - below - (1 if below else 0)
    for line in state if _lines(state, right) > high else ():
        line.truncate(right, overflow="ellipsis")
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(width=right)
    grid.add_row(_chart(ticks, width - right - 2, max(_LEAST_ROWS, high - 1)), Group(*state[:high]))
    yield grid
    if below:
        yield from (Text(), _decisions(events, width=width, lines=below))


def _narrow(
    ticks: Sequence[Figures], state: list[Text], events: Sequence[DecisionEvent], width: int, lines: int
) -> Iterator[RenderableType]:
    """Chart, state, decisions, one under the other; the chart alone where the state does not fit below it."""
    least = 1 + _LEAST_ROWS
    if least + len(state) > lines:
        yield _chart(ticks, width, max(_LEAST_ROWS, lines - 1))
        return
    if least + _lines(state, width) + 2 > lines:
        for line in state:
            line.truncate(width, overflow="ellipsis")
    free = lines - _lines(state, width)
    below = _many(events, free - least, at_most=free * 3 // 5)
    yield _chart(ticks, width, free - 1 - below - (1 if below else 0))
    yield from state
    if below:
        yield from (Text(), _decisions(events, width=width, lines=below))


def _many(events: Sequence[DecisionEvent], lines: int, *, at_most: int) -> int:
    """Number of decisions shown below a blank line where so many lines are free."""
    return max(0, min(len(events), _EVENTS, lines - 1, max(1, at_most)))


def _pods(rows: Sequence[PodRow], width: int, height: int) -> Iterator[Text | Table]:
    """The busiest pods, where the frame is high enough for them, and how many are not shown."""
    if not rows:
        return
    if height < _HIGH:
        words = f"{units.count(len(rows), 'pod')}: koordlite top lists them"
        yield Text(words, "dim", no_wrap=True, overflow="ellipsis")
        return
    yield Text()
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, width=width, header_style="dim")
    for column in pod_rows.COLUMNS:
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        last = column is pod_rows.COLUMNS[-1]
        grid.add_column(
            column.title, justify=justify, no_wrap=True, overflow="ellipsis", ratio=1 if last else None, max_width=_LONG
        )
    for row in rows[: height // 5]:
        grid.add_row(*(Text(column.show(row)) for column in pod_rows.COLUMNS))
    yield grid
    if rows[height // 5 :]:
        yield Text(f"and {len(rows) - height // 5} more: koordlite top", "dim", no_wrap=True, overflow="ellipsis")


def _lines(texts: Sequence[Text], width: int) -> int:
    """Number of lines the texts take when they are folded."""
    return sum(max(1, -(-len(text.plain) // width)) for text in texts)


def _chart(ticks: Sequence[Figures], width: int, height: int) -> Group:
    """Use over time against the limit, with an axis in cores and a legend that carries the newest numbers."""
    top = max((t.capacity_milli for t in ticks), default=0) or 1000
    lines = (
        canvas.Series("node", NODE, [t.node_cpu for t in ticks]),
        canvas.Series("LS", PROD, [t.prod_cpu for t in ticks]),
        canvas.Series("BE", BE, [t.be_cpu for t in ticks]),
        canvas.Series("BE limit", LIMIT, [t.be_limit for t in ticks]),
        canvas.Series("would be", LIMIT, [t.would_limit for t in ticks], dots=(2, 4)),
        canvas.Series("threshold", THRESHOLD, [t.threshold_milli for t in ticks], dots=(1, 4)),
    )
    series = [line for line in lines if any(value is not None for value in line.values)]
    grid = canvas.draw(series, width=max(10, width - _AXIS), height=height, top=top)
    marks = {0: top, height // 2: top * (height - 1 - height // 2) // (height - 1), height - 1: 0}
    rows = [Text(f"{units.cores(marks[i]) if i in marks else '':>5} ", "dim", no_wrap=True) for i in range(height)]
    for line, row in zip(rows, grid, strict=True):
        for style, cells in itertools.groupby(row, key=lambda cell: cell.style):
            line.append("".join(cell.char for cell in cells), style)
    return Group(_legend(series, width), *rows)


def _legend(series: Sequence[canvas.Series], width: int) -> Text:
    """Names and newest numbers; closer together where they would not fit."""
    for swatch, gap, prefix in ((2, "  ", ""), (1, " ", ""), (1, " ", "BE ")):
        legend = Text("CPU").append(gap)
        for line in series:
            name = line.name.removeprefix(prefix)
            legend.append(({(1, 1): "─", (2, 4): "╌", (1, 4): "┈"}[line.dots]) * swatch, line.style)
            legend.append(f"{gap[1:]}{name} {units.cores(line.values[-1])}{gap}")
        if len(legend.plain.rstrip()) <= width:
            break
    legend.no_wrap = True
    return legend


def _cpu_map(tick: Tick) -> Iterator[Text]:
    """One line a NUMA node, one letter a CPU, a gap after every eighth; then what the letters mean."""
    if not tick.cpus:
        return
    yield Text()
    for node, cells in itertools.groupby(sorted(tick.cpus, key=lambda c: (c.node, c.cpu)), key=lambda c: c.node):
        line = Text(f"NUMA {node}  ", no_wrap=False)
        for index, cell in enumerate(cells):
            line.append(" " if index and index % 8 == 0 else "").append(*_letter(cell))
        yield line
    key = Text("        ")
    present = {_letter(cell): cell for cell in tick.cpus}
    for letter, cell in sorted(present.items(), key=lambda item: [*OWNERS].index(item[1].owner)):
        key.append(*letter).append(f" {view.cpu(cell)}".replace(" ", _HARD_SPACE)).append("  ")
    yield key


def _letter(cell: CPUCell) -> tuple[str, str]:
    if not cell.best_effort:
        return OWNERS[cell.owner]
    return SHARED if cell.owner == "LS" else (OWNERS[cell.owner][0].lower(), SHARED[1])


def _decisions(events: Sequence[DecisionEvent], *, width: int, lines: int) -> Table:
    """The newest last, each on one line beside its time; as many as `lines`."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", style="dim", no_wrap=True, min_width=14)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(20, width - 25))
    for event in events[-lines:]:
        decision = event.decision
        verdict = Text(decision.verdict, _STYLES.get(view.VERDICT_TONES.get(decision.verdict, ""), "bold"))
        about = Text(f"{printable.one_line(decision.subject)}: ", "bold").append(sentence(decision), "not bold")
        grid.add_row(units.stamp(event.time, event.wall), verdict, about)
    return grid


def _trouble(tick: Tick) -> Iterator[Text]:
    for problem in tick.problems[:2]:
        yield Text(f"! {problem}", "yellow", overflow="ellipsis", no_wrap=True)
    for step in [step for step in tick.applied if not step.ok][:2]:
        words = printable.one_line(f"{step.place} ← {step.value}: {step.error}")
        yield Text(f"! refused: {words}", "red", overflow="ellipsis", no_wrap=True)


COLORS = ("", "standard", "256", "truecolor")
"""Colour systems of terminals; empty: no colours."""
_Colors = Literal["standard", "256", "truecolor"]


def frame(tick: Tick, past: Remembered, *, width: int, height: int, colors: str = "", with_pods: bool = True) -> str:
    """One frame of this size; ValueError when `colors` is none of `COLORS`."""
    if colors not in COLORS:
        raise ValueError(f"color is {colors!r}; it may be {', '.join(COLORS[1:])}")
    written = io.StringIO()
    console = Console(
        file=written,
        width=width,
        height=height,
        color_system=cast("_Colors", colors) if colors else None,
        force_terminal=bool(colors),
        legacy_windows=False,
        highlight=False,
    )
    console.print(render("", tick, past, width=width, height=height, with_pods=with_pods))
    return written.getvalue()
