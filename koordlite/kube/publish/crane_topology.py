"""Writing Crane's NodeResourceTopology of the node, on request: for clusters whose scheduler goes by it."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from msgspec import structs

from koordlite.kube.publish.background_report import ReportKind
from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.reading.go_words import boolean
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import crane
from koordlite.model.wire.crane import ManagerPolicy, TopologyObject, Zone
from koordlite.numa.crane import zones


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


def crane_topology(*, parts: bool = False) -> ReportKind:
    """The object of `topology`. Attributes and labels of others stay."""
    return ReportKind(
        name="crane-noderesourcetopology",
        path=crane.PATH,
        resource="noderesourcetopologies.topology.crane.io",
        no_kind="install the CRD of manifests/crds/crane, or set publish.craneTopology: off",
        head=(crane.API_VERSION, crane.KIND),
        type=TopologyObject,
        wanted=functools.partial(topology, parts=parts),
        content=msgspec.to_builtins,
        change=_change,
    )


def _change(held: TopologyObject, wanted: TopologyObject) -> tuple[str, dict[str, Any]] | None:
    """Patch what differs; attributes that others put into zones stay."""
    body = _difference(held, structs.replace(wanted, zones=_with_attributes(wanted.zones or (), held.zones or ())))
    # Zones are a list, which a merge patch replaces as a whole: made from this version, or not at all.
    version = {"metadata": {"resourceVersion": held.metadata.resource_version}}
    return ("PATCH", body | version) if body else None


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
