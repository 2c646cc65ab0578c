"""A moment as people write it on the command line: `24h` for so long ago, or a time."""

from __future__ import annotations

from koordlite.model import duration, times
from koordlite.model.errors import InputError, Problem


def seconds(text: str, option: str, *, now: float) -> float:
    """Seconds since the epoch; `now` is what "ago" counts from. InputError when it is neither duration nor time."""
    try:
        return now - duration.parse(text) / duration.SECOND
    except ValueError:
        pass  # Then it is a time.
    try:
        return times.parse(text, assume_utc=True)
    except ValueError as error:
        do = "write 24h or 90m for so long ago, or a time like 2026-01-31T03:00:00Z"
        raise InputError(Problem("command line", option, text, "it is neither a duration nor a time", do)) from error
