"""Numbers as people read them: cores, gibibytes, percent, clock time."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping

from koordlite.model import printable

_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def cores(milli: int | float | None) -> str:
    """Millicores as cores with one decimal, zero without a sign; a dash when unknown."""
    return "–" if milli is None else f"{milli / 1000:z.1f}"


def cores_between(least: int | None, most: int | None) -> str:
    """Millicores as `2.0 – 14.0` cores, or one number where both are the same; `unknown` without them."""
    if least is None or most is None:
        return "unknown"
    return cores(least) if cores(least) == cores(most) else f"{cores(least)} – {cores(most)}"


def size(amount: int | float | None) -> str:
    """Bytes in the largest binary unit that keeps the number at one or more; a dash when unknown."""
    if amount is None:
        return "–"
    scale, unit = next(((s, u) for s, u in _BYTES if abs(amount) >= s), (1, "B"))
    return f"{amount / scale:.1f} {unit}" if scale > 1 else f"{amount:.0f} B"


def count(number: int, word: str) -> str:
    """`1 pod`, `3 pods`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def clock(seconds: float) -> str:
    """Seconds as `0:07`, `12:34` or `1:02:03`."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def moment(wall: float) -> str:
    """Seconds since the epoch as `2026-01-31 03:00:00 UTC`."""
    return datetime.datetime.fromtimestamp(wall, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def when(time: float, wall: float) -> str:
    """A moment by the wall clock, as all of an answer is; by the clock of the run where no wall clock is known."""
    return moment(wall) if wall else clock(time)


def stamp(time: float, wall: float) -> str:
    """The same as `when`, as `01-31 03:00:07` for rows and axes: a heading near them gives the year, and UTC."""
    if not wall:
        return clock(time)
    return datetime.datetime.fromtimestamp(wall, datetime.UTC).strftime("%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A duration in the unit that fits: `340 µs`, `12 ms`, `4.2 s`, `12:34`."""
    if seconds == 0:
        return "0 s"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else clock(seconds)


def share(part: float | None, whole: float | None) -> str:
    """`part` of `whole` in percent; a dash when either is unknown or `whole` is nothing."""
    return "–" if part is None or not whole else f"{100 * part / whole:.0f} %"


def bare(name: str, value: int | float | str) -> str:
    """An evidence value as it goes into a formula: the last word of `name` is its unit, which a formula gives once."""
    if isinstance(value, str):
        return printable.one_line(value) or "none"
    show = _SHOW.get(_words(name)[-1])
    return show(value) if show else f"{value:g}" if isinstance(value, float) else str(value)


def full(name: str, value: int | float | str) -> str:
    """The same as `bare`, with the unit where `bare` leaves it to the formula."""
    text = bare(name, value)
    return f"{text} cores" if _words(name)[-1] == "milli" and not isinstance(value, str) else text


def label(name: str) -> str:
    """An evidence name as words, without its unit: `node_reserved_milli` → `node reserved`."""
    words = _words(name)
    return " ".join(words[:-1] if len(words) > 1 and words[-1] in _SHOW and words[-1] not in _PART_OF_NAME else words)


def has_unit(name: str) -> bool:
    """Tell whether the last word of an evidence name is a unit."""
    return _words(name)[-1] in _SHOW


def _words(name: str) -> list[str]:
    """`ageSeconds` and `age_seconds` both as age, seconds; abbreviations such as CPUs stay whole."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).split("_")
    return [part if part[1:2].isupper() else part.lower() for part in parts]


_PART_OF_NAME = ("memory", "ratio")
"""Units that say as well what is counted."""
_SHOW: Mapping[str, Callable[[float], str]] = {
    "milli": cores,
    "bytes": size,
    "memory": size,
    "percent": lambda value: f"{value:g} %",
    "us": lambda quota: "unlimited" if quota < 0 else f"{quota / 1000:g} ms",
    "ratio": lambda value: f"{value:g}",
    "seconds": lambda value: f"{value:g} s",
}
