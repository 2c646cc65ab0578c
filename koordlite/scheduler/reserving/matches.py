"""Matching of waiting pods and places: Koordinator's rules for owners, fit, order and score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from koordlite.formulas.reservation import capacity, lifecycle
from koordlite.formulas.reservation.capacity import Holding, NodeCapacity, Wanted
from koordlite.formulas.reservation.matching import Candidate
from koordlite.model import keys
from koordlite.model.wire.reservation import ReservationObject


class Place(msgspec.Struct, frozen=True):
    """An available Reservation with what it has left."""

    reservation: ReservationObject
    holding: Holding

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.reservation.metadata.name

    @property
    def node(self) -> str:
        """Node of the place."""
        return self.reservation.status.node_name


def place_of(reservation: ReservationObject) -> Place | None:
    """The place that pods may take now; None: none may."""
    if not lifecycle.is_available(reservation):
        return None
    held, problems = lifecycle.holding(reservation)
    status = reservation.status
    taken = msgspec.structs.replace(
        held,
        allocated=lifecycle.amounts(status.allocated),
        owners={owner.uid: {} for owner in status.current_owners or ()},
    )
    return Place(reservation, taken) if lifecycle.is_matchable(reservation, taken, problems) else None


def places(reservations: Iterable[ReservationObject]) -> Iterator[Place]:
    """All that pods may take."""
    return (place for each in reservations if (place := place_of(each)) is not None)


def lacks(one: Candidate, place: Place, where: NodeCapacity | None) -> tuple[str, ...]:
    """Resources that the place and its node have too little of for a pod that may take it; empty when the pod fits."""
    if where is None:
        return ("its node is gone",)
    affinity = one.affinity
    wanted = Wanted(
        requests=one.requests,
        has_affinity=affinity is not None,
        must_reserve=True,
        name=affinity.name if affinity else "",
    )
    return capacity.refusals(wanted, where, [place.holding])


def best(one: Candidate, among: Iterable[Place]) -> Place | None:
    """Choose among the places that the pod may take: the smallest order label, else the one it fills most; equal ones
    by name."""
    found = sorted(among, key=lambda place: place.name)
    if not found:
        return None
    labels = [(place.reservation.metadata.labels or {}).get(keys.RESERVATION_ORDER) for place in found]
    first = capacity.first_by_order(labels)
    if first is not None:
        return found[first]
    return max(found, key=lambda place: capacity.score(one.requests, place.holding))
