"""`koordlite top`: a running agent, live. The agent draws the node, so that one frame costs this process next to
nothing; the library for keys and tables is imported in a terminal only, behind a first frame of the agent's."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import urllib.parse
from typing import TYPE_CHECKING

from koordlite.cli import asking
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem

if TYPE_CHECKING:
    from koordlite.report.pod_rows import PodRow

LEAST_SECONDS = 0.2
WHOLE_LINES = 48
"""Height of a frame that is printed once: enough for all of it."""


def top(args: argparse.Namespace) -> int:
    """Show it until `q`; one frame with `--once` or where the output is no terminal. 2 when no agent answers."""
    if not args.interval >= LEAST_SECONDS:
        do = f"write {LEAST_SECONDS} or more"
        raise InputError(Problem("command line", "--interval", str(args.interval), "too often", do))
    agent = _Agent((args.url or asking.default_url()).rstrip("/"), _colors())
    width, height = shutil.get_terminal_size((100, 24))
    if args.once or not sys.stdout.isatty() or not sys.stdin.isatty() or os.environ.get("TERM") in _NO_SCREEN:
        print(printable.lines(agent.whole(width, max(height, WHOLE_LINES)), colors=True), end="")
        return 0
    first = agent.whole(width, height)  # Without an agent the terminal stays as it is.
    return _live(agent, args.interval, first.splitlines()[:height])


def _live(agent: _Agent, seconds: float, first: list[str]) -> int:
    """Until `q` or Ctrl-C. The lines of `first` are there while the library loads: longer than the agent takes."""
    # Python's own handler: what is imported may be interrupted here, since the terminal has to be given back, and
    # asyncio looks after Ctrl-C only where it finds that one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stdout.write(_ENTER + printable.lines("\n".join(first), colors=True))
        sys.stdout.flush()
        from koordlite.report.terminal.top_app import TopApp

        TopApp(agent, seconds).run()
    except KeyboardInterrupt:
        sys.stdout.write(_LEAVE)
    except BaseException:
        sys.stdout.write(_LEAVE)
        raise
    return 0


_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen, without a cursor, as the library uses it; and back."""


class _Agent:
    """A running agent as `top_app.Source`."""

    def __init__(self, url: str, colors: str) -> None:
        self._url, self._colors = url, colors

    def whole(self, width: int, height: int) -> str:
        """Everything in one frame. KoordliteError when no agent answers, or another server does."""
        return asking.screen(self._url, view="live", width=width, height=height, color=self._colors).text

    def frame(self, width: int, height: int) -> str:
        """The node without its pods."""
        return asking.screen(self._url, view="node", width=width, height=height, color=self._colors).text

    def pods(self) -> tuple[PodRow, ...]:
        """The pods of the node."""
        from koordlite.report import pod_rows

        return pod_rows.read(asking.get(f"{self._url}/pods"))

    def explain(self, subject: str) -> str:
        """Same as `koordlite explain`."""
        return asking.get(f"{self._url}/explain?{urllib.parse.urlencode({'subject': subject})}")


_NO_SCREEN = ("dumb", "unknown")


def _colors() -> str:
    """Abilities of the terminal, as `koordlite.report.terminal.screen` calls it."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") in _NO_SCREEN:
        return ""
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in os.environ.get("TERM", "") else "standard"
