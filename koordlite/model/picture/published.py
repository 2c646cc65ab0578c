"""Our objects and fields in the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.place import Place
from koordlite.model.wire.objects import Zone, ZoneResource


class OtherWriter(msgspec.Struct, frozen=True):
    """Another program that wrote the zones of the node's NodeResourceTopology after us."""

    manager: str
    """Name at the API server: `koordlet`, `nfd-topology-updater`, `resource-topology-exporter`."""
    time: str
    """Time of its last write, RFC 3339; empty where it is not known."""
    annotations: frozenset[str] = frozenset()
    """Keys of annotations that it wrote as well."""


class Published(msgspec.Struct, frozen=True):
    """Our objects and fields in the cluster."""

    node_resources: Mapping[str, int | None]
    """Allocatable of our extended resources; None when the key is absent."""
    topology: Mapping[str, str]
    """Annotations of the node's NodeResourceTopology."""
    zones: tuple[Zone, ...] = ()
    topology_policies: tuple[str, ...] = ()
    topology_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Labels of the NodeResourceTopology."""
    topology_attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    topology_version: str = ""
    """apiVersion under which the NodeResourceTopology is read; v1alpha1 has no attributes."""
    other_writer: OtherWriter | None = None
    last_sync: Mapping[Place, float] = msgspec.field(default_factory=dict)
    """Time of our last write of amounts of the node and its zones in this run, by `Change.place`."""

    def zone_resource(self, zone: str, resource: str) -> ZoneResource | None:
        """Capacity and allocatable of a resource in a zone; None without either."""
        matches = (r for z in self.zones if z.name == zone for r in z.resources or () if r.name == resource)
        return next(matches, None)
