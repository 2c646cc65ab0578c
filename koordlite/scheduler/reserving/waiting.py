"""Pods that wait for a place, and the one that each Reservation is handed to next."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.formulas.reservation import capacity, hand_over, matching, owners
from koordlite.formulas.reservation.matching import Candidate
from koordlite.model import node_selectors
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity, add_resources
from koordlite.model.wire.objects import NodeObject, PodObject
from koordlite.model.wire.reservation import ReservationObject
from koordlite.numa.koordinator.amounts import added, left
from koordlite.scheduler.reserving import matches, room
from koordlite.scheduler.reserving.matches import Place
from koordlite.scheduler.reserving.world import SeenPod, World, created

Amounts = Mapping[str, Quantity]
_NO_MATCH = {
    "owner": "its owners do not name it",
    "name": "it asks for another one by name",
    "unschedulable": "it takes no new owners",
    "taints": "it has a taint that the pod does not tolerate",
    "affinity": "the pod's reservation affinity is for others",
    "exact": "the pod does not ask for exactly what it holds",
}
"""What stands against a match, in words."""


def assigned(world: World, guarded: frozenset[str], now: float) -> dict[str, SeenPod]:
    """By uid of a Reservation, the pod that it is to be handed to: one at a time, important and old ones first.

    `guarded`: schedulers that keep their pods off what is being handed over.
    """
    chosen: dict[str, SeenPod] = {}
    free = []
    for name, reservation in world.reservations.items():
        with world.guarded(name):
            place = matches.place_of(reservation)
            if place is not None and hand_over.under_way(reservation) is None:
                free.append(_as_held(world, place))
    if not free:
        return chosen
    promised = world.promised()
    pods = [pod for pod in world.waiting.values() if pod.uid not in promised and pod.refused() is not None]
    for pod in sorted(pods, key=lambda pod: (-_priority(pod), created(pod), pod.key)):
        left_over = [place for place in free if place.reservation.metadata.uid not in chosen]
        found = next_place(world, pod, left_over, guarded, now)
        if found is not None:
            chosen[found.reservation.metadata.uid] = pod
    return chosen


def next_place(world: World, pod: SeenPod, among: Iterable[Place], guarded: frozenset[str], now: float) -> Place | None:
    """The place that is freed for this pod now."""
    one = candidate(pod)
    if one is None or one.ignores:
        return None
    fitting = []
    for place in among:
        with world.guarded(place.name):
            if not refusal(world, one, place, now) and taker(world, pod, place.reservation, guarded) is None:
                fitting.append(place)
    return matches.best(one, fitting)


def candidate(pod: SeenPod) -> Candidate | None:
    """The pod read once; None when what it says about reservations cannot be read, so that none matches."""
    assert pod.obj is not None, "pods that wait are kept whole"
    try:
        return matching.candidate(pod.obj, pod.requests)
    except InputError:
        return None


def refusal(world: World, one: Candidate, place: Place, now: float) -> str:
    """Reason why the place is not freed for the pod now; empty when it is."""
    node = world.nodes.get(place.node)
    if node is None:
        return f"node {place.node} is gone"
    labels = node.metadata.labels or {}
    found = matching.match(one, place.reservation, place.holding.allocatable, labels)
    if found != matching.MATCHED:
        return _NO_MATCH.get(found, found)
    mine = len([pod for pod in world.placeholders(place.reservation.metadata.uid) if pod.node])
    uid = place.reservation.metadata.uid
    where = room.capacity(world, place.node, uid, matched=mine, owner=one.pod.metadata.uid)
    lacking = "; ".join(matches.lacks(one, place, where))
    return lacking or _not_now(one, place, now) or _keeps_off(one, node) or world.lacks(one.pod, place.name)


def _not_now(one: Candidate, place: Place, now: float) -> str:
    if not any(amount.nano for amount in place.holding.available.values()):
        return "nothing is left of it"
    if not hand_over.may_try(place.reservation, one.pod.metadata.uid, now):
        return "it did not come the last time, and the pause before the next attempt is not over"
    return ""


def taker(world: World, owner: SeenPod, reservation: ReservationObject, guarded: frozenset[str]) -> SeenPod | None:
    """A waiting pod that would take the room before the owner does: of another scheduler, which knows no nominations
    of this one, or more important, as the placeholder of another Reservation is. None when none fits.

    An extender keeps the pods of `guarded` schedulers off what the Reservation holds, and off no more: such a pod takes
    the room where it fits beside that and leaves the owner too little.
    """
    name, uid, mine = reservation.status.node_name, reservation.metadata.uid, _scheduler(owner)
    where, node = world.capacity(name), world.nodes.get(name)
    if where is None or node is None:
        return None
    freed = capacity.whole(held_by(pod for pod in world.placeholders(uid) if pod.node == name))
    refused = (pod for pod in world.waiting.values() if pod.refused() is not None)
    for pod in (*refused, *world.unbound_placeholders(uid)):
        if pod.uid == owner.uid or pod.obj is None:
            continue
        before = _scheduler(pod) != mine or _priority(pod) > _priority(owner)
        spec = pod.obj.spec
        if before and node_selectors.node_matches(spec, name, node.metadata.labels or {}):
            tolerated = node_selectors.untolerated(node.spec.taints or (), spec.tolerations or ()) is None
            whole = capacity.whole(pod.requests)
            if _scheduler(pod) in guarded:
                both = collections.Counter(whole) + collections.Counter(capacity.whole(owner.requests))
                takes = not capacity.fit_node(whole, where, {}) and bool(capacity.fit_node(both, where, freed))
            else:
                takes = not capacity.fit_node(whole, where, freed)
            if tolerated and takes:
                return pod
    return None


def _scheduler(pod: SeenPod) -> str:
    return (pod.obj.spec.scheduler_name if pod.obj is not None else "") or "default-scheduler"


def _keeps_off(one: Candidate, node: NodeObject) -> str:
    """Objections of a scheduler to the node."""
    spec, name = one.pod.spec, node.metadata.name
    if not node_selectors.node_matches(spec, name, node.metadata.labels or {}):
        return f"its node selector or affinity keeps it off node {name}"
    taint = node_selectors.untolerated(node.spec.taints or (), spec.tolerations or ())
    if taint is not None:
        return f"it does not tolerate the taint {taint.key}={taint.value}:{taint.effect} of node {name}"
    return f"node {name} takes no new pods" if node.spec.unschedulable else ""


def may_own(reservation: ReservationObject, pod: PodObject) -> bool:
    """Tell whether its owners name the pod. With a selector that cannot be read they name none; `validity` reports
    it."""
    try:
        return owners.match(reservation.spec.owners, pod)
    except ValueError:
        return False


def _as_held(world: World, place: Place) -> Place:
    """With no more than placeholders really hold: what was lost cannot be handed over."""
    pods = world.placeholders(place.reservation.metadata.uid)
    held = held_by(pod for pod in pods if pod.alive and pod.node == place.node)
    lost = missing(left(place.holding.allocatable, place.holding.allocated), held)
    lost.pop("pods", None)
    return msgspec.structs.replace(
        place, holding=msgspec.structs.replace(place.holding, reserved=added(place.holding.reserved, lost))
    )


def held_by(pods: Iterable[SeenPod]) -> dict[str, Quantity]:
    """Sum of their requests."""
    total: dict[str, Quantity] = {}
    for pod in pods:
        add_resources(total, pod.requests)
    return total


def missing(wanted: Amounts, held: Amounts) -> dict[str, Quantity]:
    """Amounts wanted and not held: those above 0."""
    rest = left(wanted, {name: amount for name, amount in held.items() if name in wanted})
    return {name: amount for name, amount in rest.items() if amount.nano > 0 and name != "pods"}


def _priority(pod: SeenPod) -> int:
    return (pod.obj.spec.priority or 0) if pod.obj is not None else 0
