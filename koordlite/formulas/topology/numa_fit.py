"""Would a pod fit into single NUMA nodes of a node? The arithmetic kubelet and the scheduler use for alignment.

Source: scheduler-plugins NodeResourceTopologyMatch, single-NUMA-node handlers (docs/formulas.md, "NUMA fit"). Amounts
are `Quantity`s; a zone is what is still available on one NUMA node, by resource name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from koordlite.model.quantity import Quantity

Amounts = Mapping[str, Quantity]
Zones = Mapping[int, Amounts]

_NATIVE = ("cpu", "memory", "ephemeral-storage", "storage", "pods")
_HOST_LEVEL = ("ephemeral-storage", "storage")
_ZERO = Quantity(0)


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """What a pod asks for, as alignment counts it.

    `guaranteed` pods get CPUs and memory of their own; of others only devices are counted by NUMA node.
    """

    init: Sequence[Amounts]
    app: Sequence[Amounts]
    guaranteed: bool
    overhead: Amounts = dataclasses.field(default_factory=dict)

    @property
    def whole(self) -> dict[str, Quantity]:
        """max(largest init container, sum of app containers) + overhead."""
        total: dict[str, Quantity] = {}
        for amounts in self.app:
            total = _plus(total, amounts)
        for amounts in self.init:
            total = {**total, **{name: max(total.get(name, q), q) for name, q in amounts.items()}}
        return _plus(total, self.overhead)


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """Where each part of the pod would stand (NUMA node, amounts), or in `why_not` what could not be aligned."""

    parts: tuple[tuple[int, Amounts], ...] = ()
    why_not: str = ""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes used."""
        return tuple(sorted({node for node, _ in self.parts}))


def align(ask: Ask, *, zones: Zones, allocatable: Amounts, scope: str) -> Fit:
    """Place the pod as a whole (`scope` pod), or container by container, each on one NUMA node."""
    if scope == "pod":
        return _align_parts([("pod", ask.whole)], ask.guaranteed, zones, allocatable)
    for amounts in ask.init:
        # An init container has ended when the next one starts: it takes nothing from what follows.
        if fit_zone(amounts, zones, allocatable, guaranteed=ask.guaranteed) is None:
            return Fit(why_not="cannot align init container")
    return _align_parts([("container", amounts) for amounts in ask.app], ask.guaranteed, zones, allocatable)


def _align_parts(parts: Sequence[tuple[str, Amounts]], guaranteed: bool, zones: Zones, allocatable: Amounts) -> Fit:
    placed: list[tuple[int, Amounts]] = []
    for word, amounts in parts:
        zone = fit_zone(amounts, zones, allocatable, guaranteed=guaranteed)
        if zone is None:
            return Fit(why_not=f"cannot align {word}")
        if zone in zones:
            counted = counted_by_zone(amounts, guaranteed=guaranteed)
            placed.append((zone, counted))
            zones = without(zones, zone, counted)
    return Fit(tuple(placed))


def fit_zone(amounts: Amounts, zones: Zones, allocatable: Amounts, *, guaranteed: bool) -> int | None:
    """The lowest NUMA node that has enough of everything asked for; None when there is none."""
    candidates = set(zones) or {0}
    for resource, amount in amounts.items():
        if amount <= _ZERO:
            continue
        listing = {zone for zone, available in zones.items() if resource in available}
        if not listing and resource in _HOST_LEVEL:
            continue
        if resource not in allocatable:
            return None
        if not listing and not is_native(resource):
            continue
        uncounted = not guaranteed and is_shared(resource)
        candidates &= {zone for zone in listing if uncounted or zones[zone][resource] >= amount}
    return min(candidates, default=None)


def one_node_could_hold(amounts: Amounts, totals: Zones) -> bool:
    """Could one NUMA node hold all of it, were the machine empty? `totals`: what each may hand out at most.

    Resources that no NUMA node lists are not asked. Source: kubelet prefers the fewest nodes that could hold a request
    on an empty machine, and its policy `restricted` admits nothing else.
    """
    listed = {name for zone in totals.values() for name in zone}
    wanted = {name: amount for name, amount in amounts.items() if name in listed}
    return any(all(zone.get(name, _ZERO) >= amount for name, amount in wanted.items()) for zone in totals.values())


def without(zones: Zones, zone: int, amounts: Amounts) -> dict[int, Amounts]:
    """The zones after `amounts` were taken from `zone`, never below zero; resources it does not list are skipped."""
    left = {
        name: Quantity(max(0, available.nano - amounts.get(name, _ZERO).nano), available.format)
        for name, available in zones[zone].items()
    }
    return {**zones, zone: left}


def counted_by_zone(amounts: Amounts, *, guaranteed: bool) -> dict[str, Quantity]:
    """The part of `amounts` that is taken from a NUMA node: of a pod that is not Guaranteed, devices only."""
    return {name: q for name, q in amounts.items() if guaranteed or not is_shared(name)}


def is_shared(resource: str) -> bool:
    """Handed out by share, not by piece, unless the pod is Guaranteed."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def is_native(resource: str) -> bool:
    """Kubernetes' own: CPU, memory, huge pages, storage; anything else is a device."""
    return resource in _NATIVE or resource.startswith("hugepages-")


def _plus(a: Amounts, b: Amounts) -> dict[str, Quantity]:
    both = {name: Quantity(a[name].nano + b[name].nano, a[name].format) for name in a if name in b}
    return {**a, **b, **both}
