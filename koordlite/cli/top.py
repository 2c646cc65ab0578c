"""`koordlite top`: a running agent, live. The agent draws each frame, so that this process loads next to nothing."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator

from koordlite.cli import asking
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem

LEAST_SECONDS = 0.2
WHOLE_LINES = 48
"""Height of a frame that is printed once: enough for all of it."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The alternate screen, which gives the terminal back as it was, without a cursor; and back."""
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def top(args: argparse.Namespace) -> int:
    """Draw until Ctrl-C; one frame with `--once` or where the output is no terminal. 2 when no agent answers."""
    if not args.interval >= LEAST_SECONDS:
        do = f"write {LEAST_SECONDS} or more"
        raise InputError(Problem("command line", "--interval", str(args.interval), "too often", do))
    url = args.url or asking.default_url()
    width, height = shutil.get_terminal_size((100, 24))
    once = args.once or not sys.stdout.isatty()
    first = _frame(url, width, max(height, WHOLE_LINES) if once else height)
    if once:
        print(printable.lines(first, colors=True), end="")
        return 0
    with contextlib.suppress(KeyboardInterrupt), _whole_screen():  # That is how it ends.
        _follow(url, first, args.interval)
    return 0


def _frame(url: str, width: int, height: int) -> str:
    """KoordliteError when no agent answers, or another server does."""
    return asking.screen(url, view="live", width=width, height=height, color=_colors()).text


def _colors() -> str:
    """What the terminal can show, as `koordlite.report.terminal.frame` calls it."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return ""
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in os.environ.get("TERM", "") else "standard"


@contextlib.contextmanager
def _whole_screen() -> Iterator[None]:
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _follow(url: str, shown: str, seconds: float) -> None:
    """The last frame stays while the agent does not answer, with the reason below it."""
    why = ""
    while True:
        width, height = shutil.get_terminal_size((100, 24))
        _draw(shown, why, width, height)
        time.sleep(seconds)
        try:
            shown, why = _frame(url, width, height), ""
        except KoordliteError as error:
            why = printable.one_line(str(error))


def _draw(frame: str, why: str, width: int, height: int) -> None:
    """Over the last one, which does not flicker."""
    lines = printable.lines(frame, colors=True).split("\n")[: height - bool(why)]
    lines += [why[:width]] if why else []
    sys.stdout.write(_HOME + f"{_REST_OF_LINE}\r\n".join(lines) + _REST_OF_LINE + _REST_OF_SCREEN)
    sys.stdout.flush()
