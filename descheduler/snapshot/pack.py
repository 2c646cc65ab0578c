"""Pods made small: equal parts are kept once, and what nobody decides on is dropped.

Of a hundred replicas the template is the same, and so are their labels, owners and tolerations. Kept once, 150,000 pods
take a few hundred MiB less. Parts are shared by value, so it makes no difference who made them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from koordlite.model import pod, wire

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_DROPPED = "kubectl.kubernetes.io/last-applied-configuration"
"""A copy of the object in text."""


class Packer:
    """Makes objects of one picture small; keep it as long as objects come in."""

    def __init__(self) -> None:
        self._parts: dict[tuple[type, bytes], Any] = {}
        self._models: dict[tuple[Any, ...], Callable[..., pod.Pod]] = {}

    def share(self, part: T) -> T:
        """The first part that was equal to this one; it takes this one's place."""
        if part is None:
            return part
        shared: T = self._parts.setdefault((type(part), _encode(part)), part)
        return shared

    def small(self, obj: wire.PodObject) -> wire.PodObject:
        """The pod with shared parts, without volumes and container ids that no rule looks at."""
        return wire.PodObject(
            metadata=self._metadata(obj.metadata), spec=self._spec(obj.spec), status=self._status(obj.status)
        )

    def value(self, obj: wire.PodObject, priority: int | None) -> pod.Pod:
        """`koordlite.model.pod.from_wire` of a packed pod, at this priority. Pods with equal templates share what is
        worked out.

        Containers are left out: they differ from pod to pod, and only the agent of the node asks for them.
        """
        meta, spec, status = obj.metadata, obj.spec, obj.status
        parts = (spec.containers, spec.init_containers, spec.overhead, spec.resources, meta.labels, meta.annotations)
        key = (*map(id, parts), priority, status.qos_class)
        make = self._models.get(key)
        if make is None:
            first = dataclasses.replace(pod.from_wire(obj), priority=priority, containers=())
            if first.problems:  # They name this very pod.
                return first
            make = self._models[key] = _maker(first)
        return make(
            namespace=meta.namespace,
            name=meta.name,
            # Hand-written manifests have no uid; the name is as good as long as the picture lasts.
            uid=meta.uid or f"{meta.namespace}/{meta.name}",
            phase=status.phase,
            deleting=meta.deletion_timestamp is not None,
        )

    def _metadata(self, meta: wire.ObjectMeta) -> wire.ObjectMeta:
        notes = meta.annotations
        if notes and _DROPPED in notes:
            notes = {key: text for key, text in notes.items() if key != _DROPPED}
        return wire.ObjectMeta(
            name=meta.name,
            namespace=self.share(meta.namespace),
            uid=meta.uid,
            labels=self.share(meta.labels),
            annotations=self.share(notes),
            creation_timestamp=self.share(meta.creation_timestamp),
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=self.share(meta.owner_references),
        )

    def _spec(self, spec: wire.PodSpec) -> wire.PodSpec:
        return msgspec.structs.replace(
            spec,
            node_name=self.share(spec.node_name),
            containers=self.share(spec.containers),
            init_containers=self.share(spec.init_containers),
            overhead=self.share(spec.overhead),
            resources=self.share(spec.resources),
            priority_class_name=self.share(spec.priority_class_name),
            scheduler_name=self.share(spec.scheduler_name),
            node_selector=self.share(spec.node_selector),
            affinity=self.share(spec.affinity),
            tolerations=self.share(spec.tolerations),
            topology_spread_constraints=self.share(spec.topology_spread_constraints),
            volumes=self.share(_decisive(spec.volumes)),
        )

    def _status(self, status: wire.PodStatus) -> wire.PodStatus:
        return msgspec.structs.replace(
            status,
            phase=self.share(status.phase),
            qos_class=self.share(status.qos_class),
            start_time=self.share(status.start_time),
            message=None,
            container_statuses=self._containers(status.container_statuses),
            init_container_statuses=self._containers(status.init_container_statuses),
            ephemeral_container_statuses=self._containers(status.ephemeral_container_statuses),
            conditions=tuple(map(self._condition, status.conditions)) if status.conditions else None,
        )

    def _containers(self, states: tuple[wire.ContainerStatus, ...] | None) -> tuple[wire.ContainerStatus, ...] | None:
        return self.share(tuple(map(_without_id, states))) if states else None

    def _condition(self, condition: wire.PodCondition) -> wire.PodCondition:
        """The same few conditions, but for their time; a pod's conditions mostly share that as well."""
        return wire.PodCondition(
            type=self.share(condition.type),
            status=self.share(condition.status),
            reason=self.share(condition.reason),
            last_transition_time=self.share(condition.last_transition_time),
        )


def _decisive(volumes: tuple[wire.Volume, ...] | None) -> tuple[wire.Volume, ...] | None:
    """Volumes that hold data; tokens and configuration come along wherever the pod goes."""
    if not volumes:
        return None
    return tuple(v for v in volumes if any(getattr(v, name) is not None for name in _DATA)) or None


_DATA = tuple(name for name in wire.Volume.__struct_fields__ if name != "name")


def _without_id(state: wire.ContainerStatus) -> wire.ContainerStatus:
    """`running` says when it began, which no rule asks and no two pods share."""
    now = {"running": {}} if state.state and "running" in state.state else state.state
    return wire.ContainerStatus(name=state.name, state=now, restart_count=state.restart_count)


def _maker(model: pod.Pod) -> Callable[..., pod.Pod]:
    """Makes pods with the model's classes and requests, and an identity of their own."""
    shared = {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name not in _IDENTITY}
    return functools.partial(pod.Pod, **shared)


_IDENTITY = ("namespace", "name", "uid", "phase", "deleting")
