"""Durations as Go writes them: `5m0s`, `1h30m`, `250ms`, as whole nanoseconds, and as seconds where that will do.

Source: Go `time.ParseDuration` and `Duration.String`, which Kubernetes' `metav1.Duration` uses.
"""

from __future__ import annotations

import re
from fractions import Fraction

from koordlite.model.errors import refusing

SECOND = 10**9
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = re.compile(r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LARGEST = 2**63 - 1


def parse(text: str) -> int:
    """Nanoseconds of the duration `text`, what is finer cut off; ValueError when it is none."""
    sign, amounts = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if amounts == "0":
        return 0
    parts = _PART.findall(amounts)
    if not parts or "".join(number + unit for number, unit in parts) != amounts:
        raise ValueError(f"{text!r} is not a duration like 90s, 5m or 1h30m")
    total = sum(int(Fraction(f"0{number}0" if "." in number else number) * _UNITS[unit]) for number, unit in parts)
    if total > _LARGEST:
        raise ValueError(f"{text!r} is longer than 292 years, the longest duration there is")
    return sign * total


def seconds(text: str) -> float:
    """Seconds of the duration `text`; ValueError when it is none, or below 0."""
    amount = parse(text)
    if amount < 0:
        raise ValueError(f"{text!r} is not a duration from 0 on, like 90s, 5m or 1h30m")
    return amount / SECOND


def of_option(text: str, option: str) -> float:
    """Seconds of the duration that a command line gives; InputError names the option when it is none."""
    with refusing("command line", option, text, "write a time like 5m or 90s"):
        return seconds(text)


def brief(amount: float) -> str:
    """`amount` seconds in two units at most, for people: `4m30s`, `2h5m`, `3d2h`."""
    remaining = int(amount)
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def age(seconds: float) -> str:
    """An age as kubectl shows it: `90s`, `5m30s`, `45m`, `4h10m`, `30h`, `3d2h`, `30d`, `2y10d`.
    Source: k8s.io/apimachinery `duration.HumanDuration`."""
    remaining = max(0, int(seconds))
    for below, (size, unit), (minor, small) in _AGES:
        if remaining < below:
            more = remaining % size // minor if minor else 0
            return f"{remaining // size}{unit}" + (f"{more}{small}" if more else "")
    return f"{remaining // _YEAR}y"


_DAY, _YEAR = 86400, 365 * 86400
_AGES = (
    (120, (1, "s"), (0, "")),
    (600, (60, "m"), (1, "s")),
    (3 * 3600, (60, "m"), (0, "")),
    (8 * 3600, (3600, "h"), (60, "m")),
    (2 * _DAY, (3600, "h"), (0, "")),
    (8 * _DAY, (_DAY, "d"), (3600, "h")),
    (2 * _YEAR, (_DAY, "d"), (0, "")),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)
"""Below so many seconds: in this unit, and the rest in that one."""


def show(nanoseconds: int) -> str:
    """`5m0s`: hours, minutes and seconds from one second on, else the largest unit that fits."""
    sign, amount = "-" if nanoseconds < 0 else "", abs(nanoseconds)
    if amount < SECOND:
        size, unit = next((_UNITS[u], u) for u in ("ms", "µs", "ns") if amount >= _UNITS[u] or u == "ns")
        return f"{sign}{_decimal(amount, size)}{unit}" if amount else "0s"
    minutes, remainder = divmod(amount, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(remainder, SECOND)}s"


def _decimal(amount: int, size: int) -> str:
    whole, remainder = divmod(amount, size)
    digits = f"{remainder:0{len(str(size)) - 1}d}".rstrip("0") if remainder else ""
    return f"{whole}.{digits}" if digits else str(whole)
