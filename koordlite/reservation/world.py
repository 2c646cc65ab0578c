"""State of the controller: Reservations, Nodes, and of pods as much as each is worth. Changed by events; no I/O."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from koordlite.formulas.allocatable import node_room
from koordlite.model import keys, times
from koordlite.model.errors import InputError
from koordlite.model.node import parse_reservation
from koordlite.model.pod import resizing
from koordlite.model.pod.pod_reader import effective_requests
from koordlite.model.quantity import Quantity, add_resources, parse_resources
from koordlite.model.wire.objects import NodeObject, PodObject
from koordlite.model.wire.reservation import AVAILABLE, HandOverText, ReservationObject
from koordlite.reservation import capacity, hand_over, placeholder
from koordlite.reservation.capacity import NodeCapacity

Amounts = Mapping[str, Quantity]
KOORD_SCHEDULER = ("koord-app", "koord-scheduler")
"""Label of the pods of Koordinator's own scheduler."""
_SYSTEM = ("koordinator-system", "kube-system")
"""Namespaces in which that label is believed: tenants write labels, too."""


class SeenPod(msgspec.Struct, frozen=True):
    """One pod."""

    namespace: str
    name: str
    uid: str
    node: str
    """Empty: not bound."""
    ended: bool
    deleting: bool
    admitted: bool
    """Kubelet has taken it."""
    requests: Amounts
    nominated: str = ""
    placeholder_of: str = ""
    """Uid of a Reservation."""
    obj: PodObject | None = None
    """The whole pod, where more may have to be read of it: not bound, a placeholder, or an owner."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def alive(self) -> bool:
        """It holds, or will hold, what it requests."""
        return not self.ended and not self.deleting

    def refused(self) -> str | None:
        """Message of its scheduler when it found no node; None when it has not, or the pod is bound."""
        conditions = self.obj.status.conditions if self.obj is not None and not self.node else None
        found = next((c for c in conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
        return None if found is None or found.reason == "SchedulingGated" else found.message or ""


class World:
    """Not locked: its owner is."""

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
        self.pods: dict[str, SeenPod] = {}
        """By uid."""
        self.waiting: dict[str, SeenPod] = {}
        """Not bound, no placeholder, not ended."""
        self.koord_schedulers: dict[str, str] = {}
        """Pods of Koordinator's scheduler that run, by uid."""
        self._limits: dict[str, dict[str, int]] = {}
        """Most that pods may request beside what the node keeps back, by node, in nano-units."""
        self._namespaces: dict[str, str] = {}
        """Where the placeholders of a Reservation are, by its uid."""
        self._uids: dict[str, str] = {}
        self._on_node: dict[str, dict[str, SeenPod]] = {}
        self._placeholders: dict[str, dict[str, SeenPod]] = {}
        self._takers: dict[str, SeenPod] = {}
        self._sums: dict[str, dict[str, Quantity]] = {}
        self._nominated: dict[str, str] = {}
        self._kept_room: dict[str, dict[str, SeenPod]] = {}
        """Pods that are not bound, by the node on which a scheduler keeps room for them."""
        self._unbound: dict[str, SeenPod] = {}
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
        found, coming = self.reservations.pop(name, None), self._coming.pop(name, None)
        if found is not None:
            self._namespaces.pop(found.metadata.uid, None)
        if found is not None and coming is not None:
            self._nominated[coming.uid] = found.status.node_name

    def put_node(self, obj: NodeObject) -> None:
        """A Node came or changed."""
        name, notes = obj.metadata.name, obj.metadata.annotations or {}
        self.nodes[name] = obj
        with contextlib.suppress(InputError):  # Named by the judgement of nodes; what it said before holds.
            written = parse_reservation(notes.get(keys.RESERVATION, ""), f"node/{name}")
            allocatable = parse_resources(obj.status.allocatable, "", "", [])
            self._limits[name] = node_room.limits(allocatable, written)

    def remove_node(self, name: str) -> None:
        """A Node is gone."""
        self.nodes.pop(name, None)
        self._limits.pop(name, None)

    def put_pod(self, obj: PodObject) -> bool:
        """A Pod came or changed. Whether that may matter to a Reservation."""
        pod = _seen(obj)
        mattered = self._matters(pod.uid)
        held = self._uids.get(pod.key)
        if held is not None and held != pod.uid:
            self._drop(held)
        self._drop(pod.uid)
        self.pods[pod.uid], self._uids[pod.key] = pod, pod.uid
        if pod.placeholder_of:
            self._placeholders.setdefault(pod.placeholder_of, {})[pod.uid] = pod
            if not pod.node and pod.alive:
                self._unbound[pod.uid] = pod
        elif not pod.node and pod.alive:
            self.waiting[pod.uid] = pod
        if pod.nominated and not pod.node and pod.alive:
            self._kept_room.setdefault(pod.nominated, {})[pod.uid] = pod
        if pod.node and not pod.ended:
            self._on_node.setdefault(pod.node, {})[pod.uid] = pod
            self._sums.pop(pod.node, None)
            if keys.RESERVATION_ALLOCATED in (obj.metadata.annotations or {}):
                self._takers[pod.uid] = pod
        if _is_koord_scheduler(obj):
            self.koord_schedulers[pod.uid] = pod.key
        return mattered or self._matters(pod.uid)

    def remove_pod(self, key: str) -> bool:
        """The pod `namespace/name` is gone. Whether that may matter to a Reservation."""
        uid = self._uids.pop(key, "")
        mattered = self._matters(uid)
        self._drop(uid)
        return mattered

    def removed(self, uid: str) -> None:
        """Our own deletion of this pod was answered: it holds nothing any more."""
        if pod := self.pods.get(uid):
            self._uids.pop(pod.key, None)
        self._drop(uid)

    def placeholders(self, uid: str) -> list[SeenPod]:
        """Placeholders of the Reservation with this uid, by name. A pod that says so in another namespace is none."""
        where = self._namespaces.get(uid)
        pods = (pod for pod in self._placeholders.get(uid, {}).values() if where in (None, pod.namespace))
        return sorted(pods, key=lambda pod: (len(pod.name), pod.name))

    def exists(self, namespace: str, name: str) -> bool:
        """Tell whether there is a pod of this name, whosever it is."""
        return f"{namespace}/{name}" in self._uids

    def orphans(self) -> Iterator[SeenPod]:
        """Placeholders whose Reservation is gone."""
        known = {each.metadata.uid for each in self.reservations.values()}
        for uid, pods in self._placeholders.items():
            if uid not in known:
                yield from pods.values()

    def stale_nominations(self) -> list[SeenPod]:
        """Pods for which room is kept by a hand-over of a Reservation that is gone."""
        held = self.promised()
        self._nominated = {
            uid: node
            for uid, node in self._nominated.items()
            if uid in self.waiting and uid not in held and self.waiting[uid].nominated == node
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

    def nominated(self, node: str) -> Iterable[SeenPod]:
        """Pods that are not bound, and for which a scheduler keeps room on the node."""
        return self._kept_room.get(node, {}).values()

    def unbound_placeholders(self, but: str) -> list[SeenPod]:
        """Placeholders that are not bound, of other Reservations than the one with uid `but`."""
        return [pod for pod in self._unbound.values() if pod.placeholder_of != but]

    def takers(self) -> Iterable[SeenPod]:
        """Bound pods that say they took a Reservation."""
        return self._takers.values()

    def capacity(self, node: str, mine: int = 0) -> NodeCapacity | None:
        """Resources of a node beside what it keeps back, and requests of its pods, of which `mine` are placeholders of
        one Reservation; None when it is unknown."""
        found = self.nodes.get(node)
        if found is None:
            return None
        if node not in self._sums:
            total: dict[str, Quantity] = {}
            for pod in self._on_node.get(node, {}).values():
                add_resources(total, pod.requests)
            self._sums[node] = total
        allocatable = parse_resources(found.status.allocatable, "", "", [])
        limits = {resource: Quantity(nano) for resource, nano in self._limits.get(node, {}).items()}
        return NodeCapacity(
            allocatable=capacity.whole({**allocatable, **limits}),
            requested=capacity.whole(self._sums[node]),
            pods=len(self._on_node.get(node, {})),
            matched=mine,
        )

    def _matters(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        named = pod is not None and bool(pod.placeholder_of)
        return named or uid in self.waiting or uid in self._takers or uid in self.koord_schedulers

    def _drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self.koord_schedulers.pop(uid, None)
        if pod is None:
            return
        self.waiting.pop(uid, None)
        self._unbound.pop(uid, None)
        self._takers.pop(uid, None)
        if pod.placeholder_of:
            _discard(self._placeholders, pod.placeholder_of, uid)
        if pod.nominated:
            _discard(self._kept_room, pod.nominated, uid)
        if pod.node:
            _discard(self._on_node, pod.node, uid)
            self._sums.pop(pod.node, None)


def created(pod: SeenPod) -> float:
    """Seconds since the epoch; 0 when it is not known."""
    meta = pod.obj.metadata if pod.obj is not None else None
    return (times.parse_or_none(meta.creation_timestamp) if meta else None) or 0.0


def _discard(index: dict[str, dict[str, SeenPod]], key: str, uid: str) -> None:
    of_key = index.get(key, {})
    of_key.pop(uid, None)
    if not of_key:
        index.pop(key, None)


def _seen(obj: PodObject) -> SeenPod:
    meta, status = obj.metadata, obj.status
    held_for = placeholder.stands_for(meta)
    taken = keys.RESERVATION_ALLOCATED in (meta.annotations or {})
    keep = not obj.spec.node_name or held_for or taken
    return SeenPod(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        node=sys.intern(obj.spec.node_name),
        ended=status.phase in ("Succeeded", "Failed"),
        deleting=meta.deletion_timestamp is not None,
        admitted=status.start_time is not None and status.phase in ("Pending", "Running"),
        requests=effective_requests(resizing.counted(obj).spec, "", []),
        nominated=status.nominated_node_name or "",
        placeholder_of=held_for,
        obj=obj if keep else None,
    )


def _is_koord_scheduler(obj: PodObject) -> bool:
    key, value = KOORD_SCHEDULER
    labelled = (obj.metadata.labels or {}).get(key) == value and obj.metadata.namespace in _SYSTEM
    return labelled and obj.status.phase == "Running"
