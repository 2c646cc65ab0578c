"""How many log lines one subject may fill: what a pod's owner can repeat must not fill the disk."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

MOST_LINES = 10
SECONDS = 60.0
MOST_SUBJECTS = 2000


class _Window(msgspec.Struct):
    began: float
    lines: int = 0
    left_out: int = 0


class LineLimit:
    """At most `MOST_LINES` for each subject in `SECONDS`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._windows: dict[str, _Window] = {}

    def take(self, subject: str) -> int | None:
        """None when the line must be left out; else how many were left out in the window that has just ended."""
        now = self._now()
        held = self._windows.get(subject)
        left_out = 0
        if held is None or now - held.began >= SECONDS:
            left_out = held.left_out if held else 0
            self._windows.pop(subject, None)
            held = self._windows[subject] = _Window(now)
            while len(self._windows) > MOST_SUBJECTS:
                del self._windows[next(iter(self._windows))]
        if held.lines >= MOST_LINES:
            held.left_out += 1
            return None
        held.lines += 1
        return left_out
