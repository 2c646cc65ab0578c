"""The run as it happens, in the terminal; where the output is none, a line for each decision that is new, and one a
minute."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

from koordlite.model import printable, times
from koordlite.report import units
from koordlite.report.history import DecisionEvent, History
from koordlite.report.sentence import headline
from koordlite.report.terminal.decision_log import Minutes
from koordlite.report.tick import Tick

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

LOG = logging.getLogger(__name__)


class LiveView:
    """Shows each tick at once, with what `history` remembers up to it. `title` says which machine it is, `console`
    replaces the terminal in tests."""

    def __init__(
        self, history: History, stream: TextIO | None = None, *, title: str = "", console: Console | None = None
    ) -> None:
        self._history, self._title = history, title
        self._stream = stream or sys.stdout
        self._minutes, self._time = Minutes(), ""
        self._lost = ""
        self._live: Live | None = None
        """A region of the terminal that is drawn over."""
        if console or self._stream.isatty():
            # Imported here, so that plain runs do not pay for it.
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=console or Console(), auto_refresh=False, vertical_overflow="crop")
            self._live.start()

    def update(self, tick: Tick, events: tuple[DecisionEvent, ...] = ()) -> None:
        """Show `tick` and the decisions that changed in it."""
        if self._live:
            from koordlite.report.terminal import screen

            width, height = self._live.console.size
            frame = screen.render(self._title, tick, self._history.remembered(), width=width, height=height)
            self._live.update(frame, refresh=True)
            return
        for event in events:
            self._write(f"{_moment(event.time, event.wall)}  {headline(event.decision)}")
        self._time = _moment(tick.time, tick.wall)
        if minute := self._minutes.add(tick, len(events)):
            self._write(f"{self._time}  {minute}")

    def close(self) -> None:
        """Leave the last screen standing and give the terminal back. Lines that were lost stay lost: Python would
        try to write what is left of them once more at its end, and exit with 120."""
        if self._live:
            self._live.stop()
        elif line := self._minutes.rest():
            self._write(f"{self._time}  {line}")
        if self._lost and self._stream is sys.stdout:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)

    def _write(self, line: str) -> None:
        """A reader who went away ends the run; a disk without room for what it says does not."""
        try:
            self._stream.write(f"{printable.one_line(line)}\n")
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            if str(error) != self._lost:
                LOG.error("lines of the live view are lost: %s", error)
            self._lost = str(error)


def _moment(time: float, wall: float) -> str:
    """Beginning of a line, in the form of the log; by the clock of the run where no wall clock is known."""
    return times.show(wall) if wall else f"{units.clock(time):>7}"
