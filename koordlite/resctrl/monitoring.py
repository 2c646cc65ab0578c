"""Counters of a resctrl group from its `mon_data` folder, and rates from two readings of it.

A read succeeds also when the hardware has no answer: then it gives a word instead of a number. Source: Linux resctrl
document, "Monitoring"; `Unassigned` since Linux 6.18.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from koordlite.resctrl.files import Files
from koordlite.resctrl.values import EVENTS, CacheUse

_FOLDER = re.compile(r"mon_L3_(\d+)/?\Z")
MAX_BYTES_PER_SECOND = 4e12
"""No memory behind one cache moves so much: the jump is a counter that was unwrapped wrongly."""


@dataclasses.dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one cache; None where there is no such file, or no number in it."""

    occupancy_bytes: int | None = None
    total_bytes: int | None = None
    local_bytes: int | None = None


def read(files: Files, folder: str) -> dict[int, Counters]:
    """Counters by cache id of the group at `folder`; nothing where it cannot be monitored or is gone.

    On machines with sub-NUMA clusters the files of a cache hold the sum over its nodes, which is what is read.
    """
    try:
        names = files.list(f"{folder}/mon_data")
    except OSError:
        return {}
    caches = {int(match[1]): name.rstrip("/") for name in names if (match := _FOLDER.match(name))}
    return {
        cache: Counters(*(_number(files, f"{folder}/mon_data/{name}/{event}") for event in EVENTS))
        for cache, name in caches.items()
    }


def use(before: Mapping[int, Counters], now: Mapping[int, Counters], seconds: float) -> dict[int, CacheUse]:
    """Occupancy of the second reading and bytes per second between the two; a counter that went back gives none."""
    pairs = ((cache, before.get(cache, Counters()), counters) for cache, counters in now.items())
    return {
        cache: CacheUse(
            occupancy_bytes=last.occupancy_bytes,
            total_bytes_per_second=_rate(first.total_bytes, last.total_bytes, seconds),
            local_bytes_per_second=_rate(first.local_bytes, last.local_bytes, seconds),
        )
        for cache, first, last in pairs
    }


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    if before is None or now is None or seconds <= 0 or now < before:
        return None
    rate = (now - before) / seconds
    return rate if rate <= MAX_BYTES_PER_SECOND else None


_DIGITS = 20
"""Maximum number of digits of 64 bits."""


def _number(files: Files, path: str) -> int | None:
    """`Unavailable`, `Error`, `Unassigned` and a file that is not there are all no number."""
    try:
        text = files.read(path).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and len(text) <= _DIGITS else None
