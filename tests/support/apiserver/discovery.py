"""What is served: versions, groups, resources, and just enough OpenAPI for kubectl."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from apiserver import status
from apiserver.resources import Catalog, Resource
from koordlite import __version__

_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_HEALTH = ("healthz", "livez", "readyz")
VERSION = {
    "major": "1",
    "minor": "23",
    "gitVersion": "v1.23.4+koordlite",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "koordlite " + __version__,
    "platform": "linux/amd64",
}
"""Whose behaviour is followed: that of a server of Kubernetes 1.23."""
_SUBRESOURCES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "binding": ("Binding", ("create",), {}),
    "eviction": ("Eviction", ("create",), {"group": "policy", "version": "v1"}),
    "log": ("", ("get",), {}),
    "finalize": ("", ("update",), {}),
}


def document(path: str, catalog: Catalog, address: str) -> dict[str, Any] | str | None:
    """The document at a path outside the resources; text for health, None where there is none."""
    parts = [part for part in path.split("/") if part]
    if parts and parts[0] in _HEALTH:
        return "ok" if len(parts) < 3 else None
    match parts:
        case []:
            found: dict[str, Any] | None = {"paths": _paths(catalog)}
        case ["version"]:
            found = VERSION
        case ["api"]:
            host = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": host}
        case ["apis", *where] if len(where) < 2:
            found = _groups(where, catalog)
        case ["api" | "apis", *where]:
            found = _resources(where, catalog)
        case ["openapi", "v3", *below]:
            found = _openapi(below, catalog)
        case _:
            found = None
    return found


def _groups(where: list[str], catalog: Catalog) -> dict[str, Any] | None:
    known = catalog.groups()
    if where:
        return _full_group(where[0], known[where[0]]) if where[0] in known else None
    groups = [_group(name, versions) for name, versions in known.items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def verbose_health(word: str) -> str:
    """What ?verbose answers."""
    return f"[+]ping ok\n{word} check passed\n"


def _paths(catalog: Catalog) -> list[str]:
    found = ["/api", "/api/v1", "/apis", "/apis/", *(f"/{word}" for word in _HEALTH), "/openapi/v3", "/version"]
    for group, versions in catalog.groups().items():
        found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    return sorted(found)


def _group(name: str, versions: tuple[str, ...]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _full_group(name: str, versions: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _resources(where: list[str], catalog: Catalog) -> dict[str, Any] | None:
    group, version = ("", where[0]) if len(where) == 1 else (where[0], where[1])
    if group and group not in catalog.groups():
        return None
    found = [each for each in catalog.all() if each.group == group and version in each.versions]
    if not found:
        raise status.no_resource()
    head = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {})}
    listed = [entry for each in sorted(found, key=lambda each: each.plural) for entry in _entries(each)]
    return head | {"groupVersion": f"{group}/{version}" if group else version, "resources": listed}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    verbs = _CUSTOM_VERBS if resource.custom else resource.verbs
    entry = _entry(resource.plural, resource, resource.kind, verbs) | {"singularName": resource.singular}
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "watch" in resource.verbs:
        entry["storageVersionHash"] = _storage_hash(resource)
    return [entry, *(_below(resource, name) for name in sorted(resource.subresources))]


def _storage_hash(resource: Resource) -> str:
    text = f"{resource.group}/{resource.versions[0]}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _entry(name: str, resource: Resource, kind: str, verbs: tuple[str, ...]) -> dict[str, Any]:
    return {"name": name, "singularName": "", "namespaced": resource.namespaced, "kind": kind, "verbs": list(verbs)}


def _below(resource: Resource, name: str) -> dict[str, Any]:
    kind, verbs, more = _SUBRESOURCES.get(name, (resource.kind, ("get", "patch", "update"), {}))
    return _entry(f"{resource.plural}/{name}", resource, kind or resource.kind, verbs) | more


def _openapi(below: list[str], catalog: Catalog) -> dict[str, Any] | None:
    """An index, or a document with no more than the kinds and that PATCH takes fieldValidation."""
    if not below:
        roots = ["api/v1", *(f"apis/{group}/{each}" for group, found in catalog.groups().items() for each in found)]
        return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash=0"} for root in roots}}
    group, version = ("", below[-1]) if below[0] == "api" else (below[1], below[-1])
    found = [each for each in catalog.all() if each.group == group and version in each.versions]
    info = {"title": "koordlite sandbox", "version": __version__}
    paths = {f"/{'/'.join(below)}/{each.plural}/{{name}}": {"patch": _operation(each, version)} for each in found}
    schemas = {f"{group or 'core'}.{version}.{each.kind}": _loose(each, version) for each in found}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _operation(resource: Resource, version: str) -> dict[str, Any]:
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    return {"parameters": [parameter], "x-kubernetes-group-version-kind": kind, "responses": {}}


def _loose(resource: Resource, version: str) -> dict[str, Any]:
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-group-version-kind": [kind]}
