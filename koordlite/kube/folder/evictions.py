"""Evictions where the cluster is a folder: nothing deletes the pod there, so the record stands for it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import structs

from koordlite.changes.eviction import EvictPod
from koordlite.model.errors import UNREADABLE, InputError, Problem
from koordlite.model.wire import objects

FILE = "evictions.json"


class EvictionRecord:
    """Eviction objects in a file, and the pods that are on their way out because of them.

    An evicted pod shows a deletion time for as long as its manifest is there: whoever keeps the folder takes it away,
    or gives it another uid when it comes back.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder else None
        self._deleted: dict[str, str] = {}
        self._shown: dict[str, tuple[objects.PodObject, objects.PodObject]] = {}

    def add(self, pod: EvictPod, *, taken_at: str) -> None:
        """Record an eviction; OSError when it cannot be written, InputError when an earlier record cannot be read."""
        if pod.uid in self._deleted:
            return
        if self._path is not None:
            self._append(self._path, _eviction(pod, taken_at))
        self._deleted[pod.uid] = taken_at

    def shown(self, pods: Iterable[objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods with a deletion time where they were evicted; the others stay the same objects."""
        return tuple(self._marked(pod) for pod in pods)

    def _marked(self, pod: objects.PodObject) -> objects.PodObject:
        uid = pod.metadata.uid
        if uid not in self._deleted:
            return pod
        known = self._shown.get(uid)
        if known is None or known[0] is not pod:
            metadata = structs.replace(pod.metadata, deletion_timestamp=self._deleted[uid])
            known = self._shown[uid] = (pod, structs.replace(pod, metadata=metadata))
        return known[1]

    def _append(self, path: Path, eviction: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {"apiVersion": "v1", "kind": "List", "items": [*_read(path), eviction]}
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
        os.replace(fresh, path)


class _Items(msgspec.Struct):
    items: list[dict[str, object]] = []


def _read(path: Path) -> list[dict[str, object]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Items).items
    except FileNotFoundError:
        return []
    except UNREADABLE as error:
        do = "remove the file; until then no pod is evicted"
        raise InputError(Problem(str(path), "content", "", str(error), do)) from error


def _eviction(pod: EvictPod, taken_at: str) -> dict[str, object]:
    """As it would be posted, with what an event would say."""
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "creationTimestamp": taken_at,
        "annotations": {"koordlite.io/eviction-reason": pod.reason},
    }
    options = {"preconditions": {"uid": pod.uid}}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
