"""The zones of the node's NodeResourceTopology."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import ClassVar

import msgspec
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


class ZonesChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give the node's NodeResourceTopology these zones, policies and attributes; resources and attributes of other
    owners stay."""

    rank: ClassVar[int] = 80

    zones: tuple[Zone, ...]
    policies: tuple[str, ...]
    attributes: tuple[tuple[str, str | None], ...] = ()
    """Of the whole object; None removes one."""
    gone: frozenset[str] = frozenset()
    """Resources that no zone has any more."""
    zone_attributes: frozenset[str] = frozenset()
    """Names of the attributes of zones that are ours: a zone without one loses it."""

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place()

    def describe(self) -> str:
        """The value in one line."""
        return ""

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with these zones in place of those of NUMA nodes; zones of other kinds stay."""
        present = {zone.name: zone for zone in topology.zones or ()}
        zones = [self._merged(present.get(zone.name), zone) for zone in self.zones]
        zones += [zone for zone in topology.zones or () if not nrt.is_numa_zone(zone.name, zone.type)]
        wanted = [{"name": name, "value": value} for name, value in self.attributes if value is not None]
        return structs.replace(
            topology,
            zones=tuple(zones),
            topology_policies=self.policies,
            attributes=_with_attributes(topology.attributes, wanted, dict(self.attributes)),
        )

    def _merged(self, present: Zone | None, wanted: Zone) -> Zone:
        """What others put into the zone stays: resources, attributes, and costs where there are any."""
        if present is None:
            return wanted
        ours = {resource.name for resource in wanted.resources or ()} | self.gone
        theirs = [resource for resource in present.resources or () if resource.name not in ours]
        resources = sorted([*(wanted.resources or ()), *theirs], key=lambda resource: resource.name)
        return structs.replace(
            present,
            type=wanted.type,
            resources=tuple(resources),
            costs=present.costs or wanted.costs,
            attributes=_with_attributes(present.attributes, wanted.attributes or (), self.zone_attributes),
        )


Attributes = tuple[dict[str, str], ...]


def _with_attributes(
    present: Attributes | None, wanted: Iterable[dict[str, str]], ours: Container[str]
) -> Attributes | None:
    """Ours as wanted, in place of the present ones; the others stay, in their order."""
    kept = [each for each in present or () if each.get("name") not in ours]
    found = (*kept, *wanted)
    return found if found or present else present
