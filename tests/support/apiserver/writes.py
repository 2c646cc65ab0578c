"""Create, replace and patch."""

from __future__ import annotations

import json
from typing import Any

import yaml

from apiserver import (
    admission,
    conversion,
    kinds,
    managed,
    negotiation,
    patches,
    shapes,
    status,
    strategic,
)
from apiserver.cluster import Cluster, Writing, name_of
from apiserver.requests import Request, Target
from apiserver.resources import Resource
from apiserver.store import Object

_REJECTED = "the server rejected our request due to an error in our request"
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
    item = managed.updated(None, item, _manager(how, resource, at), cluster.now(), custom=resource.custom)
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


def _manager(how: Writing, resource: Resource, at: Target, operation: str = "Update") -> managed.Manager:
    subresource = at.subresource if at.subresource == "status" else ""
    return managed.Manager(how.manager, operation, resource.api_version(at.version), subresource)


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
            cause = status.Cause("FieldValueInvalid", f"Invalid value: 0x0: {_NEEDED}", "metadata.resourceVersion")
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
    new = managed.updated(old, new, _manager(how, resource, at), cluster.now(), custom=resource.custom)
    return settle(cluster, resource, old, new, how)


def settle(cluster: Cluster, resource: Resource, old: Object, new: Object, how: Writing) -> Object:
    """Write a changed object. One that is the same is not written; the last finalizer's removal deletes."""
    if conversion.bare(old) == conversion.bare(new):
        same_owners = old["metadata"].get("managedFields") == new["metadata"].get("managedFields")
        if same_owners or not _applies(new):
            return old
    if how.dry:
        return new
    if _is_released(old, new):
        cluster.store.write(resource.key, name_of(old), None)
        return new
    return cluster.store.write(resource.key, name_of(old), new)


def _applies(item: Object) -> bool:
    return any(each.get("operation") == "Apply" for each in item["metadata"].get("managedFields") or ())


def _is_released(old: Object, new: Object) -> bool:
    """Whether the object was only held by finalizers, and the last one is gone."""
    meta = new["metadata"]
    held = old["metadata"].get("finalizers")
    graceless = meta.get("deletionGracePeriodSeconds", 0) == 0
    return bool(meta.get("deletionTimestamp") and held and not meta.get("finalizers") and graceless)


def patch(cluster: Cluster, resource: Resource, at: Target, request: Request, how: Writing) -> tuple[Object, bool]:
    """PATCH: the object, and whether it is new (server-side apply may create)."""
    media = negotiation.sent_media(request)
    known = (patches.JSON, patches.MERGE, patches.APPLY) + (() if resource.custom else (patches.STRATEGIC,))
    if media == patches.STRATEGIC and resource.custom:
        listed = ", ".join(known)
        message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
        raise status.unsupported_media(message)
    if media not in known:
        raise status.unsupported_media("415: Unsupported Media Type", routed=False)
    if media == patches.APPLY:
        return _apply(cluster, resource, at, request, how)
    content = _content(request.body, media)
    old = cluster.require(resource, (at.namespace, at.name))
    shown = conversion.shown(old, resource, at.version)
    new = _checked(_patched(shown, content, media), shown, resource, at)
    return change(cluster, resource, at, (old, new), how), False


def _content(body: bytes, media: str) -> Any:
    try:
        content = json.loads(body)
    except ValueError as error:
        raise status.bad_request("Invalid JSON Patch") from error
    if media == patches.JSON and not isinstance(content, list):
        raise status.bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    return content


def _patched(shown: Object, content: Any, media: str) -> Any:
    if media == patches.MERGE:
        return patches.merged(shown, content)
    try:
        return patches.edited(shown, content) if media == patches.JSON else strategic.merged(shown, content)
    except patches.Unpatchable as error:
        raise status.Refused(422, _REJECTED, reason="Invalid", details={}) from error
    except strategic.NoMergeKey as error:
        raise status.internal(str(error)) from error


def _checked(patched: Any, shown: Object, resource: Resource, at: Target) -> Object:
    """The patched object in its types; Refused when the patch made something else of it."""
    if not isinstance(patched, dict):
        raise _unfit_patch(patched, "couldn't get version/kind; json parse error")
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


def _apply(cluster: Cluster, resource: Resource, at: Target, request: Request, how: Writing) -> tuple[Object, bool]:
    config = _configuration(request, resource, at)
    old = cluster.store.get(resource.key, (at.namespace, at.name))
    manager = _manager(how, resource, at, "Apply")
    if old is None:
        item = create(cluster, resource, at, config, Writing(how.manager, dry=True))
        item = managed.applied(_unowned(item), config, manager, cluster.now(), force=True, custom=resource.custom)
        item = admission.typed(item, resource, at.version) if not resource.custom else item
        return item if how.dry else cluster.store.write(resource.key, name_of(item), item), True
    if config["metadata"].get("resourceVersion"):
        _check_version(config["metadata"], old, resource)
    force = request.query.get("force") == "true"
    try:
        new = managed.applied(old, config, manager, cluster.now(), force=force, custom=resource.custom)
    except managed.Conflicts as conflicts:
        raise _disputed(conflicts) from conflicts
    owners = new["metadata"].get("managedFields")
    new = admission.mixed(old, admission.typed(new, resource, at.version), resource, at.subresource)
    new["metadata"] |= {"resourceVersion": old["metadata"]["resourceVersion"], "managedFields": owners}
    admission.check_changed(old, new, resource, at.version)
    return settle(cluster, resource, old, new, how), False


def _unowned(item: Object) -> Object:
    meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return item | {"metadata": meta}


def _configuration(request: Request, resource: Resource, at: Target) -> Object:
    try:
        config = yaml.safe_load(request.body)
    except yaml.YAMLError as error:
        raise status.bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {error}") from error
    config = config if isinstance(config, dict) else {}
    wanted = resource.api_version(at.version)
    if config.get("apiVersion", "") != wanted:
        found = config.get("apiVersion", "")
        raise status.bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: {found}, expected: {wanted}"
        )
    config["metadata"] = config.get("metadata") or {}
    if config["metadata"].get("managedFields") is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    unknown = admission.unknown_field(config, resource)
    if unknown:
        name = config["metadata"].get("name", "")
        group_kind = f"{resource.group}/{at.version}, Kind={resource.kind}"
        where = f"failed to create typed patch object ({config['metadata'].get('namespace', '')}/{name}; {group_kind})"
        raise status.internal(f"{where}: {unknown}: field not declared in schema")
    _check_names({"name": at.name} | config["metadata"], resource, at)
    config["metadata"].setdefault("name", at.name)
    return _cast_configuration(config, resource)


def _cast_configuration(config: Object, resource: Resource) -> Object:
    """Quantities and times as they will be stored, so that the same value is no conflict."""
    if resource.custom:
        return config
    try:
        cast = kinds.shape(resource.kind).cast(config, resource.kind)
    except shapes.Mistyped as error:
        raise status.internal(f"failed to create typed patch object: {error}") from error
    return {key: value for key, value in cast.items() if key in config}


def _disputed(conflicts: managed.Conflicts) -> status.Refused:
    causes = [
        {"reason": "FieldManagerConflict", "message": manager.shown, "field": managed.shown(path)}
        for manager, path in conflicts.found
    ]
    shown = "\n".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    count = len(causes)
    if count == 1:
        message = f"Apply failed with 1 conflict: {shown}"
    else:
        listed = "\n".join(f"- {cause['field']}" for cause in causes)
        message = f"Apply failed with {count} conflicts: {causes[0]['message']}:\n{listed}"
    return status.Refused(409, message, reason="Conflict", details={"causes": causes})
