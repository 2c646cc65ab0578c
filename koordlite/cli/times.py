"""Durations and moments as people write them on the command line: `90`, `90s`, `1h30m`; `24h` ago, or a time."""

from __future__ import annotations

from collections.abc import Callable

from koordlite.model.errors import InputError, Problem


def duration(option: str) -> Callable[[str], float]:
    """Reads what `option` is given, in seconds: a number, or a duration with units. InputError when it is neither.

    The bounds are the command's to check.
    """

    def read(text: str) -> float:
        from koordlite.model import duration as durations

        try:
            return float(text)
        except ValueError:
            pass  # Then it has units.
        try:
            return durations.parse(text) / durations.SECOND
        except ValueError as error:
            do = "write 90s, 30m, 1h30m, or a number of seconds"
            raise InputError(Problem("command line", option, text, str(error), do)) from error

    return read


def moment(text: str, option: str, *, now: float) -> float:
    """Seconds since the epoch; `now` is what "ago" counts from. InputError when it is neither duration nor time."""
    from koordlite.model import duration as durations
    from koordlite.model import times

    try:
        return now - durations.parse(text) / durations.SECOND
    except ValueError:
        pass  # Then it is a time.
    try:
        return times.parse(text, assume_utc=True)
    except ValueError as error:
        do = "write 24h or 90m for that long ago, or a time like 2026-01-31T03:00:00Z"
        raise InputError(Problem("command line", option, text, "this is neither a duration nor a time", do)) from error
