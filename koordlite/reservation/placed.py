"""Steps for a Reservation that has its place: hold it whole, hand it over, take it back."""

from __future__ import annotations

import json
from collections.abc import Iterator

from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.wire.reservation import HandOverText
from koordlite.numa.koordinator.amounts import ZERO, left
from koordlite.reservation import hand_over, lifecycle
from koordlite.reservation.actions import Action, Annotate, AnnotatePod, Case, Nominate, WriteStatus, delete
from koordlite.reservation.waiting import held_by, missing, taker
from koordlite.reservation.world import SeenPod

Amounts = dict[str, Quantity]


def available(case: Case) -> Iterator[Action]:
    """Available, and readable or not: what it holds stays held."""
    for pod in case.pods:
        if pod not in case.alive:
            yield delete(pod, "it failed" if pod.ended else f"the place is on node {case.node}")
    coming = hand_over.under_way(case.reservation)
    if coming is not None:
        yield from _handing_over(case, coming)
    elif not case.status.current_owners and not any(pod.node for pod in case.alive):
        yield from _lost(case)
    elif case.owner is not None and _may_be_freed(case, case.owner):
        yield from _begun(case, case.owner)
    else:
        yield from _kept_whole(case)


def _may_be_freed(case: Case, owner: SeenPod) -> bool:
    """Tell whether it still is the owner's, right before: other steps of this round may have changed that."""
    return not _is_taken_first(case, owner) and not (owner.obj and case.world.lacks(owner.obj, case.name))


def _is_taken_first(case: Case, owner: SeenPod) -> bool:
    """Tell whether a pod waits that would take the room before the owner."""
    return taker(case.world, owner, case.reservation, case.settings.guarded) is not None


def _lost(case: Case) -> Iterator[Action]:
    why = f"its placeholder on node {case.node} is gone"
    if keys.RESOURCE_STATUS in (case.reservation.metadata.annotations or {}):
        yield Annotate(annotations={keys.RESOURCE_STATUS: None})
    yield WriteStatus(before=case.status, after=lifecycle.lost(case.status, why, case.moment))
    yield case.say("PlaceLost", f"{why}; another place is looked for", is_warning=True)


def _kept_whole(case: Case) -> Iterator[Action]:
    """Placeholders hold what is left: more when owners went, less when they came without a hand-over."""
    rest, held = case.remaining, held_by(case.alive)
    if case.status.allocated and any(held[name] > rest.get(name, ZERO) for name in held):
        if rest:
            yield from _topped_up(case, rest)
        for pod in case.alive:
            yield delete(pod, "an owner took its part")
        return
    yield from case.not_hoarding()
    coming = [pod for pod in case.alive if not pod.node]
    more = missing(rest, held_by(pod for pod in case.alive if pod.node))
    exact = next((pod for pod in coming if not missing(more, pod.requests) and not missing(pod.requests, more)), None)
    # It waits for room that others were promised meanwhile, and would take it before them.
    displaced = exact if exact is not None and case.lacking(more) else None
    for pod in coming:
        if pod is not exact or pod is displaced:
            yield delete(pod, "others were promised the room" if pod is displaced else "another amount is missing")
    if exact is not None and displaced is None:
        yield from _noted(case, exact.name)
    elif more and not case.lacking(more):
        yield from _topped_up(case, more)


def _topped_up(case: Case, more: Amounts) -> Iterator[Action]:
    """One placeholder more."""
    yield from _noted(case, case.next_name)
    yield case.make(more, pin=True)


def _noted(case: Case, name: str) -> Iterator[Action]:
    """An extender lets the placeholder of this name have what the Reservation holds."""
    found = hand_over.read(case.reservation)
    if found is None or found.rest != name:
        yield Annotate(annotations={keys.HAND_OVER: hand_over.with_rest(case.reservation, name)})


def _begun(case: Case, owner: SeenPod) -> Iterator[Action]:
    """The place is promised to the pod; the rest of the way is the same as for a process that finds it promised."""
    rest = _left_over(case, owner)
    name = "" if not rest or lifecycle.is_once(case.reservation) else case.next_name
    before = hand_over.read(case.reservation)
    text = hand_over.begun(owner.namespace, owner.name, owner.uid, before=before, now=case.now, rest=name)
    yield Annotate(annotations={keys.HAND_OVER: text})
    yield case.say("HandOver", f"its place on node {case.node} goes to pod {owner.key}")
    yield from _freed(case, owner, name)


def _left_over(case: Case, owner: SeenPod) -> Amounts:
    rest = left(case.remaining, dict(owner.requests))
    return {name: amount for name, amount in rest.items() if amount.nano > 0}


def _freed(case: Case, owner: SeenPod, rest: str) -> Iterator[Action]:
    """Keep room for the owner, and for placeholder `rest` of what it leaves over, and then free it.

    Nobody is nominated again once the room is free: a scheduler that refuses a pod takes its nomination back, and each
    nomination makes it try again.
    """
    if rest and not any(pod.name == rest for pod in case.alive):
        yield case.make(_left_over(case, owner), number=int(rest.rpartition("-")[2]), pin=True)
    going = [pod for pod in case.alive if pod.name != rest]
    if not going:
        return
    for pod in (owner, *(pod for pod in case.alive if pod.name == rest and not pod.node)):
        if pod.nominated != case.node:
            yield Nominate(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=case.node)
    for pod in going:
        yield delete(pod, f"its room goes to pod {owner.key}")


def _handing_over(case: Case, coming: HandOverText) -> Iterator[Action]:
    pod = case.world.pods.get(coming.uid)
    if pod is None or not pod.alive or pod.node not in ("", case.node):
        yield from _given_up(case, coming)
    elif pod.node:
        yield _arrived(case, pod)
    elif hand_over.is_late(coming, case.now):
        yield from _given_up(case, coming)
    elif not _is_taken_first(case, pod):
        yield from _freed(case, pod, coming.rest)


def _arrived(case: Case, pod: SeenPod) -> Action:
    """The owner is bound: it says so itself, and then the hand-over is over."""
    if pod.uid in {owner.uid for owner in case.status.current_owners or ()}:
        return Annotate(annotations={keys.HAND_OVER: None})
    taken = json.dumps({"name": case.name, "uid": case.reservation.metadata.uid})
    notes = {keys.RESERVATION_ALLOCATED: taken}
    return AnnotatePod(namespace=pod.namespace, name=pod.name, uid=pod.uid, annotations=notes)


def _given_up(case: Case, coming: HandOverText) -> Iterator[Action]:
    """The pod did not come: room is kept for a placeholder before it is no longer kept for the pod."""
    more = missing(case.remaining, held_by(case.alive))
    fits = bool(more) and not case.lacking(more)
    name = case.next_name if fits else coming.rest
    if fits:
        yield from _noted(case, name)
        yield case.make(more, pin=bool(case.status.current_owners or case.alive))
    yield from case.not_nominated(coming)
    yield Annotate(annotations={keys.HAND_OVER: hand_over.given_up(coming, case.now, name)})
    yield case.say("HandOverFailed", _why_not(case, coming), is_warning=True)


def _why_not(case: Case, coming: HandOverText) -> str:
    pod, key = case.world.pods.get(coming.uid), f"{coming.namespace}/{coming.name}"
    if pod is None or not pod.alive:
        return f"pod {key} is gone"
    if pod.node:
        return f"pod {key} went to node {pod.node}"
    waited = f"pod {key} was not placed on node {case.node} within {hand_over.PATIENCE_SECONDS:.0f} s"
    return f"{waited}: {pod.refused()}" if pod.refused() else waited
