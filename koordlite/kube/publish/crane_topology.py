"""Writing Crane's NodeResourceTopology of the node, on request: for clusters whose scheduler goes by it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from koordlite.kube.client.access import Api
from koordlite.kube.publish.background_report import BackgroundReport
from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.reading.go_words import boolean
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import crane, objects
from koordlite.model.wire.crane import ManagerPolicy, TopologyObject, Zone
from koordlite.numa.crane import zones

MERGE = "application/merge-patch+json"


def topology(snapshot: Snapshot, *, parts: bool = False) -> TopologyObject:
    """The node by the picture, without metadata; with `parts` also its sockets and cores.

    Crane's scheduler counts the CPUs that pods of other protocols have alone as not there. Source: crane-agent
    `BuildNodeResourceTopology`.
    """
    promised = snapshot.crane
    reserved = dict(snapshot.kubelet.reserved)
    if promised.reserved:
        reserved["cpu"] = Quantity.of(len(promised.reserved))
    found = zones.node_zones(
        snapshot.topology.nodes, reserved_cpus=promised.reserved, reserved=reserved, taken=promised.taken
    )
    return TopologyObject(
        crane_manager_policy=ManagerPolicy(
            cpu_manager_policy=crane.STATIC if promised.enforced and not promised.why_not else "None",
            topology_manager_policy=_default_awareness(snapshot),
        ),
        reserved={name: str(amount) for name, amount in sorted(reserved.items())} or None,
        zones=(*found, *(zones.part_zones(snapshot.topology.cpus) if parts else ())),
        attributes={keys.CRANE_RESERVED_CPUS: str(promised.reserved)},
    )


def _default_awareness(snapshot: Snapshot) -> str:
    """For pods that do not say: the Node's label."""
    label = (snapshot.node.labels if snapshot.node else {}).get(keys.CRANE_TOPOLOGY_AWARENESS)
    return "None" if boolean(label) is False else crane.SINGLE_NUMA


class CraneTopologyReport(BackgroundReport[TopologyObject]):
    """Keeps the object as the pictures say. Attributes and labels of others stay."""

    kind = "crane-noderesourcetopology"
    path = crane.PATH
    resource = "noderesourcetopologies.topology.crane.io"
    no_kind = "install the CRD of manifests/crds/crane, or set publish.craneTopology: off"

    def __init__(self, api: Api, node_name: str, *, parts: bool = False) -> None:
        super().__init__(api, node_name)
        self._parts = parts

    def wanted(self, snapshot: Snapshot) -> TopologyObject:
        """The object of `topology`."""
        return topology(snapshot, parts=self._parts)

    def fresh(self, wanted: TopologyObject, owner: objects.NodeObject) -> dict[str, Any]:
        """The wanted object, with its metadata."""
        metadata = objects.ObjectMeta(name=owner.metadata.name, owner_references=(owner.as_owner,))
        whole = structs.replace(wanted, metadata=metadata)
        return {"apiVersion": crane.API_VERSION, "kind": crane.KIND, **msgspec.to_builtins(whole)}

    def change(self, path: str, held: bytes, wanted: TopologyObject) -> None:
        """Patch what differs; attributes that others put into zones stay."""
        there = msgspec.json.decode(held, type=TopologyObject)
        wanted = structs.replace(wanted, zones=_with_attributes(wanted.zones or (), there.zones or ()))
        body = _difference(there, wanted)
        if body:
            # Zones are a list, which a merge patch replaces as a whole: made from this version, or not at all.
            body["metadata"] = {"resourceVersion": there.metadata.resource_version}
            self._api.request("PATCH", path, body=body, content_type=MERGE)


def _difference(held: TopologyObject, wanted: TopologyObject) -> dict[str, Any]:
    """A merge patch from what is held; empty when it says the same."""
    body: dict[str, Any] = {}
    if held.crane_manager_policy != wanted.crane_manager_policy:
        body["craneManagerPolicy"] = msgspec.to_builtins(wanted.crane_manager_policy)
    if held.zones != wanted.zones:
        body["zones"] = msgspec.to_builtins(wanted.zones)
    if (held.reserved or {}) != (wanted.reserved or {}):
        gone: dict[str, Any] = dict.fromkeys((held.reserved or {}).keys() - (wanted.reserved or {}).keys())
        body["reserved"] = {**gone, **(wanted.reserved or {})}
    ours = {key: text for key, text in (wanted.attributes or {}).items() if (held.attributes or {}).get(key) != text}
    return body | ({"attributes": ours} if ours else {})


def _with_attributes(wanted: tuple[Zone, ...], held: tuple[Zone, ...]) -> tuple[Zone, ...]:
    """The zones with what others put into their attributes."""
    theirs = {zone.name: zone.attributes for zone in held}
    return tuple(
        structs.replace(zone, attributes={**(theirs.get(zone.name) or {}), **(zone.attributes or {})} or None)
        for zone in wanted
    )
