"""A pod as it is judged: all pods of one template share a `PodShape`, so that a verdict is worked out once for them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from koordlite.model import keys, times
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.quantity import Quantity, add_resources
from koordlite.model.wire import objects
from koordlite.model.wire.reservation import AllocatedText
from koordlite.numa.koordinator import ask
from koordlite.numa.koordinator.values import Refusal
from koordlite.numa.kubelet import requests
from koordlite.numa.nrt import filter as nrt

_RESERVATION_ANNOTATIONS = (keys.RESERVATION_AFFINITY, keys.EXACT_MATCH)
_SCHEDULER_ANNOTATIONS = (*keys.CRANE_REQUEST, keys.VOLCANO_NUMA_POLICY)
_DECISIVE_ANNOTATIONS = (
    keys.RESOURCE_SPEC,
    keys.NUMA_TOPOLOGY_SPEC,
    *_SCHEDULER_ANNOTATIONS,
    *_RESERVATION_ANNOTATIONS,
)
_DECISIVE_LABELS = (keys.QOS_CLASS, keys.PRIORITY_CLASS)
Amounts = nrt.Amounts
T = TypeVar("T")


class PodShape:
    """Common parts of the pods of one template, read of one of them. Compared by identity."""

    def __init__(self, obj: objects.PodObject) -> None:
        pod = self.pod = pod_reader.from_wire(obj)
        """One pod of the template; only what all of them share is meant."""
        self.guaranteed = pod.kube_qos is KubeQoS.GUARANTEED
        self.total: Amounts = {name: amount.nano for name, amount in pod.requests.items()}
        """The pod's effective request in nano-units."""
        started = requests.in_nano(obj.spec)
        self.request = nrt.aligned_by_kubelet(started, guaranteed=self.guaranteed)
        """Amounts to align, as kubelet counts them."""
        self.aligned = any(is_aligned for part in self.request.parts for _, _, is_aligned in part.requests)
        """True where kubelet aligns any of it."""
        running = (amounts for kind, _, amounts in started if kind != "init")
        self.exclusive = exclusive(running, guaranteed=self.guaranteed)
        """The part of it that no other pod can use meanwhile: devices, and of Guaranteed pods whole CPUs and memory."""
        self.held = exclusive((amounts for _, _, amounts in started), guaranteed=self.guaranteed)
        """The most that it can hold while no report has counted it: kubelet keeps what init containers had until the
        pod ends, and what later containers have not used again comes on top."""
        self.best_effort = pod.kube_qos is KubeQoS.BEST_EFFORT and nrt.only_native(self.request)
        """Asks for nothing but native resources, and has no class: passes everywhere."""
        self.daemon = any(owner.kind == "DaemonSet" for owner in obj.metadata.owner_references or ())
        """Made by a DaemonSet."""
        self.containers, self.problems = obj.spec.containers or (), pod.problems
        self.names_scheduler = any(key in pod.annotations for key in _SCHEDULER_ANNOTATIONS)
        """It carries an annotation that a scheduler of CPUs or NUMA nodes reads: Crane's, ours or Volcano's."""
        self.names_reservation = any(key in pod.annotations for key in _RESERVATION_ANNOTATIONS)
        """It carries an annotation about the reservations it takes."""
        self.extra: dict[str, Any] = {}
        """Results of allocators for this shape, by their name."""

    @functools.cached_property
    def koordinator_request(self) -> ask.PodRequest | Refusal | None:
        """Its request by Koordinator's NUMA rules; None: it requests nothing."""
        return ask.of(self.pod)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Result of `make()`, worked out once for this shape."""
        if name not in self.extra:
            self.extra[name] = make()
        value: T = self.extra[name]
        return value


class ClusterPod(msgspec.Struct, frozen=True):
    """One pod of the cluster."""

    namespace: str
    name: str
    uid: str
    node: str
    """Empty: not bound."""
    shape: PodShape
    scheduler: str = "default-scheduler"
    priority: int = 0
    phase: str = ""
    reason: str = ""
    started: bool = False
    """Kubelet has taken it: `status.startTime` is set."""
    deleting: bool = False
    nominated: str = ""
    """The node that is being emptied for it, while it is not bound."""
    resource_status: str = ""
    """Annotation `scheduling.koordinator.sh/resource-status`."""
    crane_result: str = ""
    """Annotation `topology.crane.io/topology-result`."""
    stands_for: str = ""
    """uid of the Reservation whose placeholder it is; see `stands_for`."""
    reservation_uid: str = ""
    """uid of the Reservation that a Binding of ours lets it take; never what the pod says itself."""
    tied: str = ""
    """Reason why it is not moved to make room for another pod; empty: as far as its own object says, it may be."""
    obj: objects.PodObject | None = None
    """The whole pod, where more may have to be read of it."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Its containers hold nothing any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def alive(self) -> bool:
        """It holds, or will hold, what it requests."""
        return not self.ended and not self.deleting

    @property
    def admitted(self) -> bool:
        """Kubelet has taken it, and it has not ended."""
        return self.started and self.phase in ("Pending", "Running")

    @property
    def requests(self) -> Mapping[str, Quantity]:
        """Its effective request."""
        return self.shape.pod.requests

    @property
    def created(self) -> float:
        """Seconds since the epoch; 0 when it is not known."""
        return (times.parse_or_none(self.obj.metadata.creation_timestamp) if self.obj is not None else None) or 0.0

    def refused(self) -> str | None:
        """Message of its scheduler when it found no node; None when it has not, or the pod is bound."""
        conditions = self.obj.status.conditions if self.obj is not None and not self.node else None
        condition = next((c for c in conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
        return None if condition is None or condition.reason == "SchedulingGated" else condition.message or ""

    def bound(self, node: str, annotations: Mapping[str, str]) -> ClusterPod:
        """The pod as it is with the allocation that its Binding to `node` carries."""
        allocated = annotations.get(keys.RESERVATION_ALLOCATED)
        return msgspec.structs.replace(
            self,
            node=node,
            resource_status=annotations.get(keys.RESOURCE_STATUS, ""),
            crane_result=annotations.get(keys.CRANE_TOPOLOGY_RESULT, ""),
            reservation_uid=msgspec.json.decode(allocated, type=AllocatedText).uid if allocated else "",
        )

    @property
    def refused_by_kubelet(self) -> bool:
        """It failed kubelet's admission for its topology: the extender predicted wrong."""
        return self.phase == "Failed" and self.reason in ("TopologyAffinityError", "SMTAlignmentError")


def total_requests(pods: Iterable[ClusterPod]) -> dict[str, Quantity]:
    """Sum of their requests."""
    total: dict[str, Quantity] = {}
    for pod in pods:
        add_resources(total, pod.requests)
    return total


class Shapes:
    """Shapes by what decides; the oldest are forgotten beyond `most`."""

    def __init__(self, most: int = 4096) -> None:
        self._shapes: dict[Hashable, PodShape] = {}
        self._most = most

    def of(self, obj: objects.PodObject) -> PodShape:
        """The shape of a pod; pods that differ in nothing that decides share one."""
        obj = pod_reader.counted(obj)
        key = _key(obj)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= self._most:
                del self._shapes[next(iter(self._shapes))]
            shape = self._shapes[key] = PodShape(obj)
        return shape

    def pod(self, obj: objects.PodObject) -> ClusterPod:
        """The pod that `obj` describes, with its shape."""
        notes, shape = obj.metadata.annotations or {}, self.of(obj)
        return ClusterPod(
            namespace=sys.intern(obj.metadata.namespace),
            name=obj.metadata.name,
            uid=obj.metadata.uid,
            node=sys.intern(obj.spec.node_name),
            shape=shape,
            scheduler=sys.intern(obj.spec.scheduler_name or "default-scheduler"),
            priority=obj.spec.priority or 0,
            phase=sys.intern(obj.status.phase),
            reason=sys.intern(obj.status.reason or ""),
            started=obj.status.start_time is not None,
            deleting=obj.metadata.deletion_timestamp is not None,
            nominated=sys.intern(obj.status.nominated_node_name or ""),
            resource_status=notes.get(keys.RESOURCE_STATUS, ""),
            crane_result=notes.get(keys.CRANE_TOPOLOGY_RESULT, ""),
            stands_for=stands_for(obj.metadata),
            tied=_tied(obj, shape),
        )


def stands_for(meta: objects.ObjectMeta) -> str:
    """uid of the Reservation whose placeholder a pod is, empty for another pod: a placeholder is named, labelled and
    owned as ours are; a label alone makes none."""
    uid = (meta.labels or {}).get(keys.RESERVATION_UID, "")
    owned = any(owner.kind == "Reservation" and owner.uid == uid for owner in meta.owner_references or ())
    return uid if uid and owned and meta.name.startswith(f"reservation-{uid}-") else ""


def _tied(obj: objects.PodObject, shape: PodShape) -> str:
    notes = obj.metadata.annotations or {}
    if shape.daemon or keys.CONFIG_MIRROR in notes:
        return "it belongs to its node"
    if not any(owner.controller for owner in obj.metadata.owner_references or ()):
        return "nothing would make it anew"
    if any(volume.persistent_volume_claim for volume in obj.spec.volumes or ()):
        return "its volumes may bind it to its node"
    if fields := pod_reader.constraints(obj.spec):
        return sys.intern(f"its {', '.join(fields)} may bind it to its node")
    return ""


def exclusive(running: Iterable[Amounts], *, guaranteed: bool) -> dict[str, int]:
    """Source: scheduler-plugins resourcerequests/exclusive.go; plain init containers do not count."""
    total: dict[str, int] = {}
    for amounts in running:
        own = {name: a for name, a in amounts.items() if a > 0 and nrt.is_own(name, a, guaranteed=guaranteed)}
        nrt.add(total, own)
    return total


def _key(obj: objects.PodObject) -> Hashable:
    labels, notes = obj.metadata.labels or {}, obj.metadata.annotations or {}
    owners = obj.metadata.owner_references or ()
    return (
        obj.status.qos_class,
        obj.spec.priority,
        tuple(_container_key(c) for c in obj.spec.init_containers or ()),
        tuple(_container_key(c) for c in obj.spec.containers or ()),
        _flat(obj.spec.overhead),
        _flat(obj.spec.resources.requests if obj.spec.resources else None),
        tuple(notes.get(key) for key in _DECISIVE_ANNOTATIONS),
        tuple(labels.get(key) for key in _DECISIVE_LABELS),
        any(owner.kind == "DaemonSet" for owner in owners),
    )


def _container_key(container: objects.Container) -> Hashable:
    resources = container.resources or objects.Resources()
    return container.name, container.restart_policy, _flat(resources.requests), _flat(resources.limits)


def _flat(amounts: Mapping[str, str | int | float] | None) -> Hashable:
    return frozenset((amounts or {}).items())
