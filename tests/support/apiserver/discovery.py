"""What is served: versions, groups, resources."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from apiserver import status
from apiserver.resources import Catalog, Resource

_CUSTOM_VERBS = ("delete", "get", "list", "patch", "create", "update", "watch")
_HEALTH = ("healthz", "livez", "readyz")
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2+koordlite",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "koordlite",
    "platform": "linux/amd64",
}
"""Whose behaviour is followed: that of a server of Kubernetes 1.36."""
_SUBRESOURCES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "binding": ("Binding", ("create",), {}),
    "eviction": ("Eviction", ("create",), {"group": "policy", "version": "v1"}),
}


def document(path: str, catalog: Catalog, address: str) -> dict[str, Any] | str | None:
    """The document at a path outside the resources; text for health, None where there is none."""
    parts = [part for part in path.split("/") if part]
    if parts and parts[0] in _HEALTH:
        return "ok" if len(parts) < 3 else None
    match parts:
        case ["version"]:
            found: dict[str, Any] | None = VERSION
        case ["api"]:
            host = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": host}
        case ["apis", *where] if len(where) < 2:
            found = _groups(where, catalog)
        case ["api" | "apis", *where]:
            found = _resources(where, catalog)
        case _:
            found = None
    return found


def _groups(where: list[str], catalog: Catalog) -> dict[str, Any] | None:
    known = catalog.groups()
    if where:
        return _full_group(where[0], known[where[0]]) if where[0] in known else None
    groups = [_group(name, versions) for name, versions in known.items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


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
