"""Pods that wait for a place, the one that each Reservation is handed to next, and the room that is promised meanwhile.

Who makes a placeholder counts promised room beside what pods have. It is derived from the objects each time: hand-overs
that are under way, pods that a scheduler keeps room for, and placeholders that wait.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping

import msgspec

from koordlite.model import node_selectors
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.wire.objects import NodeObject, PodSpec
from koordlite.model.wire.reservation import ReservationObject
from koordlite.numa.koordinator.values import added, difference
from koordlite.reservation import capacity, hand_over, lifecycle, matching
from koordlite.reservation.capacity import Demand, NodeCapacity
from koordlite.reservation.matching import Candidate
from koordlite.reservation.placed import PlacedReservation, matchable, preferred
from koordlite.reservation.pods import ClusterPod, total_requests
from koordlite.reservation.world import World

Amounts = Mapping[str, Quantity]
_NO_MATCH = {
    "owner": "its owners do not name it",
    "name": "it asks for another one by name",
    "unschedulable": "it takes no new owners",
    "taints": "it has a taint that the pod does not tolerate",
    "affinity": "the pod's reservation affinity is for others",
    "exact": "the pod does not ask for exactly what it holds",
}
"""Words for what stands against a match."""


def assigned(world: World, guarded: frozenset[str], now: float) -> dict[str, ClusterPod]:
    """Pod that a Reservation is to be handed to, by its uid: one at a time, important and old ones first.

    `guarded`: schedulers that keep their pods off what is being handed over.
    """
    owners: dict[str, ClusterPod] = {}
    free = []
    for name in sorted(world.reservations):
        with world.guarded(name):
            place = matchable(world.reservations[name])
            if place is not None and not place.handed_to:
                free.append(_as_held(world, place))
    if not free:
        return owners
    promised = world.promised()
    pods = [pod for pod in world.waiting.values() if pod.uid not in promised and pod.refused() is not None]
    for pod in sorted(pods, key=lambda pod: (-pod.priority, pod.created, pod.key)):
        one = candidate(pod)
        if one is None or one.ignores:
            continue
        fitting = []
        for place in free:
            with world.guarded(place.name):
                is_free = place.uid not in owners and not refusal(world, one, place, now)
                if is_free and taker(world, pod, place.object, guarded) is None:
                    fitting.append(place)
        for place in preferred(one, fitting)[:1]:
            owners[place.uid] = pod
    return owners


def candidate(pod: ClusterPod) -> Candidate | None:
    """The pod read once; None when what it says about reservations cannot be read, so that none matches."""
    assert pod.obj is not None, "pods that wait are kept whole"
    return matching.candidate(pod.obj, pod.requests)


def refusal(world: World, one: Candidate, place: PlacedReservation, now: float) -> str:
    """Reason why the place is not freed for the pod now; empty when it is."""
    node = world.nodes.get(place.node)
    if node is None:
        return f"node {place.node} is gone"
    labels = node.metadata.labels or {}
    answer = matching.match(one, place.object, place.holding.allocatable, labels)
    if answer != matching.MATCHED:
        return _NO_MATCH.get(answer, answer)
    mine = len([pod for pod in world.placeholders(place.uid) if pod.node])
    uid = place.uid
    where = node_capacity(world, place.node, uid, matched=mine, owner=one.pod.metadata.uid)
    assert where is not None, "the node is known"
    affinity = one.affinity
    demand = Demand(
        requests=one.requests,
        has_affinity=affinity is not None,
        must_reserve=True,
        name=affinity.name if affinity else "",
    )
    why = "; ".join(capacity.refusals(demand, where, [place.holding]))
    if not why and not any(amount.nano for amount in place.holding.available.values()):
        why = "nothing is left of it"
    if not why and not hand_over.may_try(place.object, one.pod.metadata.uid, now):
        why = "it did not come the last time, and the pause before the next attempt is not over"
    why = why or _objection(one.pod.spec, node)
    if not why and node.spec.unschedulable:
        why = f"node {place.node} takes no new pods"
    return why or world.lacks(one.pod, place.name)


def taker(
    world: World, owner: ClusterPod, reservation: ReservationObject, guarded: frozenset[str]
) -> ClusterPod | None:
    """A waiting pod that would take the room before the owner does: of another scheduler, which knows no nominations
    of this one, or more important, as the placeholder of another Reservation is. None when none fits.

    An extender keeps the pods of `guarded` schedulers off what the Reservation holds, and off no more: such a pod takes
    the room where it fits beside that and leaves the owner too little.
    """
    name, uid, mine = reservation.status.node_name, reservation.metadata.uid, owner.scheduler
    where, node = world.capacity(name), world.nodes.get(name)
    if where is None or node is None:
        return None
    freed = capacity.whole(total_requests(pod for pod in world.placeholders(uid) if pod.node == name))
    refused = (pod for pod in world.waiting.values() if pod.refused() is not None)
    for pod in (*refused, *world.unbound_placeholders(uid)):
        if pod.uid == owner.uid or pod.obj is None:
            continue
        before = pod.scheduler != mine or pod.priority > owner.priority
        if before and not _objection(pod.obj.spec, node):
            whole = capacity.whole(pod.requests)
            if pod.scheduler in guarded:
                both = collections.Counter(whole) + collections.Counter(capacity.whole(owner.requests))
                takes = not capacity.fit_node(whole, where, {}) and bool(capacity.fit_node(both, where, freed))
            else:
                takes = not capacity.fit_node(whole, where, freed)
            if takes:
                return pod
    return None


def _objection(spec: PodSpec, node: NodeObject) -> str:
    """Objection of selectors, affinity or taints to the pod on the node; empty when it may run there."""
    name = node.metadata.name
    if not node_selectors.node_matches(spec, name, node.metadata.labels or {}):
        return f"its node selector or affinity keeps it off node {name}"
    taint = node_selectors.untolerated(node.spec.taints or (), spec.tolerations or ())
    if taint is not None:
        return f"it does not tolerate the taint {taint.key}={taint.value}:{taint.effect} of node {name}"
    return ""


def _as_held(world: World, place: PlacedReservation) -> PlacedReservation:
    """The Reservation with no more than its placeholders hold: what was lost cannot be handed over."""
    pods = world.placeholders(place.uid)
    holding = total_requests(pod for pod in pods if pod.alive and pod.node == place.node)
    lost = missing(difference(place.holding.allocatable, place.holding.allocated), holding)
    lost.pop("pods", None)
    return msgspec.structs.replace(
        place, holding=msgspec.structs.replace(place.holding, reserved=added(place.holding.reserved, lost))
    )


def missing(amounts: Amounts, holding: Amounts) -> dict[str, Quantity]:
    """Amounts wanted and not held: those above 0."""
    lacks = difference(amounts, {name: amount for name, amount in holding.items() if name in amounts})
    return {name: amount for name, amount in lacks.items() if amount.nano > 0 and name != "pods"}


def node_capacity(world: World, node: str, mine: str, *, matched: int = 0, owner: str = "") -> NodeCapacity | None:
    """A node as the Reservation with uid `mine` meets it: room that others were promised there counts as requested.

    No more than there is: what was promised and is gone is not taken from those who still have theirs. None when the
    node is unknown. `matched`: as for `World.capacity`. `owner`: uid of a pod whose own claim does not count.
    """
    where = world.capacity(node, matched)
    if where is None:
        return None
    promised: collections.Counter[str] = collections.Counter()
    for amounts in _of_node(world, node, mine, owner):
        promised.update({**capacity.whole(amounts), "pods": 1})
    most, pods = where.allocatable, where.pods
    requested = {
        name: used + min(promised[name], max(most.get(name, 0) - used, 0))
        for name in {*where.requested, *promised} - {"pods"}
        for used in (where.requested.get(name, 0),)
    }
    pods += min(promised["pods"], max(most.get("pods", 0) - pods, 0))
    return msgspec.structs.replace(where, requested=requested, pods=pods)


def displaced(world: World, amounts: Amounts, spec: PodSpec, mine: str) -> str:
    """The Reservation whose freed room a new placeholder would take from its owner; empty for none."""
    for reservation, _ in world.handed_over():
        name = reservation.status.node_name
        node, where = world.nodes.get(name), world.capacity(name)
        if node is None or where is None or reservation.metadata.uid == mine:
            continue
        if _objection(spec, node):
            continue
        promised = node_capacity(world, name, mine)
        whole = capacity.whole(amounts)
        if not capacity.fit_node(whole, where, {}) and promised and capacity.fit_node(whole, promised, {}):
            return reservation.metadata.name
    return ""


def _of_node(world: World, node: str, mine: str, owner: str) -> Iterator[Amounts]:
    """Amounts promised on a node to others, and not bound yet."""
    uids = {owner}
    for reservation, coming in world.handed_over(node):
        uids.add(coming.uid)
        uid = reservation.metadata.uid
        waiting = [pod for pod in world.placeholders(uid) if pod.alive and not pod.node]
        uids.update(pod.uid for pod in waiting)
        if uid != mine and (pod := world.waiting.get(coming.uid)) is not None:
            yield _outstanding(world, reservation, pod)
    for pod in world.nominated(node):
        if pod.uid not in uids and pod.stands_for != mine:
            yield pod.requests


def _outstanding(world: World, reservation: ReservationObject, owner: ClusterPod) -> Amounts:
    """Amounts that have to be free for an owner and for what it leaves over, beyond what placeholders still hold."""
    status = reservation.status
    remaining = difference(lifecycle.amounts(status.allocatable), lifecycle.amounts(status.allocated))
    whole = {
        name: max(remaining.get(name, ZERO), owner.requests.get(name, ZERO)) for name in {*remaining, *owner.requests}
    }
    pods = world.placeholders(reservation.metadata.uid)
    return missing(whole, total_requests(pod for pod in pods if pod.node == status.node_name and not pod.ended))
