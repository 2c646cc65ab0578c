"""State of the controller: Reservations, Nodes, and of pods as much as each is worth. Changed by events; no I/O."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from koordlite.formulas.allocatable import node_room
from koordlite.model import keys
from koordlite.model.errors import InputError
from koordlite.model.node import parse_reservation
from koordlite.model.quantity import Quantity, parse_resources
from koordlite.model.wire.objects import NodeObject, PodObject
from koordlite.model.wire.reservation import AVAILABLE, HandOverText, ReservationObject
from koordlite.reservation import capacity, hand_over, placeholder
from koordlite.reservation.capacity import NodeCapacity
from koordlite.reservation.pods import ClusterPod, Shapes, total_requests

Amounts = Mapping[str, Quantity]
_Index = collections.defaultdict[str, dict[str, ClusterPod]]
_SYSTEM = ("koordinator-system", "kube-system")
"""Namespaces in which the label of Koordinator's own scheduler is believed: tenants write labels, too."""


class World:
    """State of the cluster for reservations. Not locked: its owner is."""

    def __init__(
        self,
        *,
        lacks: Callable[[PodObject, str], str] = lambda _pod, _reservation: "",
        fault: Callable[[str, Exception], object] | None = None,
    ) -> None:
        """`lacks`: why a pod could not take the Reservation of a name even if its placeholders were gone, by whoever
        knows the NUMA nodes of its node; empty when it could. `fault` is told of the Reservation that a fault of ours
        costs its turn; without it the fault is raised."""
        self.lacks, self._fault = lacks, fault
        self.reservations: dict[str, ReservationObject] = {}
        self.nodes: dict[str, NodeObject] = {}
        self._shapes = Shapes()
        self.pods: dict[str, ClusterPod] = {}
        """Pods by uid."""
        self.waiting: dict[str, ClusterPod] = {}
        """Pods that are not bound, no placeholders, and not ended."""
        self.koord_schedulers: dict[str, str] = {}
        """Pods of Koordinator's scheduler that run, by uid."""
        self._limits: dict[str, dict[str, Quantity]] = {}
        """Upper bound of what pods may request beside what the node keeps back, by node."""
        self._allocatable: dict[str, capacity.Whole] = {}
        """Allocatable amounts by node, beside what it keeps back."""
        self._namespaces: dict[str, str] = {}
        """Namespace of the placeholders of a Reservation, by its uid."""
        self._uids: dict[str, str] = {}
        self._on_node: _Index = collections.defaultdict(dict)
        self._placeholders: _Index = collections.defaultdict(dict)
        self._takers: dict[str, ClusterPod] = {}
        self._sums: dict[str, capacity.Whole] = {}
        self._nominated: dict[str, str] = {}
        self._kept_room: _Index = collections.defaultdict(dict)
        """Pods that are not bound, by the node on which a scheduler keeps room for them."""
        self._unbound: dict[str, ClusterPod] = {}
        self._coming: dict[str, HandOverText] = {}
        """Hand-overs that are under way, by name of the Reservation."""

    @contextlib.contextmanager
    def guarded(self, name: str) -> Iterator[None]:
        """Work on one Reservation: what goes wrong with it does not stop the others."""
        try:
            yield
        except Exception as error:
            if self._fault is None:
                raise
            self._fault(name, error)

    def put_reservation(self, obj: ReservationObject) -> None:
        """A Reservation came or changed."""
        name = obj.metadata.name
        self.reservations[name] = obj
        self._namespaces[obj.metadata.uid] = placeholder.namespace(obj)
        coming = hand_over.under_way(obj)
        if coming is not None:
            self._coming[name] = coming
        else:
            self._coming.pop(name, None)

    def remove_reservation(self, name: str) -> None:
        """A Reservation is gone; what was nominated for it is remembered until it is taken back."""
        reservation, coming = self.reservations.pop(name, None), self._coming.pop(name, None)
        if reservation is not None:
            self._namespaces.pop(reservation.metadata.uid, None)
        if reservation is not None and coming is not None:
            self._nominated[coming.uid] = reservation.status.node_name

    def put_node(self, obj: NodeObject) -> None:
        """A Node came or changed."""
        name, notes = obj.metadata.name, obj.metadata.annotations or {}
        self.nodes[name], allocatable = obj, parse_resources(obj.status.allocatable, "", "", [])
        with contextlib.suppress(InputError):  # Named by the judgement of nodes; what it said before holds.
            limits = node_room.limits(allocatable, parse_reservation(notes.get(keys.RESERVATION, ""), f"node/{name}"))
            self._limits[name] = {resource: Quantity(nano) for resource, nano in limits.items()}
        self._allocatable[name] = capacity.whole({**allocatable, **self._limits.get(name, {})})

    def remove_node(self, name: str) -> None:
        """A Node is gone."""
        self.nodes.pop(name, None)
        self._limits.pop(name, None)
        self._allocatable.pop(name, None)

    def put_pod(self, obj: PodObject) -> bool:
        """Take in a Pod that came or changed. True when that may matter to a Reservation."""
        pod = self._shapes.pod(obj)
        if not pod.node or pod.stands_for or keys.RESERVATION_ALLOCATED in (obj.metadata.annotations or {}):
            pod = msgspec.structs.replace(pod, obj=obj)
        mattered = self._matters(pod.uid)
        uid = self._uids.get(pod.key)
        if uid is not None and uid != pod.uid:
            self._drop(uid)
        self._drop(pod.uid)
        self.pods[pod.uid], self._uids[pod.key] = pod, pod.uid
        self._sums.pop(pod.node, None)
        for index in self._indexes(pod):
            index[pod.uid] = pod
        labels = obj.metadata.labels or {}
        if (
            labels.get("koord-app") == "koord-scheduler"
            and obj.metadata.namespace in _SYSTEM
            and obj.status.phase == "Running"
        ):
            self.koord_schedulers[pod.uid] = pod.key
        return mattered or self._matters(pod.uid)

    def remove_pod(self, key: str) -> bool:
        """Forget the pod `namespace/name`. True when that may matter to a Reservation."""
        uid = self._uids.pop(key, "")
        mattered = self._matters(uid)
        self._drop(uid)
        return mattered

    def removed(self, uid: str) -> None:
        """Our own deletion of this pod was answered: it holds nothing any more."""
        if pod := self.pods.get(uid):
            self._uids.pop(pod.key, None)
        self._drop(uid)

    def placeholders(self, uid: str) -> list[ClusterPod]:
        """Placeholders of the Reservation with this uid, by name. A pod that says so in another namespace is none."""
        where = self._namespaces.get(uid)
        pods = (pod for pod in self._placeholders.get(uid, {}).values() if where in (None, pod.namespace))
        return sorted(pods, key=lambda pod: (len(pod.name), pod.name))

    def exists(self, namespace: str, name: str) -> bool:
        """Tell whether there is a pod of this name, whosever it is."""
        return f"{namespace}/{name}" in self._uids

    def orphans(self) -> Iterator[ClusterPod]:
        """Placeholders whose Reservation is gone."""
        uids = {each.metadata.uid for each in self.reservations.values()}
        for uid, pods in self._placeholders.items():
            if uid not in uids:
                yield from pods.values()

    def stale_nominations(self) -> list[ClusterPod]:
        """Pods for which room is kept by a hand-over of a Reservation that is gone."""
        promised = self.promised()
        self._nominated = {
            uid: node
            for uid, node in self._nominated.items()
            if uid in self.waiting and uid not in promised and self.waiting[uid].nominated == node
        }
        return [self.waiting[uid] for uid in self._nominated]

    def promised(self) -> set[str]:
        """Uids of the pods that places are on their way to."""
        return {coming.uid for coming in self._coming.values()}

    def handed_over(self, node: str = "") -> list[tuple[ReservationObject, HandOverText]]:
        """Available Reservations whose place is on its way to a pod; with `node` those there."""
        pairs = ((self.reservations[name], coming) for name, coming in self._coming.items())
        return [
            (each, coming)
            for each, coming in pairs
            if each.status.phase == AVAILABLE and (each.status.node_name == node or not node)
        ]

    def nominated(self, node: str) -> Iterable[ClusterPod]:
        """Pods that are not bound, and for which a scheduler keeps room on the node."""
        return self._kept_room.get(node, {}).values()

    def unbound_placeholders(self, but: str) -> list[ClusterPod]:
        """Placeholders that are not bound, of other Reservations than the one with uid `but`."""
        return [pod for pod in self._unbound.values() if pod.stands_for != but]

    def takers(self) -> Iterable[ClusterPod]:
        """Bound pods that say they took a Reservation."""
        return self._takers.values()

    def capacity(self, node: str, mine: int = 0) -> NodeCapacity | None:
        """Resources of a node beside what it keeps back, and requests of its pods, of which `mine` are placeholders of
        one Reservation; None when it is unknown."""
        if node not in self.nodes:
            return None
        if node not in self._sums:
            self._sums[node] = capacity.whole(total_requests(self._on_node.get(node, {}).values()))
        return NodeCapacity(
            allocatable=self._allocatable[node],
            requested=self._sums[node],
            pods=len(self._on_node.get(node, {})),
            matched=mine,
        )

    def _matters(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        named = pod is not None and bool(pod.stands_for)
        return named or uid in self.waiting or uid in self._takers or uid in self.koord_schedulers

    def _drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self.koord_schedulers.pop(uid, None)
        if pod is None:
            return
        self._sums.pop(pod.node, None)
        for index in self._indexes(pod):
            del index[uid]
        for of_key, key in (
            (self._placeholders, pod.stands_for),
            (self._kept_room, pod.nominated),
            (self._on_node, pod.node),
        ):
            if not of_key[key]:
                del of_key[key]

    def _indexes(self, pod: ClusterPod) -> Iterator[dict[str, ClusterPod]]:
        """The indexes that the pod is in."""
        if pod.stands_for:
            yield self._placeholders[pod.stands_for]
        if not pod.node and pod.alive:
            yield self._unbound if pod.stands_for else self.waiting
            if pod.nominated:
                yield self._kept_room[pod.nominated]
        if pod.node and not pod.ended:
            yield self._on_node[pod.node]
            if pod.obj is not None and keys.RESERVATION_ALLOCATED in (pod.obj.metadata.annotations or {}):
                yield self._takers
