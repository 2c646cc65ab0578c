"""Pods made small: equal parts are kept once, and what nobody decides on is dropped.

Of a hundred replicas the template is the same, and so are their labels, owners and tolerations. Kept once, 150,000 pods
take a few hundred MiB less. Parts are shared by value, so it makes no difference who made them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from sys import intern
from typing import Any, NamedTuple, TypeVar

import msgspec

from descheduler.picture.pods import SpecKey, TemplateKey
from koordlite.model.pod import pod_reader
from koordlite.model.pod.values import Pod
from koordlite.model.wire import objects

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_READ = re.compile(r"([^/]+\.)?(koordinator\.sh|koordlite\.io|crane\.io|volcano\.sh|(?<!kubectl\.)kubernetes\.io)/")
"""Annotations of these domains are all that is read of pods. Most others have a value for each pod, such as its
address, or copy the whole object."""
_KEPT = 1 << 12
"""Templates, conditions and states that are known at a time: replicas come one after the other in a list."""
_KEPT_LASTING = 1 << 14
"""The same for one picture after the other: later pods come in any order."""
_KEPT_PARTS = 1 << 14
"""Parts and texts that are known at a time. Some, like annotations with a pod's address, are never seen again."""


class PackedPod(objects.PodObject, frozen=True, kw_only=True):
    """A pod whose equal parts are kept once."""

    template: TemplateKey
    """Pod template it was made from."""


_SPEC = (
    "containers",
    "init_containers",
    "overhead",
    "resources",
    "node_selector",
    "affinity",
    "tolerations",
    "topology_spread_constraints",
    "resource_claims",
    "eviction_responders",
)
"""Fields of a pod's spec that its template decides, the volumes aside."""


class _Parts(NamedTuple):
    """The parts of a pod template but its labels as they are shared, and the key that says so."""

    key: SpecKey
    owner_references: tuple[objects.OwnerReference, ...] | None
    spec: dict[str, Any]


class Packer:
    """Makes objects of a picture small; keep it as long as objects come in."""

    def __init__(self, *, lasting: bool = False) -> None:
        """`lasting`: for one picture after the other. Resource versions are kept then."""
        self.lasting = lasting
        self._most = _KEPT_LASTING if lasting else _KEPT
        self._parts: dict[tuple[type, bytes], Any] = {}
        self._models: dict[tuple[Any, ...], Callable[..., Pod]] = {}
        self._specs: dict[bytes, _Parts] = {}
        self._templates: dict[tuple[SpecKey, bytes], tuple[TemplateKey, dict[str, str] | None]] = {}
        self._texts: dict[str, str] = {}
        self._conditions = functools.lru_cache(self._most)(_conditions)
        self._running = functools.lru_cache(self._most)(_running)

    def share(self, part: T, make: Callable[[T], T] | None = None) -> T:
        """A part that was equal to this one, if one was seen lately; it takes this one's place. Else what `make` makes
        of this one is remembered."""
        if part is None:
            return part
        # A container and its state may have nothing but a name: equal texts, and still different things.
        key = (type(part[0]) if isinstance(part, tuple) and part else type(part), _encode(part))
        shared: T | None = self._parts.get(key)
        if shared is None:
            if len(self._parts) >= _KEPT_PARTS:
                self._parts.clear()
            shared = self._parts[key] = make(part) if make else part
        return shared

    def small(self, obj: objects.PodObject) -> PackedPod:
        """The pod with shared parts and the amounts that count, without volumes and container ids that no rule looks
        at."""
        obj = pod_reader.counted(obj)
        parts = self._parts_of(obj)
        template, labels = self._template(obj, parts)
        notes = {key: text for key, text in (obj.metadata.annotations or {}).items() if _READ.match(key)} or None
        return PackedPod(
            metadata=(
                objects.ObjectMeta(
                    name=obj.metadata.name,
                    namespace=intern(obj.metadata.namespace),
                    uid=obj.metadata.uid,
                    labels=labels,
                    annotations=self.share(notes, self._shared_texts),
                    creation_timestamp=_text(obj.metadata.creation_timestamp),
                    resource_version=obj.metadata.resource_version if self.lasting else "",
                    deletion_timestamp=obj.metadata.deletion_timestamp,
                    owner_references=parts.owner_references,
                )
            ),
            spec=objects.PodSpec(
                node_name=intern(obj.spec.node_name),
                priority=obj.spec.priority,
                priority_class_name=_text(obj.spec.priority_class_name),
                scheduler_name=_text(obj.spec.scheduler_name),
                termination_grace_period_seconds=obj.spec.termination_grace_period_seconds,
                **parts.spec,
            ),
            status=objects.PodStatus(
                phase=intern(obj.status.phase),
                reason=obj.status.reason,
                qos_class=_text(obj.status.qos_class),
                start_time=_text(obj.status.start_time),
                container_statuses=self._containers(obj.status.container_statuses),
                init_container_statuses=self._containers(obj.status.init_container_statuses),
                ephemeral_container_statuses=self._containers(obj.status.ephemeral_container_statuses),
                conditions=obj.status.conditions and self._conditions(obj.status.conditions),
            ),
            template=template,
        )

    def model(self, obj: PackedPod, priority: int | None) -> Pod:
        """`koordlite.model.pod.pod_reader.from_wire` of a packed pod, at this priority. Pods of one template share what
        follows from it.

        Containers are left out: they differ from pod to pod, and only the agent of the node asks for them.
        """
        meta, status = obj.metadata, obj.status
        labels, notes = meta.labels or _NONE, meta.annotations or _NONE
        key = (
            obj.template.spec,
            *[labels.get(key) for key in pod_reader.DECISIVE_LABELS],
            *[notes.get(key) for key in pod_reader.DECISIVE_NOTES],
            priority,
            status.qos_class,
        )
        make = self._models.get(key)
        if make is None:
            first = msgspec.structs.replace(pod_reader.from_wire(obj), priority=priority, containers=())
            if first.problems:  # They name this very pod.
                return first
            if len(self._models) >= self._most:
                self._models.clear()
            values = msgspec.structs.asdict(first).items()
            shared: dict[str, Any]
            shared = {name: _NONE if part == _NONE else part for name, part in values if name not in _IDENTITY}
            make = self._models[key] = functools.partial(Pod, **shared)
        return make(
            namespace=meta.namespace,
            name=meta.name,
            # Hand-written manifests have no uid; the name is as good as long as the picture lasts.
            uid=meta.uid or f"{meta.namespace}/{meta.name}",
            labels=labels,
            annotations=notes,
            phase=status.phase,
            deleting=meta.deletion_timestamp is not None,
        )

    def _parts_of(self, obj: objects.PodObject) -> _Parts:
        """The template of the pod without its labels. Mostly it is one that was seen before, which one comparison of
        all parts tells."""
        owners, volumes = obj.metadata.owner_references, obj.spec.volumes or ()
        # Volumes that hold data; tokens and configuration come along wherever the pod goes.
        holding = tuple([v for v in volumes if (v.empty_dir, v.host_path, v.persistent_volume_claim) != _NOTHING])
        fields = {**{name: getattr(obj.spec, name) for name in _SPEC}, "volumes": holding or None}
        key = _encode((obj.metadata.namespace, owners, *fields.values()))
        parts = self._specs.get(key)
        if parts is None:
            if len(self._specs) >= self._most:
                self._specs.clear()
            makers = {"containers": self._shared_containers, "init_containers": self._shared_containers}
            shared = {name: self.share(value, makers.get(name)) for name, value in fields.items()}
            spec = {name: part for name, part in shared.items() if part is not None}
            parts = self._specs[key] = _Parts(SpecKey(), self.share(owners), spec)
        return parts

    def _shared_containers(self, containers: tuple[objects.Container, ...]) -> tuple[objects.Container, ...]:
        """Share what containers with amounts of their own have like others."""
        return tuple(
            msgspec.structs.replace(
                each,
                name=intern(each.name),
                image=intern(each.image),
                ports=self.share(each.ports),
                resources=each.resources
                and objects.Resources(requests=each.resources.requests, limits=self.share(each.resources.limits)),
            )
            for each in containers
        )

    def _template(self, obj: objects.PodObject, parts: _Parts) -> tuple[TemplateKey, dict[str, str] | None]:
        """The key of the pod's template, and its labels."""
        labels = obj.metadata.labels
        key = (parts.key, _encode(labels))
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= self._most:
                self._templates.clear()
            template = self._templates[key] = TemplateKey(parts.key), self._shared_texts(labels)
        return template

    def _shared_texts(self, texts: dict[str, str] | None) -> dict[str, str] | None:
        """Share the single texts: where a pod has some of its own, the others are mostly not."""
        if len(self._texts) >= _KEPT_PARTS:
            self._texts.clear()
        shared = self._texts.setdefault
        return texts and {intern(key): shared(text, text) for key, text in texts.items()}

    def _containers(
        self, states: tuple[objects.ContainerStatus, ...] | None
    ) -> tuple[objects.ContainerStatus, ...] | None:
        """The containers without their ids, which no two share."""
        if not states:
            return None
        running = [(one.name, one.restart_count) for one in states if one.state and "running" in one.state]
        if len(running) == len(states):
            return self._running(tuple(running))
        return self.share(tuple(map(_without_id, states)))


def _running(containers: tuple[tuple[str, int], ...]) -> tuple[objects.ContainerStatus, ...]:
    """Names and restarts of containers that run; since when is nothing that a rule asks."""
    return tuple(objects.ContainerStatus(name=name, state={"running": {}}, restart_count=n) for name, n in containers)


def _without_id(state: objects.ContainerStatus) -> objects.ContainerStatus:
    now = {"running": {}} if state.state and "running" in state.state else state.state
    return objects.ContainerStatus(name=state.name, state=now, restart_count=state.restart_count)


def _conditions(several: tuple[objects.PodCondition, ...]) -> tuple[objects.PodCondition, ...]:
    """The same few conditions, but for their times; replicas that were started together mostly share those as well."""
    return tuple(
        objects.PodCondition(
            type=intern(one.type),
            status=intern(one.status),
            reason=_text(one.reason),
            last_transition_time=_text(one.last_transition_time),
        )
        for one in several
    )


def _text(text: str | None) -> str | None:
    return text and intern(text)


_IDENTITY = ("namespace", "name", "uid", "labels", "annotations", "phase", "deleting")
_NONE: dict[str, str] = {}
_NOTHING = (None, None, None)
