"""Lines in a terminal: a grid of characters with eight dots each (Braille, Unicode U+2800)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_BLANK = 0x2800
# Dot bits of a Braille cell, by row from the top and by column.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
ROWS, COLUMNS = 4, 2
"""Dots in one character."""


class Series(msgspec.Struct, frozen=True):
    """A line to draw: one value a step, None where there is none. Later series are drawn over earlier ones."""

    name: str
    style: str
    values: Sequence[int | None]
    dots: tuple[int, int] = (1, 1)
    """Dots drawn, and of how many: a line is solid, dashed or dotted."""


class Cell(msgspec.Struct, frozen=True):
    """One character and the style of the last line that touched it."""

    char: str
    style: str


def draw(series: Sequence[Series], *, width: int, height: int, top: int) -> list[list[Cell]]:
    """`height` rows of `width` cells; the newest value at the right edge, 0 at the bottom and `top` at the top."""
    bits = [[0] * width for _ in range(height)]
    styles = [[""] * width for _ in range(height)]
    for line in series:
        for x, y in _dots(line, columns=width * COLUMNS, rows=height * ROWS, top=top):
            row, column = y // ROWS, x // COLUMNS
            bits[row][column] |= _BITS[y % ROWS][x % COLUMNS]
            styles[row][column] = line.style
    return [[Cell(chr(_BLANK | b), s) for b, s in zip(*pair, strict=True)] for pair in zip(bits, styles, strict=True)]


def _dots(line: Series, *, columns: int, rows: int, top: int) -> list[tuple[int, int]]:
    """Dots of one line, joined upright between neighbours; those left out that `dots` says."""
    values = list(line.values)[-columns:]
    offset = columns - len(values)
    dots: list[tuple[int, int]] = []
    previous: int | None = None
    for x, value in enumerate(values, offset):
        level = None if value is None else _level(value, rows, top)
        if level is not None and x % line.dots[1] < line.dots[0]:
            start = level if previous is None else previous
            dots.extend((x, y) for y in range(min(start, level), max(start, level) + 1))
        previous = level
    return dots


def _level(value: int, rows: int, top: int) -> int:
    """Dot row of `value`, counted from the top."""
    part = min(max(value / top, 0.0), 1.0) if top > 0 else 0.0
    return rows - 1 - round(part * (rows - 1))
