"""What a transcript's notes say was done to the monitoring hardware before an operation."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from kernel_resctrl import FaultyCounters, KernelResctrl

from koordlite.lab.resctrl.rmids import OCCUPANCY, CounterKey

_LEVEL = re.compile(r"chunks of RMID k set to (\d+)\+k")
_MOVED = re.compile(r"counters moved by (\d+)\+k chunks")
_BACK = re.compile(r"hardware counter went back by (\d+)")
_ONLY = re.compile(r"only (\S+) is unavailable")
_CACHES, _RMIDS = range(8), range(512)
_BANDWIDTH = ("mbm_total_bytes", "mbm_local_bytes")


def play(resctrl: KernelResctrl, note: str, path: str) -> None:
    """Set the counters as the note says."""
    counters = resctrl.counters
    if counters is None:
        return
    if level := _LEVEL.search(note):
        for place in _places((OCCUPANCY,)):
            counters.set(place, int(level[1]) + place[1])
    if moved := _MOVED.search(note):
        for place in _places(_BANDWIDTH):
            counters.add(place, int(moved[1]) + place[1])
    if back := _BACK.search(note):
        for place in _places(_BANDWIDTH):
            counters.add(place, -int(back[1]))
    if "hardware says unavailable" in note:
        for place in _places((OCCUPANCY, *_BANDWIDTH)):
            counters.break_(place, errno.EIO if place[2] == "mbm_total_bytes" else errno.EINVAL)
    if only := _ONLY.search(note):
        _break_one(resctrl, counters, only[1].rstrip(":"))


def reset(resctrl: KernelResctrl) -> None:
    """Sections begin with counters at rest."""
    if resctrl.counters:
        for place in _places((OCCUPANCY, *_BANDWIDTH)):
            resctrl.counters.set(place, 0)


def _break_one(resctrl: KernelResctrl, counters: FaultyCounters, path: str) -> None:
    control, _, monitor = path.partition("/mon_groups/")
    group = resctrl.groups[control]
    rmid = group.monitors[monitor].rmid if monitor else group.rmid
    for place in _places((OCCUPANCY, *_BANDWIDTH)):
        if place[1] == rmid:
            counters.break_(place, errno.EINVAL)
        else:
            counters.repair(place)


def _places(events: tuple[str, ...]) -> Iterator[CounterKey]:
    return ((cache, rmid, event) for cache in _CACHES for rmid in _RMIDS for event in events)
