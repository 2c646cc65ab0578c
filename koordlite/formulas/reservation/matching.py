"""May this pod take that reservation?

Source: Koordinator v1.9 `checkReservationMatchedOrIgnored` (plugins/reservation/transformer.go).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.formulas.reservation import affinity as affinities
from koordlite.formulas.reservation import owners
from koordlite.formulas.reservation.affinity import Affinity
from koordlite.formulas.reservation.annotations import read
from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.wire.objects import PodObject
from koordlite.model.wire.reservation import ReservationObject, ResourceNames

Amounts = Mapping[str, Quantity]
MATCHED, IGNORED = "matched", "ignored"


class Candidate(msgspec.Struct, frozen=True):
    """A pod that looks for a reservation, read once for all of them."""

    pod: PodObject
    requests: Amounts
    affinity: Affinity | None = None
    exact: tuple[str, ...] = ()
    """Resources of which it must request just what the reservation holds."""

    @property
    def ignores(self) -> bool:
        """It takes what reservations hold as if it were free."""
        return (self.pod.metadata.labels or {}).get(keys.RESERVATION_IGNORED) == "true"


def candidate(pod: PodObject, requests: Amounts) -> Candidate:
    """The pod with its annotations; InputError when one of them cannot be read."""
    name, notes = f"pod/{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.annotations
    exact = read(ResourceNames, notes, keys.EXACT_MATCH, name)
    return Candidate(pod, requests, affinities.parse(notes, name), (exact.resource_names or ()) if exact else ())


def match(one: Candidate, reservation: ReservationObject, allocatable: Amounts, node_labels: Mapping[str, str]) -> str:
    """`matched`, `ignored`, or what stands against it first: `owner`, `name`, `unschedulable`, `taints`, `affinity`,
    `exact`.

    Ours, unlike Koordinator's: taints also keep off pods without an affinity annotation.
    """
    if one.ignores:
        return IGNORED
    if not _is_owner(one, reservation):
        return "owner"
    affinity = one.affinity or affinities.NO_AFFINITY
    why = _named(affinity, reservation) if affinity.name else _unnamed(affinity, reservation, node_labels)
    return why or (MATCHED if exact_match(one.exact, one.requests, allocatable) else "exact")


def _is_owner(one: Candidate, reservation: ReservationObject) -> bool:
    try:
        return owners.match(reservation.spec.owners, one.pod)
    except ValueError:
        # The reservation's own problem, which `lifecycle.problems` reports.
        return False


def _named(affinity: Affinity, reservation: ReservationObject) -> str:
    return "" if affinity.name == reservation.metadata.name else "name"


def _unnamed(affinity: Affinity, reservation: ReservationObject, node_labels: Mapping[str, str]) -> str:
    closed = reservation.spec.unschedulable or reservation.metadata.deletion_timestamp is not None
    if closed and not affinity.tolerates_unschedulable:
        return "unschedulable"
    if affinity.untolerated(reservation.spec.taints) is not None:
        return "taints"
    labels = {**node_labels, **(reservation.metadata.labels or {})}
    return "" if affinity.selects(reservation.metadata.name, labels) else "affinity"


def exact_match(names: tuple[str, ...], requests: Amounts, allocatable: Amounts) -> bool:
    """Tell whether of each of these resources the pod requests just what the reservation holds, or both have none.

    Ours, unlike Koordinator's: a resource that both lack does not end the comparison.
    """
    return all(requests.get(name) == allocatable.get(name) for name in names)
