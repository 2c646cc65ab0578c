"""Koordinator's reservations that have a node: of the cluster by node with who took of them, and of one node as a pod
meets them, with the one that it takes and those that are kept from it.

That a pod took of a reservation is believed to its status, which the reservation controller writes, and to our own
Bindings. Not to the pod's annotation: a tenant who wrote it would make the capacity of others look as if it were his.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from koordlite.model import keys
from koordlite.model.errors import InputError, Problem
from koordlite.model.quantity import ZERO
from koordlite.model.wire.objects import ObjectMeta
from koordlite.model.wire.reservation import HandOverText, Owner, ReservationObject
from koordlite.numa.koordinator import assignments
from koordlite.numa.koordinator.values import Allocation
from koordlite.numa.nrt.filter import Zones
from koordlite.reservation import capacity, lifecycle, placeholder
from koordlite.reservation.capacity import Holding
from koordlite.reservation.matching import Candidate, read
from koordlite.reservation.pods import ClusterPod, stands_for

MOST_REMEMBERED = 10_000
Key = tuple[str, ...]
ANY: Key = ("any",)


class PlacedReservation(msgspec.Struct, frozen=True, eq=False):
    """A reservation that has its node."""

    object: ReservationObject
    holding: Holding
    """Amounts that it holds, and that its owners took."""
    own: Allocation
    """Its CPUs and its amounts by NUMA node, as its resource-status has them."""
    problems: tuple[Problem, ...] = ()
    """Reasons why no pod may take it."""
    hand_over: HandOverText | None = None
    """The pod that its placeholder makes room for, or that was given up last."""

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return self.holding.uid

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.holding.name

    @property
    def node(self) -> str:
        """Its node."""
        return self.object.status.node_name

    @property
    def order(self) -> str | None:
        """The label that says which of several is taken first."""
        return (self.object.metadata.labels or {}).get(keys.RESERVATION_ORDER)

    @property
    def handed_to(self) -> str:
        """uid of the pod that its placeholder makes room for: no other takes it meanwhile."""
        return self.hand_over.uid if self.hand_over is not None and not self.hand_over.ended else ""

    def gave_up(self, uid: str) -> bool:
        """It could not be handed over to this pod, which does not wait for it."""
        return self.hand_over is not None and bool(self.hand_over.ended) and self.hand_over.uid == uid

    def is_rest(self, meta: ObjectMeta) -> bool:
        """Tell whether the pod is the placeholder that the controller has made to hold it on, by the name that it
        noted."""
        noted = self.hand_over.rest if self.hand_over is not None else ""
        return bool(noted) and meta.name == noted and stands_for(meta) == self.uid and meta.namespace == self.namespace

    @property
    def namespace(self) -> str:
        """Namespace of its placeholders: a pod that says so elsewhere is none."""
        return placeholder.namespace(self.object)

    @property
    def is_matchable(self) -> bool:
        """Tell whether any pod may take it now."""
        return lifecycle.is_matchable(self.object, self.holding, self.problems)


def placed(obj: ReservationObject) -> PlacedReservation | None:
    """The reservation where it is available on a node, without owners; None otherwise."""
    if not lifecycle.is_available(obj):
        return None
    holding, problems = lifecycle.holding(obj)
    owner, text = f"reservation/{holding.name}", (obj.metadata.annotations or {}).get(keys.RESOURCE_STATUS)
    try:
        own = assignments.written(text, holding.uid) if text else Allocation(uid=holding.uid)
        # They were copied from a pod, on which a tenant may have written.
        most = -(-holding.allocatable.get("cpu", ZERO).milli // 1000)
        if len(own.cpus) > most:
            raise ValueError(f"they are {len(own.cpus)} CPUs, and {most} are reserved")
    except ValueError as error:
        why = Problem(owner, keys.RESOURCE_STATUS, str(text), str(error), "delete the reservation and make it again")
        own, problems = Allocation(uid=holding.uid), (*problems, why)
    try:
        hand_over = read(HandOverText, obj.metadata.annotations, keys.HAND_OVER, owner)
    except InputError as error:
        hand_over, problems = None, (*problems, *error.problems)
    return PlacedReservation(obj, holding, own, problems, hand_over)


def matchable(obj: ReservationObject) -> PlacedReservation | None:
    """The reservation with the owners and amounts that its status has; None where no pod may take it now."""
    reservation, status = placed(obj), obj.status
    if reservation is None:
        return None
    owners: dict[str, capacity.Amounts] = {owner.uid: {} for owner in status.current_owners or ()}
    holding = msgspec.structs.replace(reservation.holding, allocated=lifecycle.amounts(status.allocated), owners=owners)
    reservation = msgspec.structs.replace(reservation, holding=holding)
    return reservation if reservation.is_matchable else None


def preferred(candidate: Candidate, among: Sequence[PlacedReservation]) -> list[PlacedReservation]:
    """Sort reservations into the order in which the pod takes them: the one being handed over, the smallest order
    label, then the one that it would use most of; equal ones as they are given."""
    first = capacity.first_by_order([one.order for one in among])
    scores = [capacity.score(candidate.requests, one.holding) for one in among]
    places = sorted(range(len(among)), key=lambda at: (not among[at].handed_to, at != first, -scores[at], at))
    return [among[place] for place in places]


class OnNode(msgspec.Struct, frozen=True):
    """The reservations of one node, as a pod meets them."""

    placed: tuple[PlacedReservation, ...] = ()
    taking: str = ""
    """uid of the one that the pod takes; empty: it takes none, and all are kept from it."""
    ignores: bool = False
    """The pod takes what is reserved as if it were free (label reservation-ignored)."""
    is_rest: bool = False
    """The pod is no owner, but the placeholder for what an owner leaves over."""
    freed: Mapping[str, tuple[Zones, ...]] = msgspec.field(default_factory=dict)
    """Available amounts by NUMA node once the placeholders of a reservation have gone, by its uid: a case for each NUMA
    node on which they may have been. Reservations without placeholders have none."""
    is_behind: bool = False
    """The node's report has not counted all of its pods yet: a NUMA node may be free that seems taken."""
    first: bool = False
    """The order label of the one it takes comes before those on all other nodes."""

    @property
    def match(self) -> PlacedReservation | None:
        """The one that the pod takes."""
        return next((one for one in self.placed if one.uid == self.taking), None) if self.taking else None

    @property
    def uids(self) -> frozenset[str]:
        """All of them."""
        return frozenset(one.uid for one in self.placed)


NO_RESERVATIONS = OnNode()


class ReservationIndex:
    """`changed` is called with the node of every reservation that comes, changes or goes. Not locked: its owner is."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._placed: dict[str, PlacedReservation] = {}
        """Reservations by name."""
        self._by_node: dict[str, dict[str, PlacedReservation]] = {}
        self._by_owner: dict[Key, dict[str, PlacedReservation]] = {}
        """Reservations that a pod with this mark may own, by name."""
        self._took: collections.OrderedDict[str, str] = collections.OrderedDict()
        """uid of the reservation by uid of the pod, of Bindings that we sent and the watch has shown."""

    def put(self, obj: ReservationObject) -> None:
        """It came or changed."""
        name, after = obj.metadata.name, placed(obj)
        before = self._placed.get(name)
        if after is not None and before is not None and after.object == before.object:
            return
        self._drop(before)
        if after is not None:
            self._placed[name] = after
            self._by_node.setdefault(obj.status.node_name, {})[name] = after
            for key in _marks(obj):
                self._by_owner.setdefault(key, {})[name] = after
            self._changed(obj.status.node_name)

    def remove(self, name: str) -> None:
        """It is gone."""
        self._drop(self._placed.get(name))

    def of_node(self, node: str) -> tuple[PlacedReservation, ...]:
        """Reservations on a node, by name."""
        return tuple(one for _, one in sorted(self._by_node.get(node, {}).items()))

    def nodes_for(self, candidate: Candidate) -> set[str]:
        """Nodes with reservations that the pod may take, as far as its marks say, or that it ignores."""
        if candidate.ignores:
            return set(self._by_node)
        meta = candidate.pod.metadata
        marks = [ANY, ("object", meta.uid), *(("label", *pair) for pair in (meta.labels or {}).items())]
        marks += [("controller", reference.uid) for reference in meta.owner_references or ()]
        reservations = (one for mark in marks for one in self._by_owner.get(mark, {}).values())
        return {one.object.status.node_name for one in reservations}

    def __len__(self) -> int:
        return len(self._placed)

    def named(self, name: str) -> PlacedReservation | None:
        """The one of this name, where it is available."""
        return self._placed.get(name)

    def on_node(
        self, placed: Iterable[PlacedReservation], pods: Iterable[ClusterPod], freed: Mapping[str, tuple[Zones, ...]]
    ) -> OnNode:
        """The reservations of a node on which `pods` are, or which they are on their way to; `freed` as of `OnNode`."""
        alive = {pod.uid: pod for pod in pods}
        listed = tuple(self._with_owners(one, alive) for one in placed)
        return OnNode(listed, freed=freed) if listed else NO_RESERVATIONS

    def remember(self, uid: str, took: str) -> None:
        """A pod is bound as we sent it: it took the reservation of this uid, if any."""
        if took:
            self._took[uid] = took
            while len(self._took) > MOST_REMEMBERED:
                self._took.popitem(last=False)

    def _with_owners(self, one: PlacedReservation, alive: dict[str, ClusterPod]) -> PlacedReservation:
        owners = {owner.uid for owner in one.object.status.current_owners or ()}
        owners |= {uid for uid, pod in alive.items() if (pod.reservation_uid or self._took.get(uid)) == one.uid}
        holding = one.holding
        for uid in sorted(owners & alive.keys()):
            holding = holding.taken_by(uid, alive[uid].requests)
        return msgspec.structs.replace(one, holding=holding)

    def _drop(self, before: PlacedReservation | None) -> None:
        if before is None:
            return
        node = before.object.status.node_name
        del self._placed[before.name], self._by_node[node][before.name]
        for key in _marks(before.object):
            self._by_owner[key].pop(before.name, None)
            if not self._by_owner[key]:
                del self._by_owner[key]
        if not self._by_node[node]:
            del self._by_node[node]
        self._changed(node)


def _marks(obj: ReservationObject) -> set[Key]:
    """Labels of which a pod has to have one to take the reservation; its placeholders have the first."""
    own: Key = ("label", keys.RESERVATION_UID, obj.metadata.uid)
    return {own, *(_mark(owner) for owner in obj.spec.owners or ())}


def _mark(owner: Owner) -> Key:
    if owner.controller is not None and owner.controller.uid:
        return "controller", owner.controller.uid
    if owner.object is not None and owner.object.uid:
        return "object", owner.object.uid
    labels = owner.label_selector.match_labels if owner.label_selector is not None else None
    return ("label", *min(labels.items())) if labels else ANY
