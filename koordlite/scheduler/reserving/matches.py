"""Which waiting pod gets which place: Koordinator's rules for owners, fit, order and score."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from koordlite.formulas.reservation import capacity, hand_over, lifecycle, matching
from koordlite.formulas.reservation.capacity import Holding, NodeCapacity, Wanted
from koordlite.formulas.reservation.matching import Candidate
from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.wire.reservation import ReservationObject

Amounts = Mapping[str, Quantity]
OfNode = Callable[["Place"], NodeCapacity | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """An available Reservation with what it has left."""

    reservation: ReservationObject
    holding: Holding

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.reservation.metadata.name

    @property
    def node(self) -> str:
        """Where it is."""
        return self.reservation.status.node_name


def place_of(reservation: ReservationObject) -> Place | None:
    """The place that pods may take now; None: none may."""
    if not lifecycle.is_available(reservation):
        return None
    held, problems = lifecycle.holding(reservation)
    status = reservation.status
    taken = dataclasses.replace(
        held,
        allocated=lifecycle.amounts(status.allocated),
        owners={owner.uid: {} for owner in status.current_owners or ()},
    )
    return Place(reservation, taken) if lifecycle.is_matchable(reservation, taken, problems) else None


def places(reservations: Iterable[ReservationObject]) -> Iterator[Place]:
    """All that pods may take."""
    return (place for each in reservations if (place := place_of(each)) is not None)


def why_not(one: Candidate, place: Place, where: NodeCapacity | None, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Why the pod does not get the place; empty when it does. `labels`: of the node."""
    found = matching.match(one, place.reservation, place.holding.allocatable, labels)
    if found != matching.MATCHED:
        return (found,)
    if where is None:
        return ("node",)
    affinity = one.affinity
    wanted = Wanted(
        requests=one.requests,
        has_affinity=affinity is not None,
        must_reserve=True,
        name=affinity.name if affinity else "",
    )
    return capacity.refusals(wanted, where, [place.holding])


def best(one: Candidate, among: Iterable[Place]) -> Place | None:
    """Of places that the pod may take: the smallest order label, else the one it fills most; equal ones by name."""
    found = sorted(among, key=lambda place: place.name)
    if not found:
        return None
    labels = [(place.reservation.metadata.labels or {}).get(keys.RESERVATION_ORDER) for place in found]
    first = capacity.first_by_order(labels)
    if first is not None:
        return found[first]
    return max(found, key=lambda place: capacity.score(one.requests, place.holding))


def is_free(place: Place, uid: str) -> bool:
    """No other pod is on its way to it."""
    coming = hand_over.under_way(place.reservation)
    return coming is None or coming.uid == uid
