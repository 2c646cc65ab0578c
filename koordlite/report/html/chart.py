"""Lines over time as inline SVG that stretches with the page; labels are HTML, so they keep their size on a phone."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from koordlite.report.html.page import Markup, el

WIDTH, HEIGHT = 1000, 300
"""Units of the drawing; the page decides how large it is shown."""
_BANDS = 240
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One series. `color` is a CSS colour or variable; `step` draws a level that holds until the next value."""

    name: str
    color: str
    values: Sequence[float | None]
    step: bool = False
    dashed: bool = False
    area: bool = False
    """Colour the ground under the line."""


def timeline(
    times: Sequence[float],
    lines: Sequence[Line],
    *,
    label: str,
    show_time: Callable[[float], str],
    show: Callable[[float], str],
    top: float | None = None,
    height_px: int = 260,
) -> Markup:
    """The lines over `times`, a legend, and at every moment a tooltip with all values.

    `label` says to a screen reader what the drawing shows. `top` is the upper end of the axis; by itself it is a round
    number above the largest value.
    """
    if not times:
        return el("p", "no data", class_="note")
    ceiling = top or nice_ceiling(max((v for line in lines for v in line.values if v is not None), default=1))
    scale = _Scale(times[0], max(times[-1] - times[0], 1e-9), ceiling)
    drawing = el(
        "svg",
        [_grid_line(part) for part in _QUARTERS],
        [_path(line, times, scale) for line in lines],
        list(_bands(times, lines, scale, show_time, show)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    plot = el("div", drawing, _axes(scale, show_time, show), class_="chart", style=f"height:{height_px}px")
    return el("figure", plot, legend(lines), style="margin:0")


def legend(lines: Sequence[Line]) -> Markup:
    """Names of the lines with a sample of each."""
    return el("ul", [el("li", _swatch(line), line.name) for line in lines], class_="legend")


def nice_ceiling(value: float) -> float:
    """The smallest of 1, 2, 4, 6, 8, 10 times a power of ten that is not below `value`: quarters of it read well."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * (1 - 1e-9))


@dataclasses.dataclass(frozen=True, slots=True)
class _Scale:
    start: float
    span: float
    top: float

    def at(self, part: float) -> float:
        return self.start + self.span * part

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


def _axes(scale: _Scale, show_time: Callable[[float], str], show: Callable[[float], str]) -> list[Markup]:
    heights = [
        el("span", show(scale.top * part), class_="y", style=f"top:{100 * (1 - part):g}%")
        for part in (0, 0.25, 0.5, 0.75, 1)
    ]
    ends = {0.0: "x first", 1.0: "x last"}
    moments = [
        el("span", show_time(scale.at(part)), class_=ends.get(part, "x"), style=f"left:{100 * part:g}%")
        for part in _QUARTERS
    ]
    return heights + moments


def _grid_line(part: float) -> Markup:
    y = HEIGHT * part
    return el("line", class_="grid", x1=0, x2=WIDTH, y1=y, y2=y)


def _swatch(line: Line) -> Markup:
    kind = "swatch dashed" if line.dashed else "swatch"
    return el("span", class_=kind, style=f"border-color:{line.color}")
