"""A resource of one zone of the node's NodeResourceTopology."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec
from msgspec import structs

from koordlite.model.change import TopologyPart
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind
from koordlite.model.wire.objects import NRTObject, Zone, ZoneResource

PLACE = PlaceKind(
    name="zone resource",
    form="noderesourcetopology/zones/%s/%s",
    pattern=re.compile(r"noderesourcetopology/zones/(?P<zone>[^/]*)/(?P<resource>.+)"),
    metric=lambda parts: "NodeResourceTopology",
    metrics=frozenset({"NodeResourceTopology"}),
    update="default",
)


class ZoneResourceChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give one zone of the node's NodeResourceTopology this amount of `resource`; None removes it.

    A zone that is not there stays away: `ZonesChange` makes zones.
    """

    # The zones have to be there before their resources.
    rank: ClassVar[int] = 81

    zone: str
    resource: str
    value: ZoneResource | None

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.zone, self.resource)

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with the amount in its zone; the order of names stays."""
        return structs.replace(topology, zones=tuple(map(self._onto_zone, topology.zones or ())))

    def _onto_zone(self, zone: Zone) -> Zone:
        if zone.name != self.zone:
            return zone
        kept = [resource for resource in zone.resources or () if resource.name != self.resource]
        resources = sorted([*kept, *filter(None, [self.value])], key=lambda resource: resource.name)
        return structs.replace(zone, resources=tuple(resources))


class ZoneAmount(Entry, frozen=True, kw_only=True, tag="zoneResource"):
    """A resource of a zone of the node's NodeResourceTopology before us; None when the zone had none."""

    dies_with_boot: ClassVar[bool] = False
    zone: str
    resource: str
    previous: ZoneResource | None
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `ZoneResourceChange` names it."""
        return PLACE.place(self.zone, self.resource)

    def describe(self) -> str:
        """What comes back, in one line."""
        return "(removed)" if self.previous is None else str(self.previous.allocatable)

    def undoing(self) -> ZoneResourceChange:
        """The change that puts it back."""
        return ZoneResourceChange(self.zone, self.resource, self.previous)
