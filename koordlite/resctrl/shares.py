"""The schemata that a wish in percent means on one machine, and what of them has to be written.

Cache ids come from the root group's schemata: they have gaps, and come and go with their CPUs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from koordlite.resctrl import bandwidth as schemata_bandwidth
from koordlite.resctrl import masks, schemata
from koordlite.resctrl.masks import Fit
from koordlite.resctrl.values import ROOT, CacheCapability, Resctrl, ResctrlGroup, Values

Range = tuple[int, int]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Parts in percent: of every cache, and of single ones, which win."""

    cache: Range | None = None
    cache_by_id: Mapping[int, Range] = dataclasses.field(default_factory=dict)
    bandwidth: int | None = None
    bandwidth_by_id: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """Values for this machine, in words how they came about, and the cache ids that were named but are not here."""

    values: Mapping[str, Values]
    why: Mapping[str, str]
    """By `cache` and `bandwidth`."""
    absent_ids: tuple[int, ...] = ()


def wanted(machine: Resctrl, asked: Asked, *, reach_mbps: int = 0) -> Wanted:
    """`asked` in ways of the last cache and in the unit of the memory bandwidth; ValueError for an impossible range.

    Code and data of a divided cache get the same part. What the machine cannot divide is left out, and so is L2: the
    percentages are about the cache that all share. `reach_mbps`: see `schemata_bandwidth.bandwidth`.
    """
    present = machine.groups[ROOT].schemata
    values: dict[str, Values] = {}
    why: dict[str, str] = {}
    for name, cap in machine.caches.items():
        if name.startswith("L3"):
            fits = _by_id(present.get(name, {}), asked.cache, asked.cache_by_id, partial(_cache, cap))
            values[name], why["cache"] = _values(fits), _words(fits)
    if "MB" in machine.bandwidths:
        limit = machine.bandwidths["MB"]
        fits = _by_id(
            present.get("MB", {}),
            asked.bandwidth,
            asked.bandwidth_by_id,
            lambda part: schemata_bandwidth.bandwidth_fit(percent=part, cap=limit, reach_mbps=reach_mbps),
        )
        values["MB"], why["bandwidth"] = _values(fits), _words(fits)
    known = {cache for ids in present.values() for cache in ids}
    absent = sorted({*asked.cache_by_id, *asked.bandwidth_by_id} - known)
    return Wanted(
        {name: ids for name, ids in values.items() if ids},
        {name: text for name, text in why.items() if text},
        tuple(absent),
    )


def to_write(machine: Resctrl, group: ResctrlGroup | None, values: Mapping[str, Values]) -> dict[str, Values]:
    """The part of `values` that the group does not hold yet; None is a group about to be made.

    A group without a line for a resource (pseudo-locked, say) has nothing we could change or put back.
    """
    return {name: ids for name in values if (ids := _to_write(machine, group, name, values[name]))}


def begun_with(machine: Resctrl, group: ResctrlGroup) -> dict[str, Values]:
    """What a group made by us began with in L3 and MB: what it goes back to where nothing is asked for any more.

    Bandwidth without a limit; all ways, as long as the root group has them all. Where it has not, some may be
    somebody's alone, and which of them the group began with is not known.
    """
    found: dict[str, Values] = {}
    for name in group.schemata:
        limit = machine.bandwidths.get(name)
        if name.startswith("L3") and name in machine.caches:
            every, root = machine.caches[name].cbm_mask, machine.groups[ROOT].schemata.get(name, {})
            found[name] = {cache: every for cache, mask in root.items() if mask == every}
        elif name == "MB" and limit is not None and limit.maximum_known:
            found[name] = dict.fromkeys(group.schemata[name], limit.maximum)
    return found


def _to_write(machine: Resctrl, group: ResctrlGroup | None, name: str, ids: Values) -> Values:
    cap = machine.bandwidths.get(name)
    if group is None:
        # A group begins without a limit on bandwidth, but with the ways that nobody has for himself.
        return {cache: value for cache, value in ids.items() if cap is None or value != cap.maximum}
    found = schemata.changed(group.schemata.get(name, {}), ids)
    if cap is None:
        return found
    held = group.schemata.get(name, {})
    return {cache: value for cache, value in found.items() if not schemata_bandwidth.same(held[cache], value, cap)}


def _by_id(present: Values, every: T | None, single: Mapping[int, T], fit: Callable[[T], Fit]) -> dict[int, Fit]:
    parts = {cache: single.get(cache, every) for cache in present}
    return {cache: fit(part) for cache, part in parts.items() if part is not None}


def _cache(cap: CacheCapability, part: Range) -> Fit:
    return masks.cache_fit(start_percent=part[0], end_percent=part[1], cap=cap)


def _values(fits: Mapping[int, Fit]) -> dict[int, int]:
    return {cache: fit.value for cache, fit in fits.items() if fit.value is not None}


def _words(fits: Mapping[int, Fit]) -> str:
    """Why, once for all caches that have the same reason."""
    caches: dict[str, list[int]] = {}
    for cache, fit in fits.items():
        caches.setdefault(fit.why, []).append(cache)
    if len(caches) == 1:
        return next(iter(caches))
    return "; ".join(f"cache {','.join(map(str, ids))}: {why}" for why, ids in caches.items())
