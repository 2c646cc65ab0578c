"""Koordinator's reservations of the cluster by node, and who took of them.

That a pod took of a reservation is believed to its status, which the reservation controller writes, and to our own
Bindings. Not to the pod's annotation: a tenant who wrote it would make the capacity of others look as if it were his.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping

from koordlite.model import keys
from koordlite.model.wire.reservation import Owner, ReservationObject
from koordlite.numa.nrt.filter import Zones
from koordlite.reservation.matching import Candidate
from koordlite.reservation.placed import NO_RESERVATIONS, OnNode, Placed, placed
from koordlite.reservation.pods import KnownPod

MOST_REMEMBERED = 10_000
Key = tuple[str, ...]
ANY: Key = ("any",)


class Reservations:
    """`changed` is called with the node of every reservation that comes, changes or goes. Not locked: its owner is."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._placed: dict[str, Placed] = {}
        """By name."""
        self._by_node: dict[str, dict[str, Placed]] = {}
        self._by_owner: dict[Key, dict[str, Placed]] = {}
        """Those that a pod with this mark may own, by name."""
        self._took: collections.OrderedDict[str, str] = collections.OrderedDict()
        """uid of the reservation by uid of the pod, of Bindings that we sent and the watch has shown."""

    def put(self, obj: ReservationObject) -> None:
        """It came or changed."""
        name, found = obj.metadata.name, placed(obj)
        before = self._placed.get(name)
        if found is not None and before is not None and found.object == before.object:
            return
        self._drop(before)
        if found is not None:
            self._placed[name] = found
            self._by_node.setdefault(obj.status.node_name, {})[name] = found
            for key in _marks(obj):
                self._by_owner.setdefault(key, {})[name] = found
            self._changed(obj.status.node_name)

    def remove(self, name: str) -> None:
        """It is gone."""
        self._drop(self._placed.get(name))

    def of_node(self, node: str) -> tuple[Placed, ...]:
        """Reservations on a node, by name."""
        return tuple(one for _, one in sorted(self._by_node.get(node, {}).items()))

    def nodes_for(self, candidate: Candidate) -> set[str]:
        """Nodes with reservations that the pod may take, as far as its marks say, or that it ignores."""
        if candidate.ignores:
            return set(self._by_node)
        meta = candidate.pod.metadata
        marks = [ANY, ("object", meta.uid), *(("label", *pair) for pair in (meta.labels or {}).items())]
        marks += [("controller", reference.uid) for reference in meta.owner_references or ()]
        found = (one for mark in marks for one in self._by_owner.get(mark, {}).values())
        return {one.object.status.node_name for one in found}

    def __len__(self) -> int:
        return len(self._placed)

    def named(self, name: str) -> Placed | None:
        """The one of this name, where it is available."""
        return self._placed.get(name)

    def met(self, placed: Iterable[Placed], pods: Iterable[KnownPod], freed: Mapping[str, tuple[Zones, ...]]) -> OnNode:
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

    def _with_owners(self, one: Placed, alive: dict[str, KnownPod]) -> Placed:
        owners = {owner.uid for owner in one.object.status.current_owners or ()}
        owners |= {uid for uid, pod in alive.items() if (pod.took or self._took.get(uid)) == one.uid}
        return one.with_owners({uid: alive[uid].shape.pod.requests for uid in sorted(owners & alive.keys())})

    def _drop(self, before: Placed | None) -> None:
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
    wanted = owner.label_selector.match_labels if owner.label_selector is not None else None
    return ("label", *min(wanted.items())) if wanted else ANY
