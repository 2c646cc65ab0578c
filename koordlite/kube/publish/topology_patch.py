"""Bodies for the node's NodeResourceTopology: made when it is missing, else patched where it differs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koordlite.kube.folder import published
from koordlite.model.change import TopologyPart
from koordlite.model.wire import objects

KIND = "NodeResourceTopology"


def after(topology: objects.NRTObject, changes: Iterable[TopologyPart]) -> objects.NRTObject:
    """The object with all changes; resources, zones, annotations and labels of others stay."""
    for change in changes:
        topology = change.onto(topology)
    return topology


def fresh(node: objects.NodeObject, changes: Iterable[TopologyPart], *, api_version: str) -> dict[str, Any]:
    """The whole object, owned by the Node, so that it goes when the node goes."""
    made = after(published.new_topology(node), changes)
    head = {"apiVersion": api_version, "kind": KIND, "topologyPolicies": [], "zones": []}
    return {**head, **msgspec.to_builtins(made)}


def patch(topology: objects.NRTObject, changes: Iterable[TopologyPart]) -> dict[str, Any]:
    """A merge patch from `topology` to what the changes make of it; empty when that is the same.

    Zones and attributes are lists, which a merge patch replaces as a whole: then the patch carries the resource version
    it was made from, and the server answers a conflict if another client wrote meanwhile.
    """
    wanted = after(topology, changes)
    body: dict[str, Any] = {}
    if wanted.zones != topology.zones:
        body["zones"] = msgspec.to_builtins(wanted.zones or ())
    if wanted.topology_policies != topology.topology_policies:
        body["topologyPolicies"] = list(wanted.topology_policies or ())
    if (wanted.attributes or ()) != (topology.attributes or ()):
        body["attributes"] = list(wanted.attributes or ())
    metadata: dict[str, Any] = {
        name: difference
        for name in ("annotations", "labels")
        if (difference := _difference(getattr(topology.metadata, name), getattr(wanted.metadata, name)))
    }
    if "zones" in body or "attributes" in body:
        metadata["resourceVersion"] = topology.metadata.resource_version
    return body | ({"metadata": metadata} if metadata else {})


def _difference(before: dict[str, str] | None, now: dict[str, str] | None) -> dict[str, str | None]:
    before, now = before or {}, now or {}
    removed: dict[str, str | None] = dict.fromkeys(before.keys() - now.keys())
    return removed | {key: text for key, text in now.items() if before.get(key) != text}
