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
    drawing = el(
        "svg",
        [_grid_line(part) for part in _QUARTERS],
        [_upright(scale.x(time)) for time in ticks],
        [_path(line, times, scale) for line in lines],
        list(_bands(times, lines, scale, show_time, show)),
        list(_marks(marks, scale, show_time)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    axes = _axes(scale, ticks, show_time, show)
    plot = el("div", drawing, axes, class_="chart marked" if marks else "chart", style=f"height:{height_px}px")
    return el("figure", plot, legend(lines, marks=bool(marks)), style="margin:0")


def legend(lines: Sequence[Line], *, marks: bool = False) -> Markup:
    """Names of the lines with a sample of each."""
    mark = el("li", el("span", class_="tick"), "a decision changed") if marks else None
    return el("ul", [el("li", _swatch(line), line.name) for line in lines], mark, class_="legend")


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


def _path(line: Line, times: Sequence[float], scale: _Scale) -> list[Markup]:
    """The line, above its ground if it has one."""
    drawn = "".join(_strokes(line, times, scale))
    dashes = "6 4" if line.dashed else None
    stroke = el("path", class_="series", stroke=line.color, stroke_dasharray=dashes, d=drawn)
    return [*_ground(line, times, scale), stroke]


def _strokes(line: Line, times: Sequence[float], scale: _Scale) -> Iterator[str]:
    """Path commands; a value that is unknown leaves a gap."""
    pen_down = False
    for time, value in zip(times, line.values, strict=True):
        if value is not None:
            x, y = scale.x(time), scale.y(value)
            yield f"M{x:g} {y:g}" if not pen_down else f"H{x:g}V{y:g}" if line.step else f"L{x:g} {y:g}"
        pen_down = value is not None


def _ground(line: Line, times: Sequence[float], scale: _Scale) -> Iterator[Markup]:
    """One outline for each stretch of known values: nothing is coloured where nothing is known."""
    known = itertools.groupby(zip(times, line.values, strict=True), key=lambda point: point[1] is not None)
    for stretch in (list(points) for is_known, points in known if is_known and line.area):
        outline = " ".join(f"{scale.x(time):g},{scale.y(value or 0):g}" for time, value in stretch)
        edge = f"{scale.x(stretch[-1][0]):g},{HEIGHT} {scale.x(stretch[0][0]):g},{HEIGHT}"
        yield el("polygon", class_="area", fill=line.color, points=f"{outline} {edge}")


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
    for index, left in enumerate(edges[:-1]):
        at = index * stride
        known = [f"{line.name} {show(value)}" for line in lines if (value := line.values[at]) is not None]
        title = el("title", "\n".join([show_time(times[at]), *known]))
        width = max(edges[index + 1] - left, 1.0)
        yield el("rect", title, class_="band", x=left, y=0, width=round(width, 1), height=HEIGHT)


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


_MARK_WORDS = 8
"""Decisions that one tooltip lists."""


def _axes(
    scale: _Scale, ticks: Sequence[float], show_time: Callable[[float], str], show: Callable[[float], str]
) -> list[Markup]:
    heights = [
        el("span", show(scale.top * part), class_="y", style=f"top:{100 * (1 - part):g}%")
        for part in (0, 0.25, 0.5, 0.75, 1)
    ]
    parts = [(time, round(100 * (time - scale.start) / scale.span, 2)) for time in ticks]
    moments = [el("span", show_time(time), class_=_end(part), style=f"left:{part:g}%") for time, part in parts]
    return heights + moments


def _end(percent: float) -> str:
    """Labels at the ends of the axis stay inside the drawing."""
    return "x first" if percent < 2 else "x last" if percent > 97 else "x"


def _grid_line(part: float) -> Markup:
    y = HEIGHT * part
    return el("line", class_="grid", x1=0, x2=WIDTH, y1=y, y2=y)


def _upright(x: float) -> Markup:
    return el("line", class_="grid", x1=x, x2=x, y1=0, y2=HEIGHT)


def _swatch(line: Line) -> Markup:
    kind = "swatch dashed" if line.dashed else "swatch"
    return el("span", class_=kind, style=f"border-color:{line.color}")
