"""The live view of a running agent as text, frame by frame: what `koordlite top` prints."""

from __future__ import annotations

import dataclasses
import io
from typing import Literal, cast

import msgspec
from rich.console import Console

from koordlite.report import pods
from koordlite.report.past import Remembered
from koordlite.report.terminal import screen
from koordlite.report.tick import Tick

COLORS = ("", "standard", "256", "truecolor")
"""What a terminal can show; empty: no colours."""
_Colors = Literal["standard", "256", "truecolor"]


def text(tick: Tick, past: Remembered, *, width: int, height: int, colors: str = "", with_pods: bool = True) -> str:
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
    rows = [dataclasses.replace(Tick(time=0.0), **msgspec.structs.asdict(row)) for row in past.rows]
    earlier = (row for row in rows if row.time < tick.time)
    shown = pods.of(tick, past.events) if with_pods else ()
    console.print(screen.render("", (*earlier, tick), tuple(past.events), shown, width=width, height=height))
    return written.getvalue()
