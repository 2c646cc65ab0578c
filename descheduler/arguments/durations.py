"""Durations as Go and Kubernetes write them: `90s`, `5m`, `1h30m`, `250ms`."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from koordlite.model.errors import InputError, Problem

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)", re.ASCII)


def seconds(text: str) -> float:
    """Seconds of the duration `text`; ValueError when it is none."""
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration like 90s, 5m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def of_option(text: str, option: str) -> float:
    """Seconds of the duration that a command line gives; InputError names the option when it is none."""
    try:
        return seconds(text)
    except ValueError as error:
        raise InputError(Problem("command line", option, text, str(error), "write a time like 5m or 90s")) from error


def show(amount: float) -> str:
    """`amount` seconds in two units at most, for people: `4m30s`, `2h5m`, `3d2h`."""
    left = int(amount)
    shown = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            shown.append(f"{count}{unit}")
    return "".join(shown[:2]) or "0s"


def field(default: str) -> Any:
    """A configuration field that holds a duration as text, checked when the file is read."""
    return dataclasses.field(default=default, metadata={"check": seconds})
