"""What NUMA nodes still have to give: what a pod takes from them, and what comes back when it goes.

Source: scheduler-plugins NodeResourceTopologyMatch: `subtractResourcesFromNUMANodeList`, `subtractFromNUMAs`,
`onlyNonNUMAResources`, `AreExclusiveForPod`, `getNRTPostPodsEviction` (docs/formulas.md, "NUMA fit").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from koordlite.model.quantity import NANO, Quantity
from koordlite.numa.nrt.filter import is_native, is_shared

Amounts = Mapping[str, Quantity]
Zones = Mapping[int, Amounts]
_ZERO = Quantity(0)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Released:
    """What a container of an evicted pod gives back, and the NUMA node it stood on; None when nobody says."""

    amounts: Amounts
    zone: int | None


def take(zones: Zones, zone: int, amounts: Amounts, *, guaranteed: bool) -> Zones:
    """The zones after a container of such a pod was placed on NUMA node `zone`; unchanged where there is none.

    ValueError when the zone has less of a resource than the container requests.
    """
    if zone not in zones:
        return zones
    counted = counted_by_zone(amounts, guaranteed=guaranteed)
    for name, available in zones[zone].items():
        if counted.get(name, _ZERO) > available:
            raise ValueError(f"resource {name} request {counted[name]} exceeds NUMA {zone} availability {available}")
    return without(zones, zone, counted)


def counted_by_zone(amounts: Amounts, *, guaranteed: bool) -> dict[str, Quantity]:
    """The part of `amounts` that is taken from a NUMA node: of a pod that is not Guaranteed, devices only."""
    return {name: q for name, q in amounts.items() if guaranteed or not is_shared(name)}


def without(zones: Zones, zone: int, amounts: Amounts) -> dict[int, Amounts]:
    """The zones after `amounts` were taken from `zone`, never below zero; resources it does not list are skipped."""
    left = {
        name: Quantity(max(0, available.nano - amounts.get(name, _ZERO).nano), available.format)
        for name, available in zones[zone].items()
    }
    return {**zones, zone: left}


def take_from_several(zones: Zones, order: Iterable[int], amounts: Amounts) -> Zones:
    """The zones after `amounts` were taken from those in `order`: each gives all it has before the next is asked."""
    left = dict(amounts)
    for zone in order:
        given = {name: min(amount, zones.get(zone, {}).get(name, _ZERO)) for name, amount in left.items()}
        zones = without(zones, zone, given) if zone in zones else zones
        left = {name: Quantity(amount.nano - given[name].nano, amount.format) for name, amount in left.items()}
    return zones


def take_everywhere(zones: Mapping[T, Amounts], amounts: Amounts) -> dict[T, Amounts]:
    """The zones after `amounts` were taken from each of them: nobody knows yet on which one the pod will stand."""
    return {zone: without({0: available}, 0, amounts)[0] for zone, available in zones.items()}


def only_elsewhere(zones: Zones, names: Iterable[str]) -> bool:
    """No NUMA node lists any of these resources: alignment has nothing to say about them."""
    return not any(name in zone for zone in zones.values() for name in names)


def exclusive(amounts: Amounts, *, guaranteed: bool, listed: Collection[str]) -> dict[str, Quantity]:
    """The part of a container's request that is its alone while it runs.

    Devices that the node's zones list; and of Guaranteed pods whole CPUs, memory and huge pages.
    """
    return {
        name: amount
        for name, amount in amounts.items()
        if amount > _ZERO and (_own(name, amount) if is_native(name) else name in listed)
        if guaranteed or not is_native(name)
    }


def _own(name: str, amount: Quantity) -> bool:
    return amount.nano % NANO == 0 if name == "cpu" else name == "memory" or name.startswith("hugepages-")


def after_eviction(zones: Zones, totals: Zones, victims: Sequence[Released]) -> Mapping[int, Amounts]:
    """The zones after evicted containers gave back what was theirs alone.

    ValueError when there is nothing to give back, or when a zone would have more than its `totals`: the picture of who
    stands where is wrong then, and nothing must be concluded from it.
    """
    given: dict[int, Amounts] = dict(zones)
    for victim in victims:
        if victim.zone is not None and victim.zone in given:
            given[victim.zone] = _with(given[victim.zone], victim.amounts)
    if given == zones:
        raise ValueError("no resources to add, cannot process eviction simulation")
    for zone, amounts in given.items():
        if any(amount > totals.get(zone, {}).get(name, amount) for name, amount in amounts.items()):
            raise ValueError("resource release request exceeds NUMA allocatable")
    return given


def _with(amounts: Amounts, more: Amounts) -> Amounts:
    return {name: Quantity(amount.nano + more.get(name, _ZERO).nano, amount.format) for name, amount in amounts.items()}
