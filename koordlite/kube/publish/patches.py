"""Bodies that publish the Node and its NodeResourceTopology: only our keys, so that they cross no other writer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koordlite.kube.folder import published
from koordlite.model.change import NodeChange, TopologyPart
from koordlite.model.wire import objects

KIND = "NodeResourceTopology"


def of_node(changes: Iterable[NodeChange], *, uid: str) -> dict[str, Any]:
    """Merge patch for the node's status subresource; null removes a key.

    The subresource takes annotations as well, so one request and one permission do. With `uid` the server refuses the
    patch for a node that was created again under the same name.
    """
    changes = tuple(changes)
    notes = {key: text for change in changes for key, text in change.annotations.items()}
    amounts = {
        name: None if amount is None else str(amount) for change in changes for name, amount in change.amounts.items()
    }
    metadata: dict[str, Any] = ({"annotations": notes} if notes else {}) | ({"uid": uid} if uid else {})
    status = {"capacity": amounts, "allocatable": amounts}
    return ({"metadata": metadata} if metadata else {}) | ({"status": status} if amounts else {})


def after(topology: objects.NRTObject, changes: Iterable[TopologyPart]) -> objects.NRTObject:
    """The object with all changes; resources, zones, annotations and labels of others stay."""
    for change in changes:
        topology = change.onto(topology)
    return topology


def new_topology(node: objects.NodeObject, changes: Iterable[TopologyPart], *, api_version: str) -> dict[str, Any]:
    """The whole object, owned by the Node, so that it goes when the node goes."""
    made = after(published.new_topology(node), changes)
    head = {"apiVersion": api_version, "kind": KIND, "topologyPolicies": [], "zones": []}
    return {**head, **msgspec.to_builtins(made)}


def of_topology(topology: objects.NRTObject, changes: Iterable[TopologyPart]) -> dict[str, Any]:
    """A merge patch from `topology` to what the changes make of it; empty when that is the same.

    Zones and attributes are lists, which a merge patch replaces as a whole: then the patch carries the resource version
    it was made from, and the server answers a conflict if another client wrote meanwhile.
    """
    target = after(topology, changes)
    body: dict[str, Any] = {}
    if target.zones != topology.zones:
        body["zones"] = msgspec.to_builtins(target.zones or ())
    if target.topology_policies != topology.topology_policies:
        body["topologyPolicies"] = list(target.topology_policies or ())
    if (target.attributes or ()) != (topology.attributes or ()):
        body["attributes"] = list(target.attributes or ())
    metadata: dict[str, Any] = {
        name: difference
        for name in ("annotations", "labels")
        if (difference := _difference(getattr(topology.metadata, name), getattr(target.metadata, name)))
    }
    if "zones" in body or "attributes" in body:
        metadata["resourceVersion"] = topology.metadata.resource_version
    return body | ({"metadata": metadata} if metadata else {})


def _difference(before: dict[str, str] | None, now: dict[str, str] | None) -> dict[str, str | None]:
    before, now = before or {}, now or {}
    removed: dict[str, str | None] = dict.fromkeys(before.keys() - now.keys())
    return removed | {key: text for key, text in now.items() if before.get(key) != text}
