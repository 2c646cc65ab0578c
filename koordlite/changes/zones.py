"""The zones of the node's NodeResourceTopology."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar

from msgspec import structs

from koordlite.model import nrt
from koordlite.model.change import TopologyPart
from koordlite.model.place import Place, PlaceKind
from koordlite.model.wire.objects import NRTObject, Zone

PLACE = PlaceKind(
    name="zones",
    form="noderesourcetopology/zones",
    pattern=re.compile("noderesourcetopology/zones"),
    metric=lambda parts: "NodeResourceTopology",
    metrics=frozenset({"NodeResourceTopology"}),
    update="default",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ZonesChange(TopologyPart):
    """Give the node's NodeResourceTopology these zones and policies; resources of other owners in a zone stay."""

    rank: ClassVar[int] = 80

    zones: tuple[Zone, ...]
    policies: tuple[str, ...]

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place()

    def describe(self) -> str:
        """The value in one line."""
        return ""

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with these zones. Zones that are no NUMA nodes (sockets, racks) belong to others."""
        present = {zone.name: zone for zone in topology.zones or ()}
        zones = [_merged(present.get(zone.name), zone) for zone in self.zones]
        zones += [zone for zone in topology.zones or () if nrt.numa_node_of_zone(zone.name) is None]
        return structs.replace(topology, zones=tuple(zones), topology_policies=self.policies)


def _merged(present: Zone | None, wanted: Zone) -> Zone:
    """What others put into the zone stays: resources, attributes, and costs where there are any."""
    if present is None:
        return wanted
    ours = {resource.name for resource in wanted.resources or ()}
    theirs = [resource for resource in present.resources or () if resource.name not in ours]
    resources = sorted([*(wanted.resources or ()), *theirs], key=lambda resource: resource.name)
    costs = present.costs or wanted.costs
    return structs.replace(present, type=wanted.type, resources=tuple(resources), costs=costs)
