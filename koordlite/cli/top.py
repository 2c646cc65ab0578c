"""`koordlite top`: a running agent, live, over its HTTP server."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from koordlite.cli import asking
from koordlite.model.errors import InputError, KoordliteError, Problem
from koordlite.report.history import DecisionEvent
from koordlite.report.json import recent
from koordlite.report.tick import Tick

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LEAST_SECONDS = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a frame is drawn from."""

    tick: Tick
    rows: tuple[Tick, ...]
    events: tuple[DecisionEvent, ...]


def top(args: argparse.Namespace) -> int:
    """Draw until Ctrl-C; one frame with `--once` or where the output is no terminal. 2 when no agent answers."""
    from rich.console import Console

    if not args.interval >= LEAST_SECONDS:
        do = f"write {LEAST_SECONDS} or more"
        raise InputError(Problem("command line", "--interval", str(args.interval), "too often", do))
    url, console = (args.url or asking.default_url()).rstrip("/"), Console()
    first = ask(url)
    if args.once or not console.is_terminal:
        console.print(frame(first, console, whole=True))
        return 0
    with contextlib.suppress(KeyboardInterrupt):  # That is how it ends.
        _follow(url, first, console, args.interval)
    return 0


def ask(url: str) -> Answer:
    """The newest state and the last minutes. KoordliteError when no agent answers, or another server does."""
    try:
        state, past = json.loads(asking.get(f"{url}/state")), json.loads(asking.get(f"{url}/recent"))
        return Answer(recent.tick(state), tuple(recent.rows(past)), tuple(recent.events(past)))
    except (ValueError, KeyError) as error:
        raise KoordliteError(f"what answers at {url} is no agent of this version: {error}") from error


def frame(answer: Answer, console: Console, *, silent: str = "", whole: bool = False) -> RenderableType:
    """One frame as large as the terminal; `silent` says why there is no newer one. `whole`: as high as it needs."""
    from koordlite.report.terminal import screen

    tick = dataclasses.replace(answer.tick, because=silent) if silent else answer.tick
    earlier = (row for row in answer.rows if row.time < tick.time)
    height = max(console.height, 48) if whole else console.height
    return screen.render("", (*earlier, tick), answer.events, width=console.width, height=height)


def _follow(url: str, first: Answer, console: Console, seconds: float) -> None:
    """Draw over the last frame; the alternate screen gives the terminal back as it was."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        live.update(frame(first, console), refresh=True)
        _repeat(url, first, seconds, lambda held, why: live.update(frame(held, console, silent=why), refresh=True))


def _repeat(url: str, held: Answer, seconds: float, draw: Callable[[Answer, str], None]) -> None:
    while True:
        time.sleep(seconds)
        try:
            held, why = ask(url), ""
        except KoordliteError as error:
            why = str(error)
        draw(held, why)
