"""Room of a reservation: what it has, what its owners took, and whether a pod fits into it and its node.

Source: Koordinator v1.9 `ReservationInfo` (frameworkext/reservation_info.go), `filterWithReservations`,
`fitsNodeAndReservation`, `ScoreReservation` (plugins/reservation).
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.wire.reservation import RESTRICTED
from koordlite.numa.koordinator.values import added, difference

Amounts = Mapping[str, Quantity]
Whole = Mapping[str, int]
"""Thousandths of a CPU, whole units of anything else."""
PREFIX = "Reservation(s) "
NONE_MEETS = "node(s) no reservation(s) to meet the requirements"
_NATIVE = ("cpu", "memory", "ephemeral-storage")


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation with the pods that took of it."""

    name: str = ""
    uid: str = ""
    policy: str = ""
    """`Aligned`, or empty for the same: the rest of a pod may come from the node. `Restricted`: it may not."""
    names: tuple[str, ...] = ()
    """Resources it holds; under Restricted those that are restricted."""
    allocatable: Amounts = msgspec.field(default_factory=dict)
    reserved: Amounts = msgspec.field(default_factory=dict)
    """The part that even owners do not get."""
    allocated: Amounts = msgspec.field(default_factory=dict)
    owners: Mapping[str, Amounts] = msgspec.field(default_factory=dict)
    """Requests by uid."""

    def taken_by(self, uid: str, requests: Amounts) -> Holding:
        """The state after this pod took it; a pod takes it once."""
        if uid in self.owners:
            return self
        allocated = added(self.allocated, self._masked(requests))
        return msgspec.structs.replace(self, allocated=allocated, owners={**self.owners, uid: requests})

    def returned_by(self, uid: str) -> Holding:
        """The state after this pod has gone."""
        if uid not in self.owners:
            return self
        allocated = difference(self.allocated, self._masked(self.owners[uid]))
        owners = {other: requests for other, requests in self.owners.items() if other != uid}
        return msgspec.structs.replace(self, allocated=allocated, owners=owners)

    @property
    def available(self) -> dict[str, Quantity]:
        """Rest: allocatable − allocated − reserved, never below 0."""
        remaining = {name: amount - self.allocated.get(name, ZERO) for name, amount in self.allocatable.items()}
        return difference(remaining, self.reserved)

    def _masked(self, amounts: Amounts) -> dict[str, Quantity]:
        return {name: amount for name, amount in amounts.items() if name in self.names}


def restricted_names(allocatable: Iterable[str], options: Iterable[str] | None) -> tuple[str, ...]:
    """Resources of the reservation that `options` list; all when it lists none of them."""
    names = tuple(allocatable)
    listed = set(options or ())
    return tuple(name for name in names if name in listed) or names


class NodeCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """A node as a pod sees it that may take reservations."""

    allocatable: Whole
    requested: Whole
    """Requests of all pods, those that stand for reservations and their owners, too."""
    owners: Whole = msgspec.field(default_factory=dict)
    """Amounts that owners took of the reservations the pod may take: they are in `requested` twice."""
    pods: int = 0
    matched: int = 0
    """Reservations that the pod may take; each counts as one of `pods`."""
    preemptible: Amounts = msgspec.field(default_factory=dict)
    """Amounts of pods that would be evicted from the node."""
    preemptible_in: Mapping[str, Amounts] = msgspec.field(default_factory=dict)
    """Amounts of owners that would be evicted, by uid of the reservation."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a pod, and how far it depends on reservations."""

    requests: Amounts
    has_affinity: bool = False
    must_reserve: bool = False
    """It may not run without a reservation."""
    name: str = ""
    """The reservation it asks for by name."""


def refusals(
    demand: Demand, where: NodeCapacity, holdings: Sequence[Holding], *, skip_node: bool = False
) -> tuple[str, ...]:
    """Reason why the pod fits neither into the node with one of the reservations nor, where it may, into the node
    alone.

    Empty when it fits. Several reservations are not added up. With `skip_node`, one reservation is asked and no node.
    """
    by_node: set[str] = set()
    by_reservation: list[str] = []
    for holding in holdings:
        if demand.name and demand.name != holding.name:
            continue
        if not demand.has_affinity and not any(name in demand.requests for name in holding.names):
            continue
        node, own = fit_both(demand, where, holding, skip_node=skip_node and len(holdings) <= 1)
        if not node and not own:
            return ()
        by_node.update(node)
        by_reservation += own
    if demand.must_reserve:
        return (*(f"Insufficient {name} by node" for name in sorted(by_node)), *by_reservation) or (NONE_MEETS,)
    lacking = by_node or fit_node(whole(demand.requests), where, whole(where.preemptible))
    return tuple(f"Insufficient {name} by node" for name in sorted(lacking))


def fit_both(
    demand: Demand, where: NodeCapacity, holding: Holding, *, skip_node: bool = False
) -> tuple[list[str], list[str]]:
    """(resources the node lacks, reasons of the reservation): the pod takes what both have left."""
    inside = where.preemptible_in.get(holding.uid, {})
    free = collections.Counter(whole(holding.available))
    for more in (where.preemptible, inside):
        free.update(whole(more))
    node = [] if skip_node else fit_node(whole(demand.requests), where, free)
    detailed = bool(demand.name) and demand.name == holding.name
    own = fit_reservation(demand.requests, holding, inside, detailed=detailed) if holding.policy == RESTRICTED else []
    return node, own


def fit_node(request: Whole, where: NodeCapacity, extra: Whole) -> list[str]:
    """The resources of which the node has too little: asked > allocatable − (requested − owners − extra).

    `extra` is what counts as free beside: the rest of a reservation, pods that would be evicted.
    """
    lacking = ["pods"] if where.pods - where.matched + 1 > where.allocatable.get("pods", 0) else []
    scalars = sorted(name for name in request if name not in (*_NATIVE, "pods"))
    if not scalars and not any(request.get(name, 0) for name in _NATIVE):
        return lacking
    for name in (*_NATIVE, *scalars):
        used = where.requested.get(name, 0) - where.owners.get(name, 0) - extra.get(name, 0)
        if request.get(name, 0) > where.allocatable.get(name, 0) - used:
            lacking.append(name)
    return lacking


def fit_reservation(requests: Amounts, holding: Holding, preemptible: Amounts, *, detailed: bool) -> list[str]:
    """Reason why a Restricted reservation has too little for the pod; `detailed` with the numbers."""
    reasons = []
    if "pods" in holding.allocatable:
        # It limits the owners.
        most, used = holding.allocatable["pods"].value, len(holding.owners) - preemptible.get("pods", ZERO).value
        if used + 1 > most:
            reasons.append(f"{PREFIX}Too many pods" + (_numbers(1, used, most) if detailed else ""))
    for name in holding.names:
        requested = requests.get(name, ZERO)
        capacity = holding.allocatable.get(name, ZERO) - holding.reserved.get(name, ZERO)
        in_use = holding.allocated[name] - preemptible.get(name, ZERO) if name in holding.allocated else ZERO
        in_use = in_use if in_use.nano > 0 else ZERO
        if requested.nano and requested > capacity - in_use:
            numbers = (_whole(name, amount) for amount in (requested, in_use, capacity))
            reasons.append(f"{PREFIX}Insufficient {name}" + (_numbers(*numbers) if detailed else ""))
    return reasons


def score(requests: Amounts, holding: Holding) -> int:
    """Part of the reservation that would be used, 0 to 100: the mean over what it holds; too much counts 0."""
    capacities = {name: amount for name, amount in holding.allocatable.items() if amount.nano}
    total = added(requests, holding.allocated)
    points = (
        100 * total[name].milli // most.milli
        for name, most in capacities.items()
        if name in total and total[name] <= most
    )
    return sum(points) // len(capacities) if capacities else 0


def first_by_order(orders: Sequence[str | None]) -> int | None:
    """The place of the smallest order label; 0, text and no label do not count."""
    numbers = [(_order(text), place) for place, text in enumerate(orders)]
    ordered = [(number, place) for number, place in numbers if number is not None]
    return min(ordered)[1] if ordered else None


def _order(text: str | None) -> int | None:
    """The number as Go reads it; None also for the largest, which Koordinator takes for none."""
    digits = (text or "").removeprefix("-") if (text or "").startswith("-") else (text or "").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    number = int(text or "")
    return number if number and -(2**63) <= number < 2**63 - 1 else None


def whole(amounts: Amounts) -> dict[str, int]:
    """The amounts as a scheduler counts them; native names that it does not count are left out."""
    return {
        name: _whole(name, amount)
        for name, amount in amounts.items()
        if name in (*_NATIVE, "pods") or "/" in name or name.startswith("hugepages-")
    }


def _whole(name: str, amount: Quantity) -> int:
    return amount.milli if name == "cpu" else amount.value


def _numbers(requested: int, used: int, most: int) -> str:
    return f", requested: {requested}, used: {used}, capacity: {most}"
