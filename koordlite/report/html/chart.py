"""Lines over time as inline SVG that stretches with the page; labels are HTML, so they keep their size on a phone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import msgspec

from koordlite.report.html.page import Markup, el

WIDTH, HEIGHT = 1000, 300
"""Units of the drawing; the page decides how large it is shown."""
_BANDS = 240
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two ticks of the time axis: what reads well on a clock."""
_MOST_TICKS = 6
_MARKS = 120
_MARK_WIDTH, _MARK_TOP, _MARK_HEIGHT = 3, -16, 10
_MARK_WORDS = 8
"""Decisions that one tooltip lists."""


class Line(msgspec.Struct, frozen=True):
    """One series. `color` is a CSS colour or variable; `step` draws a level that holds until the next value."""

    name: str
    color: str
    values: Sequence[float | None]
    step: bool = False
    dashed: bool = False
    area: bool = False
    """Colour the ground under the line."""


class Mark(msgspec.Struct, frozen=True):
    """Something that happened at a moment: drawn above the plot, with its words at the pointer."""

    time: float
    words: str


def timeline(
    times: Sequence[float],
    lines: Sequence[Line],
    *,
    label: str,
    show_time: Callable[[float], str],
    show: Callable[[float], str],
    top: float | None = None,
    height_px: int = 260,
    origin: float = 0.0,
    marks: Sequence[Mark] = (),
) -> Markup:
    """The lines over `times`, a legend, and at every moment a tooltip with all values.

    `label` says to a screen reader what the drawing shows. `top` is the upper end of the axis; by itself it is a round
    number above the largest value. The time axis is labelled at round intervals from `origin`.
    """
    if not times:
        return el("p", "no data", class_="note")
    ceiling = top or nice_ceiling(max((v for line in lines for v in line.values if v is not None), default=1))
    scale = _Scale(times[0], max(times[-1] - times[0], 1e-9), ceiling)
    ticks = round_times(scale.start, scale.start + scale.span, origin)
    marked = " marked" if marks else ""
    drawing = el(
        "svg",
        [el("line", class_="grid", x1=0, x2=WIDTH, y1=HEIGHT * part, y2=HEIGHT * part) for part in _QUARTERS],
        [el("line", class_="grid", x1=scale.x(time), x2=scale.x(time), y1=0, y2=HEIGHT) for time in ticks],
        [_path(line, times, scale) for line in lines],
        list(_bands(times, lines, scale, show_time, show)),
        list(_marks(marks, scale, show_time)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    axis: list[Markup] = [
        el("span", show(ceiling * part), class_="y", style=f"top:{100 * (1 - part):g}%") for part in _QUARTERS
    ]
    for time in ticks:
        percent = round(100 * (time - scale.start) / scale.span, 2)
        # Labels at the ends of the axis stay inside the drawing.
        end = " first" if percent < 2 else " last" if percent > 97 else ""
        axis.append(el("span", show_time(time), class_=f"x{end}", style=f"left:{percent:g}%"))
    samples = [
        el("li", el("span", class_=f"swatch{' dashed' * line.dashed}", style=f"border-color:{line.color}"), line.name)
        for line in lines
    ]
    mark = el("li", el("span", class_="tick"), "a decision changed") if marks else None
    legend = el("ul", samples, mark, class_="legend")
    plot = el("div", drawing, axis, class_=f"chart{marked}", style=f"height:{height_px}px")
    return el("figure", plot, legend, style="margin:0")


def round_times(start: float, end: float, origin: float = 0.0) -> list[float]:
    """At most six times of the span, a round number of seconds, minutes, hours or days apart, counted from `origin`."""
    days = _STEPS[-1] * max(1, math.ceil((end - start) / _STEPS[-1] / (_MOST_TICKS - 1)))
    step = next((step for step in _STEPS if (end - start) / step <= _MOST_TICKS - 1), days)
    first, last = math.ceil((start - origin) / step - 1e-6), math.floor((end - origin) / step + 1e-6)
    return [origin + count * step for count in range(first, last + 1)]


def nice_ceiling(value: float) -> float:
    """The smallest of 1, 2, 4, 6, 8, 10 times a power of ten that is not below `value`: quarters of it read well."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * (1 - 1e-9))


class _Scale(msgspec.Struct, frozen=True):
    start: float
    span: float
    top: float

    def x(self, time: float) -> float:
        return round((time - self.start) / self.span * WIDTH, 1)

    def y(self, value: float) -> float:
        return round(HEIGHT * (1 - min(max(value / self.top, 0.0), 1.0)), 1)


def _path(line: Line, times: Sequence[float], scale: _Scale) -> Iterator[Markup]:
    """The line, above its ground if it has one. A value that is unknown leaves a gap, and nothing is coloured there."""
    points = zip(times, line.values, strict=True)
    strokes: list[str] = []
    for is_known, stretch in itertools.groupby(points, key=lambda point: point[1] is not None):
        corners = [(scale.x(time), scale.y(value or 0)) for time, value in stretch] if is_known else []
        strokes += (
            f"M{x:g} {y:g}" if at == 0 else f"H{x:g}V{y:g}" if line.step else f"L{x:g} {y:g}"
            for at, (x, y) in enumerate(corners)
        )
        if corners and line.area:
            outline = " ".join(f"{x:g},{y:g}" for x, y in corners)
            edge = f"{corners[-1][0]:g},{HEIGHT} {corners[0][0]:g},{HEIGHT}"
            yield el("polygon", class_="area", fill=line.color, points=f"{outline} {edge}")
    dashes = "6 4" if line.dashed else None
    yield el("path", class_="series", stroke=line.color, stroke_dasharray=dashes, d="".join(strokes))


def _bands(
    times: Sequence[float],
    lines: Sequence[Line],
    scale: _Scale,
    show_time: Callable[[float], str],
    show: Callable[[float], str],
) -> Iterator[Markup]:
    """Invisible upright strips that carry the tooltips."""
    stride = max(1, math.ceil(len(times) / _BANDS))
    edges = [scale.x(time) for time in times[::stride]] + [float(WIDTH)]
    for at, (begin, end) in zip(range(0, len(times), stride), itertools.pairwise(edges), strict=True):
        values = [f"{line.name} {show(value)}" for line in lines if (value := line.values[at]) is not None]
        title = el("title", "\n".join([show_time(times[at]), *values]))
        width = round(max(end - begin, 1.0), 1)
        yield el("rect", title, class_="band", x=begin, y=0, width=width, height=HEIGHT)


def _marks(marks: Sequence[Mark], scale: _Scale, show_time: Callable[[float], str]) -> Iterator[Markup]:
    """One mark for all that happened in the same piece of the axis; what was before it is at its start."""
    by_piece: dict[int, list[Mark]] = {}
    for mark in marks:
        part = min(max((mark.time - scale.start) / scale.span, 0.0), 1.0)
        by_piece.setdefault(round(part * _MARKS), []).append(mark)
    for piece, those in sorted(by_piece.items()):
        words = [f"{show_time(mark.time)} {mark.words}" for mark in those[:_MARK_WORDS]]
        more = [f"and {len(those) - _MARK_WORDS} more"] if len(those) > _MARK_WORDS else []
        place = {"x": round(piece * WIDTH / _MARKS - _MARK_WIDTH / 2, 1), "y": _MARK_TOP}
        title = el("title", "\n".join([*words, *more]))
        yield el("rect", title, class_="mark", width=_MARK_WIDTH, height=_MARK_HEIGHT, **place)
