"""Decide what is done about each Reservation now: the cluster as it is seen in, requests in their order out, as values.

A step needs nothing but the objects themselves, so that another process goes on wherever one ended. It is planned again
and again until nothing is left to do.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koordlite.model import keys, times
from koordlite.model.errors import InputError
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.wire.objects import PodObject
from koordlite.model.wire.reservation import HandOverText, ReservationObject, ReservationStatus
from koordlite.reservation import capacity, hand_over, lifecycle, placeholder, validity
from koordlite.reservation.matching import may_own
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.reservation.pods import ClusterPod, total_requests
from koordlite.reservation.waiting import assigned, displaced, missing, node_capacity, taker
from koordlite.reservation.world import World

KEEP_SECONDS = 24 * 3600.0
"""Time for which a Reservation that ended is kept for its reader."""
KEEP_WITHOUT_NODE_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""Pause after a placeholder failed."""
UNSEEN_SECONDS = 30.0
"""Age at which a scheduler that exists has looked at a pod."""


class _OfPod(msgspec.Struct, frozen=True, kw_only=True):
    """An action on one pod, and on no other of its name."""

    namespace: str
    name: str
    uid: str


class CreatePlaceholder(msgspec.Struct, frozen=True, kw_only=True):
    """Make a pod; when there is one of its name, nothing."""

    namespace: str
    body: Mapping[str, Any]
    node: str = ""
    """Node on which room is to be kept for it."""


class Nominate(_OfPod, frozen=True, kw_only=True):
    """Have the scheduler keep room for a pod on a node; empty: no longer."""

    node: str


class DeletePlaceholder(_OfPod, frozen=True, kw_only=True):
    """Delete a pod at once, if it is still this one."""

    why: str


class AnnotatePod(_OfPod, frozen=True, kw_only=True):
    """Note on an owner which Reservation it took."""

    annotations: Mapping[str, str]


class Annotate(msgspec.Struct, frozen=True, kw_only=True):
    """Change annotations of the Reservation; None removes one."""

    annotations: Mapping[str, str | None]


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Change the Reservation's status."""

    before: ReservationStatus
    after: ReservationStatus


class DeleteReservation(msgspec.Struct, frozen=True, kw_only=True):
    """Its time to be kept is over."""


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """An Event of the Reservation, and a line of the log."""

    reason: str
    note: str
    is_warning: bool = False


Action = (
    CreatePlaceholder | Nominate | DeletePlaceholder | AnnotatePod | Annotate | WriteStatus | DeleteReservation | Say
)
"""One request; between any two of them the process may end."""


class Step(msgspec.Struct, frozen=True):
    """Actions about one Reservation, in this order; the first that fails ends it for this round."""

    name: str
    """Empty: about placeholders of none."""
    uid: str
    actions: tuple[Action, ...]

    @property
    def is_independent(self) -> bool:
        """Tell whether it takes no room that another Reservation's plan counts on: the scheduler finds the place of its
        placeholder, or what is written about it says where it is already."""
        return all(_takes_no_room(action) for action in self.actions)


def _takes_no_room(action: Action) -> bool:
    match action:
        case Say():
            return True
        case CreatePlaceholder():
            return not action.node
        case Annotate():
            return action.annotations.keys() <= {keys.RESOURCE_STATUS}
        case WriteStatus():
            before, after = action.before, action.after
            return not lifecycle.has_ended(after) and before.current_owners == after.current_owners
    return False


Amounts = dict[str, Quantity]


class Case(msgspec.Struct, frozen=True, dict=True):
    """A Reservation and what surrounds it."""

    world: World
    reservation: ReservationObject
    settings: PlaceholderSettings
    now: float
    """Seconds since the epoch."""
    owner: ClusterPod | None = None
    """The pod that is to get it next."""
    refused: str = ""
    """Refusal of its placeholder by the API server."""

    @property
    def status(self) -> ReservationStatus:
        """Its status."""
        return self.reservation.status

    @property
    def node(self) -> str:
        """Node of the Reservation; empty when it is not placed."""
        return self.reservation.status.node_name

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.reservation.metadata.name

    @property
    def room_wanted(self) -> str:
        """Node on which it waits for pods to leave; empty for one that the scheduler is to find a place for."""
        return (self.reservation.metadata.annotations or {}).get(keys.ROOM_WANTED, "")

    @property
    def room_kept(self) -> str:
        """Node on which it says that room is kept for it; empty for none."""
        return (self.reservation.metadata.annotations or {}).get(keys.ROOM_KEPT, "")

    @property
    def timestamp(self) -> str:
        """Now, as it is written."""
        return times.show(self.now)

    @functools.cached_property
    def pods(self) -> list[ClusterPod]:
        """Its placeholders that are not being deleted."""
        return [pod for pod in self.world.placeholders(self.reservation.metadata.uid) if not pod.deleting]

    @functools.cached_property
    def alive(self) -> list[ClusterPod]:
        """Placeholders that hold, or will hold, room on its node."""
        return [pod for pod in self.pods if pod.alive and pod.node in ("", self.node)]

    @functools.cached_property
    def remaining(self) -> Amounts:
        """Rest that owners have left of it, and what is therefore held: amounts above 0."""
        return missing(lifecycle.amounts(self.status.allocatable), lifecycle.amounts(self.status.allocated))

    def lacking(self, amounts: Amounts) -> list[str]:
        """Resources of which its node has too little for one more placeholder, beside what others were promised."""
        mine = self.reservation.metadata.uid
        where = node_capacity(self.world, self.node, mine)
        return ["node"] if where is None else capacity.fit_node(capacity.whole(amounts), where, {})

    def say(self, reason: str, note: str, *, is_warning: bool = False) -> Say:
        """An Event."""
        return Say(reason=reason, note=f"{self.name}: {note}", is_warning=is_warning)

    def next_number(self) -> int:
        """Beyond those in use: what is asked twice is made once."""
        used = [int(text) for pod in self.pods if (text := pod.name.rpartition("-")[2]).isdigit()]
        number, where = max(used, default=0) + 1, placeholder.namespace(self.reservation)
        while self.world.exists(where, placeholder.name(self.reservation, number)):
            number += 1  # On its way out, or a stranger's.
        return number

    @property
    def next_name(self) -> str:
        """Name of the next placeholder."""
        return placeholder.name(self.reservation, self.next_number())

    def make(self, amounts: Amounts, *, number: int = 0, pin: bool = False) -> CreatePlaceholder:
        """A placeholder, for which room is kept on the node there was or is; with `pin` it goes nowhere else."""
        node, number = self.node, number or self.next_number()
        body = placeholder.pod(self.reservation, amounts, number, self.settings, node=node if pin else "")
        return CreatePlaceholder(namespace=placeholder.namespace(self.reservation), body=body, node=node)

    def unplaced(self, why: str, *, reason: str) -> Iterator[Action]:
        """Note why it is not placed, once for each text."""
        if lifecycle.message(self.status) != why:
            pending = msgspec.structs.replace(self.status, phase="Pending")
            yield WriteStatus(before=self.status, after=lifecycle.unschedulable(pending, why, self.timestamp))
            yield self.say(reason, why, is_warning=True)

    def not_hoarding(self) -> Iterator[Action]:
        """No room is kept any longer for placeholders that did not fit: two of them could keep each other off."""
        for pod in self.alive:
            if not pod.node and pod.nominated and pod.refused() is not None:
                yield nominate(pod, "")

    def not_nominated(self, coming: HandOverText) -> Iterator[Action]:
        """No more room is kept for the pod of a hand-over."""
        pod = self.world.pods.get(coming.uid)
        if pod is not None and pod.alive and not pod.node and pod.nominated == self.node:
            yield nominate(pod, "")


def nominate(pod: ClusterPod, node: str) -> Nominate:
    """Room kept for this very pod on a node; on none where `node` is empty."""
    return Nominate(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node)


def delete(pod: ClusterPod, why: str) -> DeletePlaceholder:
    """Deletion of this very placeholder."""
    return DeletePlaceholder(namespace=pod.namespace, name=pod.name, uid=pod.uid, why=why)


def plan(
    world: World, settings: PlaceholderSettings, now: float, refused: Mapping[str, str] | None = None
) -> Iterator[Step]:
    """Everything that can be done now. Each step is planned when it is asked for, by what the ones before have left.

    `refused`: what the API server said about placeholders that were to be made, by uid of the Reservation.
    """
    owners = assigned(world, settings.guarded, now)
    for name in sorted(world.reservations):
        reservation = world.reservations.get(name)
        if reservation is None:
            continue
        uid = reservation.metadata.uid
        case = Case(world, reservation, settings, now, owners.get(uid), (refused or {}).get(uid, ""))
        actions: tuple[Action, ...] = ()
        with world.guarded(name):
            actions = tuple(of_one(case))
        if actions:
            yield Step(name, uid, actions)
    yield from _orphans(world)


def withdrawal(world: World) -> Iterator[Step]:
    """Everything of ours is removed: Koordinator's scheduler holds the places from now on."""
    for reservation in list(world.reservations.values()):
        meta = reservation.metadata
        promises = {key: None for key in (keys.HAND_OVER, keys.ROOM_KEPT) if key in (meta.annotations or {})}
        removals = (Annotate(annotations=promises),) if promises else ()
        pods = [pod for pod in world.placeholders(meta.uid) if not pod.deleting]
        actions = (*(delete(pod, "Koordinator's scheduler runs") for pod in pods), *removals)
        if actions:
            yield Step(meta.name, meta.uid, actions)
    yield from _orphans(world)


def _orphans(world: World) -> Iterator[Step]:
    orphans = [delete(pod, "its Reservation is gone") for pod in world.orphans() if not pod.deleting]
    stale = [nominate(pod, "") for pod in world.stale_nominations()]
    if orphans or stale:
        yield Step("", "", (*orphans, *stale))


def of_one(case: Case) -> Iterator[Action]:
    """Actions for one Reservation."""
    reservation = case.reservation
    if lifecycle.has_ended(case.status) or reservation.metadata.deletion_timestamp is not None:
        yield from _ended(case)
        return
    wrong = "; ".join(str(each) for each in validity.problems(reservation))
    wrong = wrong or case.settings.refused_namespace(placeholder.namespace(reservation))
    status = _synced(case)
    if status is not case.status:
        yield WriteStatus(before=case.status, after=status)
        yield _event(case, status)
    elif lifecycle.is_available(reservation):
        if wrong:
            yield case.say("InvalidReservation", wrong, is_warning=True)
        yield from _available(case)
    elif wrong:
        yield from case.unplaced(wrong, reason="InvalidReservation")
        yield from (delete(pod, "the Reservation cannot be read any more") for pod in case.pods)
    else:
        yield from _pending(case)


def _event(case: Case, status: ReservationStatus) -> Say:
    before, listed = case.status.current_owners or (), status.current_owners or ()
    names = ", ".join(f"{owner.namespace}/{owner.name}" for owner in listed)
    if status.phase == "Failed":
        is_lost = bool(status.node_name) and status.node_name not in case.world.nodes
        return case.say(
            "Expired", f"node {status.node_name} is gone" if is_lost else "its time is over", is_warning=True
        )
    if status.phase == "Succeeded":
        return case.say("Succeeded", f"on node {status.node_name}, taken by {names}")
    return case.say("Taken" if len(listed) > len(before) else "OwnersChanged", f"owners now: {names or 'none'}")


def _synced(case: Case) -> ReservationStatus:
    """Owners, amounts and end by the pods that took it. A Reservation that cannot be read stays as it is."""
    try:
        return lifecycle.synced(case.reservation, _takers(case), nodes=case.world.nodes, now=case.now)
    except (InputError, ValueError):
        return case.status  # `validity.problems` names it.


def _takers(case: Case) -> Iterator[tuple[PodObject, Mapping[str, Quantity]]]:
    """Pods on its node that say they took it and that may: what a tenant writes on a pod makes it no owner."""
    owners = {owner.uid for owner in case.status.current_owners or ()}
    coming = hand_over.read(case.reservation)
    for pod in case.world.takers():
        if pod.obj is None or pod.node != case.node:
            continue
        if pod.uid in owners or (coming and coming.uid == pod.uid) or may_own(case.reservation, pod.obj):
            yield pod.obj, pod.requests


def _ended(case: Case) -> Iterator[Action]:
    """Nothing is left of it but itself, and that for a day."""
    phase, status = case.status.phase if lifecycle.has_ended(case.status) else "deleted", case.status
    yield from (delete(pod, f"the Reservation is {phase}") for pod in case.pods)
    coming = hand_over.under_way(case.reservation)
    if coming is not None:
        yield from case.not_nominated(coming)
        yield Annotate(annotations={keys.HAND_OVER: None})
    elif lifecycle.has_ended(status) and case.reservation.metadata.deletion_timestamp is None:
        keep = KEEP_SECONDS if status.node_name in ("", *case.world.nodes) else KEEP_WITHOUT_NODE_SECONDS
        if lifecycle.is_garbage(status, now=case.now, keep_seconds=keep):
            yield DeleteReservation()


def _pending(case: Case) -> Iterator[Action]:
    """Steps of a Reservation that is not placed yet."""
    amounts = placeholder.resources(case.reservation)
    whole = [pod for pod in case.pods if pod.alive and not missing(amounts, pod.requests)]
    mine = min(whole, key=lambda pod: (not pod.admitted, not pod.node), default=None)
    if case.room_wanted and (mine is None or not mine.node):
        yield from _keep_room(case, mine)
    failed = [pod for pod in case.pods if pod.ended]
    for pod in failed[:1]:
        message = pod.obj.status.message if pod.obj is not None else ""
        why = f"its placeholder failed on node {pod.node}: {message or 'no reason is given'}"
        yield from case.unplaced(why, reason="PlaceholderFailed")
    for pod in case.pods:
        if pod is not mine:
            yield delete(pod, "it failed" if pod.ended else "it does not hold the whole place")
    if mine is None:
        if case.refused:
            yield from case.unplaced(case.refused, reason="PlaceholderRefused")
        spec = placeholder.as_pod(case.reservation).spec
        coming = displaced(case.world, amounts, spec, case.reservation.metadata.uid)
        if not failed and not coming and not _waits(case):
            yield case.make(amounts)
    elif mine.node and mine.admitted:
        yield from _hold(case, mine)
    elif not mine.node:
        if not case.room_wanted:
            yield from case.not_hoarding()
        if why := _why_not_bound(case, mine):
            yield from case.unplaced(why, reason="Unschedulable")


def _keep_room(case: Case, pod: ClusterPod | None) -> Iterator[Action]:
    """Have the scheduler keep what becomes free for the placeholder: it counts pods that are nominated to a node.

    Its class preempts nobody, so no failed attempt takes the nomination back. One at a time on a node: two would keep
    each other off. That room is kept is said only as long as it is: pods are evicted for it.
    """
    node = case.room_wanted
    rivals = [each for each in case.world.nominated(node) if each is not pod]
    may = node in case.world.nodes and not rivals
    if case.room_kept and not (may and pod is not None and pod.nominated == node == case.room_kept):
        yield Annotate(annotations={keys.ROOM_KEPT: None})
    if pod is None:
        return
    if not may:
        yield from case.not_hoarding()
    elif pod.nominated != node:
        yield nominate(pod, node)
    elif case.room_kept != node:
        yield Annotate(annotations={keys.ROOM_KEPT: node})
        yield case.say("RoomKept", f"what becomes free on node {node} is kept for it")


def _waits(case: Case) -> bool:
    """A placeholder failed or was refused a moment ago."""
    moments = [times.parse_or_none(each.last_probe_time) or 0.0 for each in case.status.conditions or ()]
    return bool(lifecycle.message(case.status)) and case.now - max(moments, default=0.0) < RETRY_SECONDS


def _why_not_bound(case: Case, pod: ClusterPod) -> str:
    message = pod.refused()
    if message is not None:
        return message or "its scheduler found no node, and gave no reason"
    name = pod.obj.spec.scheduler_name if pod.obj is not None else ""
    is_late = pod.created and case.now - pod.created > UNSEEN_SECONDS
    return f"no scheduler has looked at its placeholder {pod.key}: is there one named {name}?" if is_late else ""


def _hold(case: Case, pod: ClusterPod) -> Iterator[Action]:
    """Kubelet holds it. Its CPUs are noted first, so that who sees it available sees them."""
    cpus = (pod.obj.metadata.annotations or {}).get(keys.RESOURCE_STATUS) if pod.obj is not None else None
    if (case.reservation.metadata.annotations or {}).get(keys.RESOURCE_STATUS) != cpus:
        yield Annotate(annotations={keys.RESOURCE_STATUS: cpus})
    after = lifecycle.available(case.reservation, pod.node, case.timestamp)
    yield WriteStatus(before=case.status, after=msgspec.structs.replace(after, allocated=None))
    yield case.say("Available", f"held on node {pod.node} by pod {pod.key}")


def _available(case: Case) -> Iterator[Action]:
    """Available, and readable or not: what it holds stays held."""
    for pod in case.pods:
        if pod not in case.alive:
            yield delete(pod, "it failed" if pod.ended else f"the place is on node {case.node}")
    coming = hand_over.under_way(case.reservation)
    if coming is not None:
        yield from _handing_over(case, coming)
    elif not case.status.current_owners and not any(pod.node for pod in case.alive):
        yield from _lose(case)
    elif case.owner is not None and _may_be_freed(case, case.owner):
        yield from _begin(case, case.owner)
    else:
        yield from _keep_whole(case)


def _may_be_freed(case: Case, owner: ClusterPod) -> bool:
    """Tell whether it still is the owner's, right before: other steps of this round may have changed that."""
    return not _is_taken_first(case, owner) and not (owner.obj and case.world.lacks(owner.obj, case.name))


def _is_taken_first(case: Case, owner: ClusterPod) -> bool:
    """Tell whether a pod waits that would take the room before the owner."""
    return taker(case.world, owner, case.reservation, case.settings.guarded) is not None


def _lose(case: Case) -> Iterator[Action]:
    why = f"its placeholder on node {case.node} is gone"
    if keys.RESOURCE_STATUS in (case.reservation.metadata.annotations or {}):
        yield Annotate(annotations={keys.RESOURCE_STATUS: None})
    yield WriteStatus(before=case.status, after=lifecycle.lost(case.status, why, case.timestamp))
    yield case.say("PlaceLost", f"{why}; another place is looked for", is_warning=True)


def _keep_whole(case: Case) -> Iterator[Action]:
    """Placeholders hold what is left: more when owners went, less when they came without a hand-over."""
    remaining, holding = case.remaining, total_requests(case.alive)
    if case.status.allocated and any(holding[name] > remaining.get(name, ZERO) for name in holding):
        if remaining:
            yield from _top_up(case, remaining)
        for pod in case.alive:
            yield delete(pod, "an owner took its part")
        return
    yield from case.not_hoarding()
    coming = [pod for pod in case.alive if not pod.node]
    more = missing(remaining, total_requests(pod for pod in case.alive if pod.node))
    exact = next((pod for pod in coming if not missing(more, pod.requests) and not missing(pod.requests, more)), None)
    # It waits for room that others were promised meanwhile, and would take it before them.
    displaced = exact if exact is not None and case.lacking(more) else None
    for pod in coming:
        if pod is not exact or pod is displaced:
            yield delete(pod, "others were promised the room" if pod is displaced else "another amount is missing")
    if exact is not None and displaced is None:
        yield from _note(case, exact.name)
    elif more and not case.lacking(more):
        yield from _top_up(case, more)


def _top_up(case: Case, more: Amounts) -> Iterator[Action]:
    """One placeholder more."""
    yield from _note(case, case.next_name)
    yield case.make(more, pin=True)


def _note(case: Case, name: str) -> Iterator[Action]:
    """An extender lets the placeholder of this name have what the Reservation holds."""
    text = hand_over.read(case.reservation)
    if text is None or text.rest != name:
        yield Annotate(annotations={keys.HAND_OVER: hand_over.with_rest(case.reservation, name)})


def _begin(case: Case, owner: ClusterPod) -> Iterator[Action]:
    """The place is promised to the pod; the rest of the way is the same as for a process that finds it promised."""
    leftover = missing(case.remaining, owner.requests)
    name = "" if not leftover or lifecycle.is_once(case.reservation) else case.next_name
    before = hand_over.read(case.reservation)
    text = hand_over.begin(owner.namespace, owner.name, owner.uid, before=before, now=case.now, remainder=name)
    yield Annotate(annotations={keys.HAND_OVER: text})
    yield case.say("HandOver", f"its place on node {case.node} goes to pod {owner.key}")
    yield from _free(case, owner, name)


def _free(case: Case, owner: ClusterPod, remainder: str) -> Iterator[Action]:
    """Keep room for the owner, and for placeholder `remainder` of what it leaves over, and then free it.

    Nobody is nominated again once the room is free: a scheduler that refuses a pod takes its nomination back, and each
    nomination makes it try again.
    """
    if remainder and not any(pod.name == remainder for pod in case.alive):
        yield case.make(missing(case.remaining, owner.requests), number=int(remainder.rpartition("-")[2]), pin=True)
    going = [pod for pod in case.alive if pod.name != remainder]
    if not going:
        return
    for pod in (owner, *(pod for pod in case.alive if pod.name == remainder and not pod.node)):
        if pod.nominated != case.node:
            yield nominate(pod, case.node)
    for pod in going:
        yield delete(pod, f"its room goes to pod {owner.key}")


def _handing_over(case: Case, coming: HandOverText) -> Iterator[Action]:
    pod = case.world.pods.get(coming.uid)
    if pod is None or not pod.alive or pod.node not in ("", case.node):
        yield from _give_up(case, coming)
    elif pod.node:
        yield _arrived(case, pod)
    elif hand_over.is_late(coming, case.now):
        yield from _give_up(case, coming)
    elif not _is_taken_first(case, pod):
        yield from _free(case, pod, coming.rest)


def _arrived(case: Case, pod: ClusterPod) -> Action:
    """The owner is bound: it says so itself, and then the hand-over is over."""
    if pod.uid in {owner.uid for owner in case.status.current_owners or ()}:
        return Annotate(annotations={keys.HAND_OVER: None})
    allocated = json.dumps({"name": case.name, "uid": case.reservation.metadata.uid})
    notes = {keys.RESERVATION_ALLOCATED: allocated}
    return AnnotatePod(namespace=pod.namespace, name=pod.name, uid=pod.uid, annotations=notes)


def _give_up(case: Case, coming: HandOverText) -> Iterator[Action]:
    """The pod did not come: room is kept for a placeholder before it is no longer kept for the pod."""
    more = missing(case.remaining, total_requests(case.alive))
    fits = bool(more) and not case.lacking(more)
    name = case.next_name if fits else coming.rest
    if fits:
        yield from _note(case, name)
        yield case.make(more, pin=bool(case.status.current_owners or case.alive))
    yield from case.not_nominated(coming)
    yield Annotate(annotations={keys.HAND_OVER: hand_over.give_up(coming, case.now, name)})
    yield case.say("HandOverFailed", _why_not(case, coming), is_warning=True)


def _why_not(case: Case, coming: HandOverText) -> str:
    pod, key = case.world.pods.get(coming.uid), f"{coming.namespace}/{coming.name}"
    if pod is None or not pod.alive:
        return f"pod {key} is gone"
    if pod.node:
        return f"pod {key} went to node {pod.node}"
    waited = f"pod {key} was not placed on node {case.node} within {hand_over.PATIENCE_SECONDS:.0f} s"
    return f"{waited}: {pod.refused()}" if pod.refused() else waited
