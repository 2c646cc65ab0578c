"""Allocation when reservations hold a part of the node: from one that it may take first, or from the node.

A reservation is counted on the node like a pod, and its owners beside it; so what owners took is counted twice, and is
given back once. Source: Koordinator v1.9 `tryAllocateFromReusable`, `tryAllocateFromNode`, `allocateWithNominated`
(nodenumaresource/reservation.go). One difference: a pod is given CPUs of the one reservation it is tried with, where
Koordinator also lets it take those that other matching reservations have left.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordlite.model.cpuset import union
from koordlite.numa.koordinator.allocate import Request, Reuse, Supply, allocate, fits
from koordlite.numa.koordinator.amounts import zones_added
from koordlite.numa.koordinator.held import RESTRICTED_POLICY, Reserved
from koordlite.numa.koordinator.node_report import NodeState
from koordlite.numa.koordinator.values import NOT_ENOUGH_CPUS, Allocation, Refusal, refuse

PREFIX = "Reservation(s) "
OUT_OF_SCOPE = "pod has a nominated reservation but cannot be allocated within its NUMA scope"
NONE_NOMINATED = "no nominated reservation"


def feasible(node: NodeState, request: Request, mask: int | None) -> bool:
    """Tell whether `attempt` gives something."""
    if not node.reservations:
        return fits(Supply.of(node, request), request, mask)
    return not isinstance(attempt(node, request, mask), Refusal)


def attempt(node: NodeState, request: Request, mask: int | None) -> Allocation | Refusal:
    """Allocation inside the NUMA nodes of `mask`, from any reservation it may take, else from the node.

    A pod that has to take a reservation gets nothing from the node alone.
    """
    if node.reservations.ignored:
        return _ignoring(node, request, mask, "")
    found = _from(node, request, mask, node.reservations.matched, "")
    return found or _from_node(node, request, mask, "")


def take(node: NodeState, request: Request, mask: int | None, *, uid: str) -> Allocation | Refusal:
    """Allocation of the pod: from the nominated reservation where there is one, and never from the node instead of
    it."""
    known = node.reservations
    if known.ignored:
        return _ignoring(node, request, mask, uid)
    if known.matched and request.must_reserve and not known.nominated:
        return refuse(NONE_NOMINATED)
    chosen = [one for one in known.matched if one.uid == known.nominated]
    if not chosen:
        return _from_node(node, request, mask, uid)
    return _from(node, request, mask, chosen, uid) or refuse(OUT_OF_SCOPE)


def hint_supply(node: NodeState, request: Request) -> Supply:
    """All that the pod could use on the node: what its hints are about."""
    known = node.reservations
    if not known:
        return Supply.of(node, request)
    zones = zones_added([*(one.zones for one in known.matched), *(one.taken_zones for one in known.others)])
    return Supply.of(node, request, Reuse(zones=zones, preferred=union(one.free_cpus for one in known.matched)))


def given_back(node: NodeState) -> Reuse:
    """Resources that do not count as used when the pod takes its nominated reservation, or none."""
    known = node.reservations
    chosen = [one for one in known.matched if known.ignored or one.uid == known.nominated]
    zones = zones_added([known.counted_twice, *(one.free_zones for one in chosen)])
    return Reuse(zones=zones, preferred=union(one.free_cpus for one in chosen))


def _from(
    node: NodeState, request: Request, mask: int | None, chosen: Sequence[Reserved], uid: str
) -> Allocation | Refusal | None:
    """The allocation from the first of the chosen reservations that will do; None when the node may be asked."""
    reasons: list[str] = []
    for one in chosen:
        found = _from_one(node, request, mask, one, uid)
        if not isinstance(found, Refusal):
            return found
        reasons += [f"{PREFIX}{reason}" for reason in found.reasons]
    return Refusal(tuple(reasons)) if request.must_reserve and chosen else None


def _from_one(node: NodeState, request: Request, mask: int | None, one: Reserved, uid: str) -> Allocation | Refusal:
    """Take what the reservation has left first, its CPUs before others; under Restricted nothing else comes."""
    reuse = Reuse(zones=zones_added((node.reservations.counted_twice, one.free_zones)), preferred=one.free_cpus)
    found = allocate(Supply.of(node, request, reuse), request, mask, uid=uid)
    if one.policy != RESTRICTED_POLICY or isinstance(found, Refusal):
        return found
    if request.bound and request.count > len(one.free_cpus):
        return refuse(NOT_ENOUGH_CPUS)
    reuse = msgspec.structs.replace(reuse, only=one.free_zones)
    found = allocate(Supply.of(node, request, reuse), request, mask, uid=uid)
    outside = not isinstance(found, Refusal) and not found.cpus <= one.free_cpus
    return refuse(NOT_ENOUGH_CPUS) if outside else found


def _from_node(node: NodeState, request: Request, mask: int | None, uid: str) -> Allocation | Refusal:
    if not node.reservations:
        return allocate(Supply.of(node, request), request, mask, uid=uid)
    reuse = Reuse(zones=node.reservations.counted_twice)
    return allocate(Supply.of(node, request, reuse), request, mask, uid=uid)


def _ignoring(node: NodeState, request: Request, mask: int | None, uid: str) -> Allocation | Refusal:
    return allocate(Supply.of(node, request, given_back(node)), request, mask, uid=uid)
