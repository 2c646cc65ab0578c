"""Publications and evictions where the cluster is a folder: objects of the API server, as JSON files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import structs

from koordlite.changes.eviction import EvictPod
from koordlite.kube.publish import evictions
from koordlite.model import keys
from koordlite.model.change import ClusterChange, NodeChange, TopologyPart
from koordlite.model.errors import UNREADABLE, InputError, Problem
from koordlite.model.wire import objects

Resources = dict[str, str | int | float]
T = TypeVar("T")

FILE = "evictions.json"
NRT = "topology.node.k8s.io/v1alpha2"
OURS = "published.koordlite.io/resources"
"""Annotation in the published Node that tells a later run which resources are ours; null is one we removed."""
OUR_ANNOTATIONS = "published.koordlite.io/annotations"
"""The same for annotations."""


class Published:
    """The node's extended resources and annotations of ours, and its NodeResourceTopology.
    On disk when there is a folder, else in memory."""

    def __init__(self, node: str, folder: Path | None) -> None:
        """Takes up what an earlier run left in `folder`; InputError when that cannot be read."""
        self._node, self._topology = f"node-{node}.json", f"noderesourcetopology-{node}.json"
        self._folder = folder
        self.resources: dict[str, int | None] = {}
        self.annotations: dict[str, str | None] = {}
        self.conditions: dict[str, Mapping[str, str]] = {}
        """Conditions by type, as the changes have them."""
        self.topology: objects.NRTObject | None = None
        if folder is not None:
            ours = _read(folder / self._node, _ours, _UNPUBLISHED) or ({}, {}, {})
            self.resources, self.annotations, self.conditions = ours
            self.topology = _read(folder / self._topology, msgspec.json.Decoder(objects.NRTObject).decode, _UNPUBLISHED)

    def publish(
        self, changes: Iterable[ClusterChange], *, node: objects.NodeObject, topology: objects.NRTObject | None
    ) -> None:
        """Apply the changes and write the objects they touch whole; `node` and `topology` are what others wrote.
        OSError when they cannot be written: then none of the changes holds."""
        changes = tuple(changes)
        before = dict(self.resources), dict(self.annotations), dict(self.conditions), self.topology
        for change in changes:
            if isinstance(change, NodeChange):
                self.resources |= change.amounts
                self.annotations |= change.annotations
                self.conditions |= {each["type"]: each for each in change.conditions}
            elif isinstance(change, TopologyPart):
                # v1alpha1 of a manifest has no place for attributes; what is published does.
                base = structs.replace(topology, api_version=NRT) if topology else new_topology(node)
                self.topology = change.onto(self.topology or base)
        if self._folder is None:
            return
        try:
            self._write(self._folder, changes, node)
        except OSError:
            # What is not on disk was not published: the next tick has to see that, and try again.
            self.resources, self.annotations, self.conditions, self.topology = before
            raise

    def over_node(self, obj: objects.NodeObject) -> objects.NodeObject:
        """The node with what was published for it; the same object when nothing was."""
        if self.resources:
            capacity, allocatable = self._over(obj.status.capacity), self._over(obj.status.allocatable)
            status = structs.replace(obj.status, capacity=capacity, allocatable=allocatable)
            obj = structs.replace(obj, status=status)
        if self.conditions:
            theirs = [each for each in obj.status.conditions or () if each.type not in self.conditions]
            ours = [each for each in self.conditions.values() if "status" in each]
            conditions = (*theirs, *(msgspec.convert(each, objects.Condition) for each in ours))
            obj = structs.replace(obj, status=structs.replace(obj.status, conditions=conditions))
        return self._noted(obj, {}) if self.annotations else obj

    def _noted(self, obj: objects.NodeObject, more: dict[str, str]) -> objects.NodeObject:
        theirs = {key: text for key, text in (obj.metadata.annotations or {}).items() if key not in self.annotations}
        ours = {key: text for key, text in self.annotations.items() if text is not None}
        return structs.replace(obj, metadata=structs.replace(obj.metadata, annotations=theirs | ours | more))

    def _over(self, amounts: Resources | None) -> Resources:
        theirs = {name: amount for name, amount in (amounts or {}).items() if name not in self.resources}
        return theirs | {name: str(amount) for name, amount in self.resources.items() if amount is not None}

    def _write(self, folder: Path, changes: tuple[ClusterChange, ...], node: objects.NodeObject) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(isinstance(change, NodeChange) for change in changes):
            ours = {OURS: _text(self.resources)}
            ours |= {OUR_ANNOTATIONS: _text(self.annotations)} if self.annotations else {}
            whole = self._noted(self.over_node(node), ours)
            _replace(folder / self._node, {"apiVersion": "v1", "kind": "Node", **msgspec.to_builtins(whole)})
        if self.topology is not None and any(not isinstance(change, NodeChange) for change in changes):
            head = {"apiVersion": NRT, "kind": "NodeResourceTopology"}
            _replace(folder / self._topology, {**msgspec.to_builtins(self.topology), **head})


class EvictionRecord:
    """Eviction objects in a file, and the pods that are on their way out because of them.

    Nothing deletes a pod here: the record stands for it.

    An evicted pod shows a deletion time for as long as its manifest is there: whoever keeps the folder takes it away,
    or gives it another uid when it comes back.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder else None
        self._deleted: dict[str, str] = {}
        self._leaving = LeavingPods()

    def add(self, pod: EvictPod, *, taken_at: str) -> None:
        """Record an eviction; OSError when it cannot be written, InputError when an earlier record cannot be read."""
        if pod.uid in self._deleted:
            return
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # As it would be posted, with the words of its event.
            notes, options = {"koordlite.io/eviction-reason": pod.reason}, {"preconditions": {"uid": pod.uid}}
            eviction = evictions.eviction(pod.namespace, pod.name, options, notes)
            eviction["metadata"]["creationTimestamp"] = taken_at
            decode, meanwhile = msgspec.json.Decoder(_Items).decode, "until then no pod is evicted"
            items = _read(self._path, decode, meanwhile, UNREADABLE) or _Items()
            _replace(self._path, {"apiVersion": "v1", "kind": "List", "items": [*items.items, eviction]})
        self._deleted[pod.uid] = taken_at

    def shown(self, pods: Iterable[objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods with a deletion time where they were evicted; the others stay the same objects."""
        return self._leaving.marked(pods, self._deleted)


class LeavingPods:
    """Pods with the deletion time that the API server gives one on its way out. Unchanged pods keep their identity."""

    def __init__(self) -> None:
        self._marked: dict[str, tuple[objects.PodObject, objects.PodObject]] = {}

    def marked(self, pods: Iterable[objects.PodObject], deleted_at: Mapping[str, str]) -> tuple[objects.PodObject, ...]:
        """All of the pods, those named by uid in `deleted_at` with that time."""
        pods = tuple(pods)
        for pod in pods:
            uid = pod.metadata.uid
            if uid in deleted_at and (uid not in self._marked or self._marked[uid][0] is not pod):
                metadata = structs.replace(pod.metadata, deletion_timestamp=deleted_at[uid])
                self._marked[uid] = pod, structs.replace(pod, metadata=metadata)
        return tuple(self._marked[pod.metadata.uid][1] if pod.metadata.uid in deleted_at else pod for pod in pods)


class _Items(msgspec.Struct):
    items: list[dict[str, object]] = []


_UNPUBLISHED = "until then nothing is published"


def _read(
    path: Path,
    decode: Callable[[bytes], T],
    meanwhile: str,
    unreadable: tuple[type[Exception], ...] = (OSError, *UNREADABLE),
) -> T | None:
    """None when there is no file; InputError for errors of these types."""
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except unreadable as error:
        raise InputError(Problem(str(path), "content", "", str(error), f"remove the file; {meanwhile}")) from error


def _ours(raw: bytes) -> tuple[dict[str, int | None], dict[str, str | None], dict[str, Mapping[str, str]]]:
    node = msgspec.json.decode(raw, type=objects.NodeObject)
    notes, conditions = node.metadata.annotations or {}, node.status.conditions or ()
    return (
        msgspec.json.decode(notes.get(OURS, "{}"), type=dict[str, int | None]),
        msgspec.json.decode(notes.get(OUR_ANNOTATIONS, "{}"), type=dict[str, str | None]),
        {c.type: {"type": c.type, "status": c.status} for c in conditions if c.type == keys.CPU_CONTENTION},
    )


def _text(ours: object) -> str:
    return msgspec.json.encode(ours).decode()


def new_topology(node: objects.NodeObject) -> objects.NRTObject:
    """An object that goes when the node goes, as Koordinator makes it."""
    metadata = objects.ObjectMeta(name=node.metadata.name, labels=keys.MADE_BY, owner_references=(node.as_owner,))
    return objects.NRTObject(api_version=NRT, metadata=metadata, topology_policies=("None",))


def _replace(path: Path, content: object) -> None:
    """Readers see the old file or the new one, never half of it."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(text + b"\n")
    os.replace(fresh, path)
