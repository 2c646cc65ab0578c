"""The state all handlers share: objects, served kinds, time, names that nobody else has."""

from __future__ import annotations

import dataclasses
import random
import uuid
from typing import Any

from apiserver import status
from apiserver.clocks import Clock, stamp
from apiserver.resources import Catalog, Resource
from apiserver.store import Object, Store

_PREFIX_CHARACTERS = 58
"""So much of a prefix is used: with the five characters, a label's length."""
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
NAMESPACES = ("", "namespaces")
PODS = ("", "pods")
NODES = ("", "nodes")
BUDGETS = ("policy", "poddisruptionbudgets")
CLASSES = ("scheduling.k8s.io", "priorityclasses")
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
INITIAL_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


@dataclasses.dataclass(frozen=True, slots=True)
class Writing:
    """How a write is to be done."""

    dry: bool = False


class Cluster:
    """Objects, kinds and time. `seed` makes uids and generated names the same in every run."""

    def __init__(self, store: Store, clock: Clock, *, seed: int | None = None, streams: bool = True) -> None:
        self.store, self.clock, self.catalog, self.streams = store, clock, Catalog(), streams
        # Names must only be unlike each other, never unguessable.
        self._random = random.Random(seed)

    def uid(self) -> str:
        """A uid that no object has had."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def generated(self, prefix: str) -> str:
        """`prefix` with five characters, as generateName makes names."""
        return prefix[:_PREFIX_CHARACTERS] + "".join(self._random.choice(_SUFFIX) for _ in range(5))

    def shuffled(self, items: list[Object]) -> list[Object]:
        """`items` in some order: lists from the watch cache have none."""
        return self._random.sample(items, len(items))

    def now(self) -> str:
        """This moment as objects write it."""
        return stamp(self.clock.now())

    def require(self, resource: Resource, name: tuple[str, str]) -> Object:
        """The object; Refused 404."""
        found = self.store.get(resource.key, name)
        if found is None:
            raise status.not_found(resource, name[1])
        return found

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Refused unless something may be created in the namespace (NamespaceLifecycle)."""
        if not resource.namespaced:
            return
        known = self.store.get(NAMESPACES, ("", namespace))
        if known is None:
            namespaces = self.catalog.of("", "v1", "namespaces")
            assert namespaces is not None, "namespaces are built in"
            raise status.not_found(namespaces, namespace)
        if known["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            raise status.forbidden(resource, name, why, [cause | {"field": "metadata.namespace"}])


def name_of(item: dict[str, Any]) -> tuple[str, str]:
    """Namespace and name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
