"""From a client's object to one that may be stored: types, defaults, rules; and what an update may change."""

from __future__ import annotations

from typing import Any

from apiserver import kinds, pods, schema, shapes, status, validation
from apiserver.cluster import CLASSES, Cluster
from apiserver.resources import Resource
from apiserver.store import Object

_NOT_READY = "node.kubernetes.io/not-ready"
_KEPT = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "namespace",
    "name",
)
_BY_STATUS = ("labels", "annotations", "finalizers", "ownerReferences")


def typed(item: Object, resource: Resource, version: str) -> Object:
    """Fields cast to their types; shapes.Mistyped when one does not fit."""
    if resource.schemas is None:
        full: Object = kinds.shape(item["kind"]).cast(item, item["kind"])
        return full
    meta = kinds.META.cast(item["metadata"], f"{resource.kind}.metadata")
    known = resource.schemas[version]
    custom: Object = schema.pruned(schema.defaulted(item, known), known, top=True)
    return custom | {"metadata": meta}


def prepared(item: Object, resource: Resource, cluster: Cluster) -> Object:
    """A new object with defaults and with what the server sets itself."""
    match resource.kind if not resource.custom else "":
        case "Pod":
            item = pods.with_priority(pods.defaulted(item), cluster.store.listed(CLASSES), resource)
        case "Namespace":
            item = _namespace(item)
        case "Node":
            spec = item.get("spec") or {}
            taints = [each for each in spec.get("taints") or () if each["key"] != _NOT_READY]
            item |= {"spec": spec | {"taints": [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]}}
        case "PodDisruptionBudget":
            item = kinds.shape(item["kind"]).cast({**item, "status": {}}, item["kind"])
        case "CustomResourceDefinition":
            item = _definition(item)
        case _:
            item = _without_status(item, resource)
    if resource.has_generation:
        item = item | {"metadata": item["metadata"] | {"generation": 1}}
    return item


def _namespace(item: Object) -> Object:
    label = {"kubernetes.io/metadata.name": item["metadata"].get("name", "")}
    meta = item["metadata"] | {"labels": (item["metadata"].get("labels") or {}) | label}
    return item | {"metadata": meta, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def _definition(item: Object) -> Object:
    spec = item["spec"]
    names = spec["names"]
    names = names | {"singular": names.get("singular") or names["kind"].lower()}
    names |= {"listKind": names.get("listKind") or f"{names['kind']}List"}
    stored = [each["name"] for each in spec["versions"] if each.get("storage")]
    accepted = {"plural": "", "kind": ""}
    return item | {
        "spec": {"conversion": {"strategy": "None"}, **spec, "names": names},
        "status": {"conditions": None, "acceptedNames": accepted, "storedVersions": stored},
    }


def _without_status(item: Object, resource: Resource) -> Object:
    if "status" not in resource.subresources:
        return item
    rest = {key: value for key, value in item.items() if key != "status"}
    return rest if resource.custom else rest | {"status": {}}


def check_new(item: Object, resource: Resource, version: str) -> None:
    """Refused 422 with everything that is wrong with a new object."""
    causes = [*validation.metadata(item), *_kind_causes(item, resource, version)]
    if resource.group == "events.k8s.io":
        causes += validation.strict_event(item)
    _refuse(item, resource, causes)


def check_changed(old: Object, new: Object, resource: Resource, version: str) -> None:
    """Refused 422 with everything that is wrong with a changed object."""
    causes = [*validation.metadata(new), *validation.metadata_update(old, new)]
    causes += _kind_causes(new, resource, version)
    if not resource.custom and new["kind"] in validation.UPDATE_RULES:
        causes += validation.UPDATE_RULES[new["kind"]](old, new)
    if new["kind"] == "Pod" and not resource.custom:
        causes += pods.update_causes(old, new)
    if resource.group == "events.k8s.io":
        causes += validation.strict_event_update(old, new)
    _refuse(new, resource, causes)


def _kind_causes(item: Object, resource: Resource, version: str) -> list[status.Cause]:
    if resource.schemas is not None:
        return list(schema.causes(item, resource.schemas[version]))
    if item["kind"] == "Pod":
        return list(pods.causes(item))
    if item["kind"] == "Event":
        return list(validation.event(item, "reportingController" if resource.group else "reportingComponent"))
    rule = validation.RULES.get(item["kind"])
    return list(rule(item)) if rule else []


def _refuse(item: Object, resource: Resource, causes: list[status.Cause]) -> None:
    if causes:
        group = "" if resource.key == ("", "events") else resource.group
        raise status.invalid(resource.kind, group, item["metadata"].get("name", ""), causes)


def mixed(old: Object, new: Object, resource: Resource, subresource: str) -> Object:
    """What a write through a resource or subresource may change of the new object, the rest of the old one."""
    if subresource == "status":
        new = _through_status(old, new, resource)
    elif "status" in resource.subresources:
        new = _same(new, old, "status")
    meta = {key: value for key, value in new["metadata"].items() if key not in _KEPT}
    meta = {**{key: old["metadata"][key] for key in _KEPT if key in old["metadata"]}, **meta}
    if old["kind"] == "Pod" and not resource.custom:
        new = new | {"spec": pods.with_tolerations(new["spec"])}
    return _counted(old, new | {"metadata": meta}, resource)


def _through_status(old: Object, new: Object, resource: Resource) -> Object:
    result = _same(old, new, "status")
    if resource.custom:
        return result
    meta = {key: value for key, value in old["metadata"].items() if key not in _BY_STATUS}
    return result | {"metadata": meta | {key: new["metadata"][key] for key in _BY_STATUS if key in new["metadata"]}}


def _same(item: Object, source: Object, field: str) -> Object:
    """`item` with `field` of `source`."""
    rest = {key: value for key, value in item.items() if key != field}
    return rest | ({field: source[field]} if field in source else {})


def _counted(old: Object, new: Object, resource: Resource) -> Object:
    """The generation goes up when anything but metadata and status changed."""
    if not resource.has_generation:
        return new
    ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if "status" in resource.subresources else set())
    before, after = ({key: value for key, value in item.items() if key not in ignored} for item in (old, new))
    step = int(before != after)
    return new | {"metadata": new["metadata"] | {"generation": old["metadata"].get("generation", 1) + step}}


def fitting(item: Any, resource: Resource, version: str) -> tuple[Object | None, str]:
    """The cast object, or why a field does not fit."""
    try:
        return typed(item, resource, version), ""
    except shapes.Mistyped as error:
        return None, str(error)
