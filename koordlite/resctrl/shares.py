"""Shares in percent as the values of one machine, and what of them has to be written.

Cache ids come from the root group's schemata: they have gaps, and come and go with their CPUs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from koordlite.resctrl import bandwidth, masks, schemata
from koordlite.resctrl.masks import Fit
from koordlite.resctrl.values import ROOT, CacheCapability, ControlGroup, Resctrl, Values

Range = tuple[int, int]
"""Start and end of a part of the cache, in percent."""
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Parts in percent: of every cache, and of single caches, which win."""

    cache: Range | None = None
    cache_by_id: Mapping[int, Range] = dataclasses.field(default_factory=dict)
    bandwidth: int | None = None
    bandwidth_by_id: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Tell whether they limit nothing."""
        return self == Shares()


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """The values of this machine for some shares."""

    values: Mapping[str, Values]
    why: Mapping[str, str]
    """Derivation of the values from the percentages, by `cache` and `bandwidth`."""
    absent_ids: tuple[int, ...] = ()
    """Cache ids that were named but are not on this machine."""


def allocate(machine: Resctrl, shares: Shares, *, l3_bandwidth_mbps: int = 0) -> Allocation:
    """`shares` as masks of the L3 cache and as memory bandwidth; ValueError for an impossible range.

    Code and data of a divided cache get the same part. What the machine cannot divide is left out, and so is L2: the
    percentages are about the cache that all CPUs share. `l3_bandwidth_mbps`: see `bandwidth.fit`.
    """
    present = machine.groups[ROOT].schemata
    values: dict[str, Values] = {}
    why: dict[str, str] = {}
    for name in (name for name in machine.caches if name.startswith("L3")):
        fit = partial(_cache_fit, machine.caches[name])
        values[name], why["cache"] = _fitted(present.get(name, {}), shares.cache, shares.cache_by_id, fit)
    if "MB" in machine.bandwidths:
        cap = machine.bandwidths["MB"]
        values["MB"], why["bandwidth"] = _fitted(
            present.get("MB", {}),
            shares.bandwidth,
            shares.bandwidth_by_id,
            lambda percent: bandwidth.fit(percent=percent, cap=cap, l3_bandwidth_mbps=l3_bandwidth_mbps),
        )
    caches = {cache for ids in present.values() for cache in ids}
    absent = sorted({*shares.cache_by_id, *shares.bandwidth_by_id} - caches)
    return Allocation(
        {name: ids for name, ids in values.items() if ids},
        {name: reason for name, reason in why.items() if reason},
        tuple(absent),
    )


def to_write(machine: Resctrl, group: ControlGroup | None, values: Mapping[str, Values]) -> dict[str, Values]:
    """The part of `values` that the group does not hold yet; None is a group about to be made.

    A group without a line for a resource (pseudo-locked, say) has nothing to change or to put back.
    """
    changes: dict[str, Values] = {}
    for name, ids in values.items():
        cap = machine.bandwidths.get(name)
        if group is None:
            # It begins without a limit on bandwidth, but only with the ways that are not exclusive to another one.
            changes[name] = {cache: value for cache, value in ids.items() if cap is None or value != cap.maximum}
            continue
        present = group.schemata.get(name, {})
        changes[name] = {
            cache: value
            for cache, value in schemata.changed(present, ids).items()
            if cap is None or not bandwidth.same(present[cache], value, cap)
        }
    return {name: ids for name, ids in changes.items() if ids}


def initial_values(machine: Resctrl, group: ControlGroup) -> dict[str, Values]:
    """Initial values of a group in L3 and MB, as far as it can be known.

    No limit on bandwidth; all ways of the caches of which the root group has all ways. In other caches some ways may be
    exclusive to another group, and which of them the group began with is not known.
    """
    values: dict[str, Values] = {}
    for name in group.schemata:
        limit = machine.bandwidths.get(name)
        if name.startswith("L3") and name in machine.caches:
            every, root = machine.caches[name].cbm_mask, machine.groups[ROOT].schemata.get(name, {})
            values[name] = {cache: every for cache, mask in root.items() if mask == every}
        elif name == "MB" and limit is not None and limit.maximum_known:
            values[name] = dict.fromkeys(group.schemata[name], limit.maximum)
    return values


def _cache_fit(cap: CacheCapability, part: Range) -> Fit:
    return masks.cache_fit(start_percent=part[0], end_percent=part[1], cap=cap)


def _fitted(
    present: Values, every: T | None, single: Mapping[int, T], fit: Callable[[T], Fit]
) -> tuple[dict[int, int], str]:
    """Values by cache id, and each reason once, with the caches it is about where there are several reasons."""
    parts = {cache: single.get(cache, every) for cache in present}
    fits = {cache: fit(part) for cache, part in parts.items() if part is not None}
    caches: dict[str, list[int]] = {}
    for cache, fitted in fits.items():
        caches.setdefault(fitted.why, []).append(cache)
    reasons = list(caches)
    if len(caches) > 1:
        reasons = [f"cache {','.join(map(str, ids))}: {why}" for why, ids in caches.items()]
    values = {cache: fitted.value for cache, fitted in fits.items() if fitted.value is not None}
    return values, "; ".join(reasons)
