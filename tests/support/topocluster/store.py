"""The API server of the simulated cluster: objects, bindings, and watches that arrive a little later."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import structs

from koordlite.model.wire import objects
from koordlite.model.wire.reservation import ReservationObject
from tests.support.topocluster.events import Events


class Watcher(Protocol):
    """Is told of every object, each kind in order."""

    def put_node(self, obj: objects.NodeObject) -> None: ...

    def put_report(self, obj: objects.NRTObject) -> None: ...

    def put_pod(self, obj: objects.PodObject) -> None: ...

    def remove_pod(self, key: str) -> None: ...


class Watch:
    """What is on its way to one watcher, by node: the delay of each message is drawn anew, the order stays."""

    def __init__(self, watcher: Watcher, events: Events, delay: Callable[[], float]) -> None:
        self._watcher, self._events, self._delay = watcher, events, delay
        self._last = 0.0
        self.takes_reservations = hasattr(watcher, "put_reservation")
        self.coming: collections.Counter[str] = collections.Counter()

    def send(self, node: str, deliver: Callable[[Watcher], None]) -> None:
        """Deliver it after the delay, and not before what was sent earlier."""
        self._last = max(self._last, self._events.now + self._delay())
        self.coming[node] += 1
        self._events.at(self._last, self._arrived, node, deliver)

    def _arrived(self, node: str, deliver: Callable[[Watcher], None]) -> None:
        self.coming[node] -= 1
        deliver(self._watcher)


class Store:
    """Pods, nodes and reports."""

    def __init__(self, events: Events, chance: random.Random) -> None:
        self._events, self._chance, self._version = events, chance, 0
        self.pods: dict[str, objects.PodObject] = {}
        self.watches: list[Watch] = []
        self.reservations: dict[str, ReservationObject] = {}
        self.written: dict[str, float] = {}
        """When each version of a report was written."""
        self.on_bind: Callable[[objects.PodObject], None] = lambda pod: None
        """Is told of each binding at the moment it is made."""

    def watch(self, watcher: Watcher, *, least: float, most: float) -> Watch:
        """Tell `watcher` of everything from now on, `least` to `most` seconds late."""
        made = Watch(watcher, self._events, lambda: self._chance.uniform(least, most))
        self.watches.append(made)
        return made

    def put_node(self, obj: objects.NodeObject) -> None:
        """A node came or changed."""
        self._send(obj.metadata.name, lambda watcher: watcher.put_node(obj))

    def put_report(self, obj: objects.NRTObject) -> str:
        """A report came or changed; its new version."""
        written = structs.replace(obj, metadata=structs.replace(obj.metadata, resource_version=self._next()))
        self.written[written.metadata.resource_version] = self._events.now
        self._send(obj.metadata.name, lambda watcher: watcher.put_report(written))
        return written.metadata.resource_version

    def create(self, pod: objects.PodObject) -> None:
        """A pod came."""
        self._put(pod)

    def bind(self, key: str, uid: str, node: str, annotations: dict[str, str]) -> str:
        """POST of a Binding: empty when the pod is bound to `node` now, else the server's refusal."""
        pod = self.pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp:
            return f'pods "{key.rpartition("/")[2]}" not found'
        if pod.metadata.uid != uid:
            return f"Operation cannot be fulfilled: uid {uid} is not {pod.metadata.uid}"
        if pod.spec.node_name:
            return f"pod {pod.metadata.name} is already assigned to node {pod.spec.node_name!r}"
        notes = {**(pod.metadata.annotations or {}), **annotations}
        meta = structs.replace(pod.metadata, annotations=notes)
        bound = structs.replace(pod, metadata=meta, spec=structs.replace(pod.spec, node_name=node))
        self.on_bind(bound)
        self._put(bound)
        return ""

    def status(self, key: str, uid: str, phase: str, reason: str = "", message: str = "") -> None:
        """Kubelet writes a pod's status."""
        pod = self.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            return
        changes = {"phase": phase, "reason": reason or None, "message": message or None, "start_time": "since then"}
        if phase == "Running":
            ready = tuple(
                objects.ContainerStatus(name=c.name, container_id=f"containerd://{c.name}", state={"running": {}})
                for c in pod.spec.containers or ()
            )
            changes["container_statuses"] = ready  # type: ignore[assignment]
        self._put(structs.replace(pod, status=structs.replace(pod.status, **changes)))

    def unschedulable(self, key: str, uid: str, why: str) -> None:
        """A scheduler writes why it found no node, and takes a nomination back; the same again changes nothing."""
        said = objects.PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=why)
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            status = structs.replace(pod.status, conditions=(said,), nominated_node_name=None)
            if status != pod.status:
                self._put(structs.replace(pod, status=status))

    def nominate(self, key: str, uid: str, node: str) -> None:
        """PATCH of a pod's status."""
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid and not pod.spec.node_name:
            self._put(structs.replace(pod, status=structs.replace(pod.status, nominated_node_name=node or None)))

    def annotate(self, key: str, uid: str, notes: Mapping[str, str]) -> None:
        """PATCH of a pod's metadata."""
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            merged = {**(pod.metadata.annotations or {}), **notes}
            self._put(structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=merged)))

    def put_reservation(self, obj: ReservationObject) -> None:
        """A Reservation came or changed; who watches no Reservations is not told."""
        self.reservations[obj.metadata.name] = obj
        for watch in self.watches:
            if watch.takes_reservations:
                watch.send(obj.status.node_name, lambda watcher: watcher.put_reservation(obj))  # type: ignore[attr-defined]

    def mark_deleted(self, key: str) -> None:
        """DELETE of a pod: at once when no kubelet has it, else its kubelet ends it."""
        pod = self.pods.get(key)
        if pod is None:
            return
        if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
            self.remove(key, pod.metadata.uid)
            return
        self._put(structs.replace(pod, metadata=structs.replace(pod.metadata, deletion_timestamp="since then")))

    def remove(self, key: str, uid: str) -> None:
        """The pod is gone."""
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            del self.pods[key]
            self._send(pod.spec.node_name, lambda watcher: watcher.remove_pod(key))

    def _put(self, pod: objects.PodObject) -> None:
        written = structs.replace(pod, metadata=structs.replace(pod.metadata, resource_version=self._next()))
        self.pods[key_of(pod)] = written
        self._send(pod.spec.node_name, lambda watcher: watcher.put_pod(written))

    def _send(self, node: str, deliver: Callable[[Watcher], None]) -> None:
        for watch in self.watches:
            watch.send(node, deliver)

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def key_of(pod: objects.PodObject) -> str:
    """`namespace/name`."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
