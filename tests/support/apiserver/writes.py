"""Create, replace and patch."""

from __future__ import annotations

import json
from typing import Any

from apiserver import (
    admission,
    conversion,
    negotiation,
    patches,
    status,
    strategic,
)
from apiserver.cluster import Cluster, Writing, name_of
from apiserver.requests import Request, Target
from apiserver.resources import Resource
from apiserver.store import Object

_REGISTRY = {"nodes": "minions"}
"""Kinds that etcd keeps under an older name."""
_NEEDED = "must be specified for an update"


def create(cluster: Cluster, resource: Resource, at: Target, sent: Object, how: Writing) -> Object:
    """Store a new object; Refused when it may not be."""
    sent = negotiation.checked_kind(sent, resource, at.version)
    meta = sent["metadata"]
    if resource.namespaced and meta.get("namespace", at.namespace) != at.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    item, why = admission.fitting(conversion.stored(sent, resource), resource, at.version)
    if item is None:
        raise negotiation.unfit(resource, at.version, why)
    item = _identified(cluster, resource, item, at)
    cluster.check_namespace(resource, at.namespace, item["metadata"].get("name", ""))
    if meta.get("resourceVersion"):
        raise status.internal("resourceVersion should not be set on objects to be created")
    item = admission.prepared(item, resource, cluster)
    admission.check_new(item, resource, at.version)
    if cluster.store.get(resource.key, name_of(item)) is not None:
        raise status.already_exists(resource, item["metadata"]["name"])
    return item if how.dry else cluster.store.write(resource.key, name_of(item), item)


def _identified(cluster: Cluster, resource: Resource, item: Object, at: Target) -> Object:
    """The object with what only the server may say."""
    dropped = ("uid", "resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields")
    meta = {key: value for key, value in item["metadata"].items() if key not in dropped}
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = cluster.generated(meta["generateName"])
    if resource.namespaced:
        meta["namespace"] = at.namespace
    return item | {"metadata": meta | {"uid": cluster.uid(), "creationTimestamp": cluster.now()}}


def replace(cluster: Cluster, resource: Resource, at: Target, sent: Object, how: Writing) -> tuple[Object, bool]:
    """PUT: the object, and whether it is new."""
    sent = negotiation.checked_kind(sent, resource, at.version)
    new, why = admission.fitting(conversion.stored(sent, resource), resource, at.version)
    if new is None:
        raise negotiation.unfit(resource, at.version, why)
    _check_names(new["metadata"], resource, at)
    old = cluster.store.get(resource.key, (at.namespace, at.name))
    # A uid is a precondition, which is looked at before anything else: also of an object that has gone.
    known = old["metadata"]["uid"] if old else ""
    if new["metadata"].get("uid", known) != known:
        raise status.conflict(resource, at.name, _other_uid(resource, at, new["metadata"]["uid"], known))
    if old is None:
        if not resource.creates_on_update:
            raise status.not_found(resource, at.name)
        meta = {key: value for key, value in sent["metadata"].items() if key != "resourceVersion"}
        return create(cluster, resource, at, sent | {"metadata": meta}, how), True
    _check_version(new["metadata"], old, resource)
    return change(cluster, resource, at, (old, new), how), False


def _check_names(meta: Any, resource: Resource, at: Target) -> None:
    name = meta.get("name", "")
    if not name:
        raise status.bad_request(
            f"the name of the object ({at.name} based on URL) was undeterminable: name must be provided"
        )
    if name != at.name:
        raise status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({at.name})")
    namespace = meta.get("namespace") or at.namespace
    if resource.namespaced and namespace != at.namespace:
        raise status.bad_request(
            f"the namespace of the object ({namespace}) does not match the namespace on the request ({at.namespace})"
        )


def _check_version(meta: Any, old: Object, resource: Resource) -> None:
    asked = meta.get("resourceVersion") or ""
    if not asked:
        if resource.needs_version:
            cause = status.Cause("FieldValueInvalid", f"Invalid value: 0: {_NEEDED}", "metadata.resourceVersion")
            raise status.invalid(resource.plural, resource.group, old["metadata"]["name"], [cause])
        return
    if not (asked.isascii() and asked.isdecimal()):
        raise status.internal(f'strconv.ParseUint: parsing "{asked}": invalid syntax')
    if asked != old["metadata"]["resourceVersion"]:
        raise status.conflict(resource, old["metadata"]["name"])


def _other_uid(resource: Resource, at: Target, given: str, known: str) -> str:
    group = resource.group if resource.custom else ""
    kept = _REGISTRY.get(resource.plural, resource.plural)
    path = "/".join(part for part in (group, kept, at.namespace, at.name) if part)
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {known}"
    )


def change(cluster: Cluster, resource: Resource, at: Target, states: tuple[Object, Object], how: Writing) -> Object:
    """Store the second state in place of the first, as far as the resource or subresource may change it."""
    old, sent = states
    new = admission.mixed(old, sent, resource, at.subresource)
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    admission.check_changed(old, new, resource, at.version)
    return settle(cluster, resource, old, new, how)


def settle(cluster: Cluster, resource: Resource, old: Object, new: Object, how: Writing) -> Object:
    """Write a changed object. One that is the same is not written; the last finalizer's removal deletes."""
    if conversion.bare(old) == conversion.bare(new):
        return old
    if how.dry:
        return new
    if _is_released(old, new):
        cluster.store.write(resource.key, name_of(old), None)
        return new
    return cluster.store.write(resource.key, name_of(old), new)


def _is_released(old: Object, new: Object) -> bool:
    """Whether the object was only held by finalizers, and the last one is gone."""
    meta = new["metadata"]
    held = old["metadata"].get("finalizers")
    graceless = meta.get("deletionGracePeriodSeconds", 0) == 0
    return bool(meta.get("deletionTimestamp") and held and not meta.get("finalizers") and graceless)


def patch(cluster: Cluster, resource: Resource, at: Target, request: Request, how: Writing) -> Object:
    """PATCH with a merge patch, as our clients send it, or a strategic one, as kubectl does; no others are served."""
    media = negotiation.sent_media(request)
    if media == patches.STRATEGIC and resource.custom:
        listed = f"application/json-patch+json, {patches.MERGE}, application/apply-patch+yaml"
        message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
        raise status.unsupported_media(message)
    if media not in (patches.MERGE, patches.STRATEGIC):
        raise status.unsupported_media("415: Unsupported Media Type", routed=False)
    try:
        content = json.loads(request.body)
    except ValueError as error:
        raise status.bad_request("error decoding patch: unexpected end of JSON input") from error
    if not isinstance(content, dict):
        kind = "array" if isinstance(content, list) else type(content).__name__
        why = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        raise status.bad_request(f"error decoding patch: {why}")
    old = cluster.require(resource, (at.namespace, at.name))
    shown = conversion.shown(old, resource, at.version)
    try:
        new = patches.merged(shown, content) if media == patches.MERGE else strategic.merged(shown, content)
    except strategic.NoMergeKey as error:
        raise status.internal(str(error)) from error
    return change(cluster, resource, at, (old, _checked(new, shown, resource, at)), how)


def _checked(patched: Object, shown: Object, resource: Resource, at: Target) -> Object:
    """The patched object in its types; Refused when the patch made something else of it."""
    if any(patched.get(key) != shown[key] for key in ("kind", "apiVersion")):
        named = f'no kind "{patched.get("kind")}" is registered for version "{patched.get("apiVersion")}"'
        raise _unfit_patch(patched, named)
    whole = patched if patched.get("metadata") else patched | {"metadata": {}}
    new, why = admission.fitting(conversion.stored(whole, resource), resource, at.version)
    if new is None:
        raise _unfit_patch(patched, why)
    _check_names(new["metadata"], resource, at)
    _check_version(new["metadata"], shown, resource)
    uid = new["metadata"].get("uid")
    if uid != shown["metadata"]["uid"]:
        # The API server finds this twice: as metadata of any object, and again as metadata of the kind.
        cause = status.wrong("metadata.uid", uid, "field is immutable")
        raise status.invalid(resource.kind, resource.group, at.name, [cause, cause])
    return new


def _unfit_patch(patched: Any, why: str) -> status.Refused:
    text = json.dumps(patched, separators=(",", ":"))
    return status.invalid("", "", "", [status.wrong("patch", text.replace('"', '\\"'), why)])
