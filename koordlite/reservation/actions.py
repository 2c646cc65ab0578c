"""Actions on the cluster as values, and one Reservation at one moment, which they are about.

Each action is one request; between any two of them the process may end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koordlite.model import keys, times
from koordlite.model.quantity import Quantity
from koordlite.model.wire.reservation import HandOverText, ReservationObject, ReservationStatus
from koordlite.reservation import capacity, lifecycle, placeholder
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.reservation.pods import ClusterPod
from koordlite.reservation.waiting import missing, node_capacity
from koordlite.reservation.world import World


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
    """Where room is to be kept for it."""


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
    """What the API server said when its placeholder was to be made."""

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
