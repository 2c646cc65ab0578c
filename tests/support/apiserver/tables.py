"""Answers in another form: tables for people, and metadata alone (Kubernetes "API Concepts", Table)."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from apiserver import pods
from apiserver.cluster import Cluster
from apiserver.resources import Resource
from apiserver.store import Object

META = "meta.k8s.io/v1"
Cells = Callable[[Object, str], list[Any]]

_NONE, _UNKNOWN = "<none>", "<unknown>"
_READABLE = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"))


def metadata_only(item: Object) -> Object:
    """The object's metadata as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": item["metadata"]}


def table(items: list[Object], head: Object, resource: Resource, cluster: Cluster, include: str) -> Object:
    """A Table with one row an object."""
    columns, cells = _TABLES.get(resource.kind, (_PLAIN, _plain))
    if resource.custom:
        columns, cells = _CUSTOM, _plain
    rows = []
    for item in items:
        row: Object = {"cells": cells(item, _age(item, cluster))}
        if resource.kind == "Pod" and pods.is_over(item):
            row["conditions"] = [_completed(item["status"]["phase"])]
        rows.append(row | {"object": _included(item, include)})
    return {"kind": "Table", "apiVersion": META, "metadata": head, "columnDefinitions": columns, "rows": rows}


def _included(item: Object, include: str) -> Object | None:
    if include == "None":
        return None
    return item if include == "Object" else metadata_only(item)


def _completed(phase: str) -> Object:
    message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return {"type": "Completed", "status": "True", "reason": phase, "message": message}


def _age(item: Object, cluster: Cluster) -> str:
    created = item["metadata"].get("creationTimestamp")
    if not created:
        return _UNKNOWN
    return duration((cluster.clock.now() - datetime.datetime.fromisoformat(created)).total_seconds())


def duration(seconds: float) -> str:
    """A time span in one or two units."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 600:
        return f"{whole // 60}m" + (f"{whole % 60}s" if whole % 60 else "")
    size, unit = next((size, unit) for size, unit in _READABLE if whole >= 2 * size or unit == "m")
    return f"{whole // size}{unit}"


def _column(name: str, *, kind: str = "string", form: str = "", priority: int = 0) -> Object:
    texts = {"Name": "Name of the object, unique within its namespace.", "Age": "Time since the object was created."}
    text = texts.get(name, f"{name} of the object.")
    return {"name": name, "type": kind, "format": form, "description": text, "priority": priority}


def _columns(*names: str, wide: tuple[str, ...] = ()) -> list[Object]:
    first = [_column("Name", form="name"), *(_column(name) for name in names)]
    return first + [_column(name, priority=1) for name in wide]


_PLAIN = _columns("Age")
_CUSTOM = [_column("Name", form="name"), _column("Age", kind="date")]


def _plain(item: Object, age: str) -> list[Any]:
    return [item["metadata"]["name"], age]


def _config_map(item: Object, age: str) -> list[Any]:
    return [item["metadata"]["name"], len(item.get("data") or {}) + len(item.get("binaryData") or {}), age]


def _pod(item: Object, age: str) -> list[Any]:
    spec, status = item["spec"], item["status"]
    containers = status.get("containerStatuses") or ()
    ready = sum(bool(each.get("ready")) for each in containers)
    restarts = sum(each.get("restartCount", 0) for each in containers)
    phase = "Terminating" if item["metadata"].get("deletionTimestamp") else status.get("reason") or status.get("phase")
    cells = [item["metadata"]["name"], f"{ready}/{len(spec.get('containers') or ())}", phase, str(restarts), age]
    nominated = status.get("nominatedNodeName") or _NONE
    return [*cells, status.get("podIP") or _NONE, spec.get("nodeName") or _NONE, nominated, _NONE]


def _node(item: Object, age: str) -> list[Any]:
    status, labels = item["status"], item["metadata"].get("labels") or {}
    ready = next((each for each in status.get("conditions") or () if each["type"] == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"]
    if item["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or _NONE
    info = status["nodeInfo"]
    addresses = {each.get("type"): each.get("address", "") for each in status.get("addresses") or ()}
    where = [addresses.get(kind, _NONE) for kind in ("InternalIP", "ExternalIP")]
    system = [info.get(key) or _UNKNOWN for key in ("osImage", "kernelVersion", "containerRuntimeVersion")]
    return [item["metadata"]["name"], ",".join(words), roles, age, info.get("kubeletVersion", ""), *where, *system]


def _budget(item: Object, age: str) -> list[Any]:
    spec = item["spec"]
    limits = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [item["metadata"]["name"], *limits, item["status"]["disruptionsAllowed"], age]


def _lease(item: Object, age: str) -> list[Any]:
    return [item["metadata"]["name"], (item.get("spec") or {}).get("holderIdentity") or "", age]


def _namespace(item: Object, age: str) -> list[Any]:
    return [item["metadata"]["name"], item["status"].get("phase", ""), age]


def _event(item: Object, age: str) -> list[Any]:
    involved = item.get("involvedObject") or item.get("regarding") or {}
    subject = f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"
    return [age, item.get("type", ""), item.get("reason", ""), subject, item.get("message") or item.get("note") or ""]


_POD_WIDE = ("IP", "Node", "Nominated Node", "Readiness Gates")
_NODE_WIDE = ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")
_TABLES: dict[str, tuple[list[Object], Cells]] = {
    "ConfigMap": (_columns("Data", "Age"), _config_map),
    "Pod": (_columns("Ready", "Status", "Restarts", "Age", wide=_POD_WIDE), _pod),
    "Node": (_columns("Status", "Roles", "Age", "Version", wide=_NODE_WIDE), _node),
    "PodDisruptionBudget": (_columns("Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), _budget),
    "Lease": (_columns("Holder", "Age"), _lease),
    "Namespace": (_columns("Status", "Age"), _namespace),
    "Event": ([_column(name) for name in ("Last Seen", "Type", "Reason", "Object", "Message")], _event),
}
