"""Counters of a resctrl group from its `mon_data` folder, and rates from two readings of it.

A read succeeds also when the hardware has no answer: then it gives a word instead of a number. Source: Linux resctrl
document, "Monitoring"; `Unassigned` since Linux 6.18.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from koordlite.resctrl.files import Files
from koordlite.resctrl.values import CacheUse

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
    found = ((name, _FOLDER.match(name)) for name in _names(files, f"{folder}/mon_data"))
    return {int(match[1]): _counters(files, f"{folder}/mon_data/{name.rstrip('/')}") for name, match in found if match}


def use(before: Mapping[int, Counters], now: Mapping[int, Counters], seconds: float) -> dict[int, CacheUse]:
    """Occupancy of the second reading and bytes per second between the two; a counter that went back gives none."""
    return {cache: _use(before.get(cache, Counters()), counters, seconds) for cache, counters in now.items()}


def _use(before: Counters, now: Counters, seconds: float) -> CacheUse:
    return CacheUse(
        occupancy_bytes=now.occupancy_bytes,
        total_bytes_per_second=_rate(before.total_bytes, now.total_bytes, seconds),
        local_bytes_per_second=_rate(before.local_bytes, now.local_bytes, seconds),
    )


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    if before is None or now is None or seconds <= 0 or now < before:
        return None
    rate = (now - before) / seconds
    return rate if rate <= MAX_BYTES_PER_SECOND else None


def _counters(files: Files, folder: str) -> Counters:
    return Counters(
        occupancy_bytes=_number(files, f"{folder}/llc_occupancy"),
        total_bytes=_number(files, f"{folder}/mbm_total_bytes"),
        local_bytes=_number(files, f"{folder}/mbm_local_bytes"),
    )


_DIGITS = 20
"""Of 64 bits."""


def _number(files: Files, path: str) -> int | None:
    """`Unavailable`, `Error`, `Unassigned` and a file that is not there are all no number."""
    try:
        text = files.read(path).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and len(text) <= _DIGITS else None


def _names(files: Files, folder: str) -> Sequence[str]:
    try:
        return files.list(folder)
    except OSError:
        return ()
