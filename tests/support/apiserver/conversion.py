"""Between the version a client speaks and the one objects are kept in."""

from __future__ import annotations

from typing import Any

from apiserver import schema
from apiserver.resources import Resource
from apiserver.store import Object

_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""core/v1 name to events.k8s.io name."""
_OMITTED = frozenset({"regarding", "reportingController", "reportingInstance", "note", "reason", "type", "action"})
"""Fields events.k8s.io leaves out when they are empty."""


def shown(item: Object, resource: Resource, version: str) -> Object:
    """A stored object as `version` of `resource` shows it."""
    head = {"kind": resource.kind, "apiVersion": resource.api_version(version)}
    rest = {key: value for key, value in item.items() if key not in head}
    if resource.group == "events.k8s.io":
        rest = {_EVENT_FIELDS.get(key, key): value for key, value in rest.items()}
        rest = {key: value for key, value in rest.items() if value or key not in _OMITTED}
    elif resource.schemas is not None and version != resource.versions[0]:
        rest = schema.pruned(rest, resource.schemas[version], top=True)
    return head | rest


def stored(item: Object, resource: Resource) -> Object:
    """An object of a client as it is kept."""
    if resource.group == "events.k8s.io":
        back = {new: old for old, new in _EVENT_FIELDS.items()}
        item = {back.get(key, key): value for key, value in item.items() if key not in _EVENT_FIELDS or key in back}
        return item | {"apiVersion": "v1", "kind": "Event"}
    return item | {"apiVersion": resource.storage, "kind": resource.kind}


def item_of_list(item: Object, resource: Resource, version: str) -> Object:
    """An object inside a list: built-in kinds leave out kind and apiVersion."""
    full = shown(item, resource, version)
    if resource.custom:
        return full
    return {key: value for key, value in full.items() if key not in ("kind", "apiVersion")}


def bare(item: Any) -> Object:
    """The object without what every write changes, for telling whether a write changes anything."""
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}}
