"""Putting objects into the server from outside HTTP: whole, with their status, as a cluster would have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apiserver import admission, conversion, definitions, kinds, pods, shapes
from apiserver.cluster import INITIAL_NAMESPACES, NAMESPACES, Cluster, name_of
from apiserver.resources import Resource
from apiserver.store import Object
from koordlite.model.errors import InputError, Problem


class Objects:
    """What is stored, for tests and for setting a scene. Nothing here asks for permission or validates."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        for name in INITIAL_NAMESPACES:
            self._namespace(name)

    def load(self, *items: Mapping[str, Any]) -> list[Object]:
        """Store objects, creating or replacing; a List gives its items. InputError for an unknown kind."""
        with self._cluster.store.lock:
            return [self._load(each) for item in items for each in _each(item)]

    def get(self, kind: str, name: str, namespace: str = "", *, api_version: str = "") -> Object | None:
        """One object as it is now."""
        return self._cluster.store.get(self._resource(api_version, kind).key, (namespace, name))

    def all(self, kind: str, *, api_version: str = "") -> list[Object]:
        """All objects of a kind, by namespace and name."""
        return self._cluster.store.listed(self._resource(api_version, kind).key)

    def remove(self, kind: str, name: str, namespace: str = "", *, api_version: str = "") -> None:
        """Take an object away at once, as if its last finalizer had gone."""
        with self._cluster.store.lock:
            key = self._resource(api_version, kind).key
            if self._cluster.store.get(key, (namespace, name)) is not None:
                self._cluster.store.write(key, (namespace, name), None)
            if kind == "CustomResourceDefinition":
                definitions.follow(self._cluster)

    def _load(self, item: Mapping[str, Any]) -> Object:
        resource = self._resource(str(item.get("apiVersion", "")), str(item.get("kind", "")))
        metadata = item.get("metadata")
        if not isinstance(metadata, Mapping) or not metadata.get("name"):
            do = "give it a name: nobody here makes one up"
            raise InputError(Problem(resource.kind, "metadata.name", "", "the object has no name", do))
        stored = conversion.stored(dict(item) | {"metadata": dict(item.get("metadata") or {})}, resource)
        try:
            full = self._completed(stored, resource)
        except shapes.Mistyped as error:
            where = f"{resource.kind} {stored['metadata'].get('name')}"
            raise InputError(Problem(where, "fields", "", str(error), "write it as the API reference says")) from error
        known = self._cluster.store.get(resource.key, name_of(full))
        if known is not None and conversion.bare(known) == conversion.bare(full):
            return known
        written = self._cluster.store.write(resource.key, name_of(full), full)
        if resource.kind == "CustomResourceDefinition":
            definitions.establish(self._cluster, name_of(full))
        return written

    def _completed(self, item: Object, resource: Resource) -> Object:
        """The object with what the server would have filled in; its status stays."""
        if resource.kind == "Pod":
            cast = kinds.shape("Pod").cast(item, "Pod")
            full = pods.with_tolerations(pods.defaulted(cast)["spec"])
            status = {"phase": "Pending", "qosClass": pods.qos_class(full), **cast["status"]}
            item = cast | {
                "spec": {"priority": 0, "preemptionPolicy": "PreemptLowerPriority", **full},
                "status": status,
            }
        elif resource.kind in ("Namespace", "CustomResourceDefinition"):
            item = admission.prepared(item, resource, self._cluster)
        if resource.schemas is None:
            writers = item["metadata"].get("managedFields")
            item = kinds.shape(resource.kind).cast(item, resource.kind)
            item = item | {"metadata": {**item["metadata"], **({"managedFields": writers} if writers else {})}}
        return self._identified(item, resource)

    def _identified(self, item: Object, resource: Resource) -> Object:
        meta = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
        if resource.namespaced:
            meta.setdefault("namespace", "default")
            self._namespace(meta["namespace"])
        known = self._cluster.store.get(resource.key, (meta.get("namespace", ""), meta["name"]))
        was = known["metadata"] if known else {"uid": self._cluster.uid(), "creationTimestamp": self._cluster.now()}
        if resource.has_generation:
            meta.setdefault("generation", was.get("generation", 1))
        return item | {"metadata": {"uid": was["uid"], "creationTimestamp": was["creationTimestamp"], **meta}}

    def _namespace(self, name: str) -> None:
        if self._cluster.store.get(NAMESPACES, ("", name)) is None:
            self._load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def _resource(self, api_version: str, kind: str) -> Resource:
        catalog = self._cluster.catalog
        found = catalog.of_kind(api_version, kind) if api_version else None
        if found is None and not api_version:
            found = next((each for each in catalog.all() if each.kind == kind), None)
        if found is None:
            do = "load its CustomResourceDefinition first, or correct apiVersion and kind"
            raise InputError(Problem("object", "kind", f"{api_version} {kind}", "no such kind is served", do))
        return found


def _each(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if str(item.get("kind", "")).endswith("List") and "items" in item:
        yield from item["items"] or ()
    else:
        yield item
