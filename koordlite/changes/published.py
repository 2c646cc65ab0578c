"""Publications about the node: extended resources, annotations and a condition of the Node; annotations, labels, zones
and their resources of its NodeResourceTopology."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import ClassVar

import msgspec
from msgspec import structs

from koordlite.model import nrt
from koordlite.model.change import Entry, NodeChange, TopologyPart
from koordlite.model.place import PlaceKind
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire.objects import NodeObject, NRTObject, Zone, ZoneResource

_NODE, _TOPOLOGY = ("Node",), ("NodeResourceTopology",)
NODE_RESOURCE = PlaceKind.of(
    "node resource", "node/{resource}", metrics=_NODE, resource="(?!annotations/|conditions/).+"
)
NODE_CONDITION = PlaceKind.of("node condition", "node/conditions/{type}", metrics=_NODE, type=".+")
NODE_ANNOTATION = PlaceKind.of("node annotation", "node/annotations/{key}", metrics=_NODE, key=".+")
TOPOLOGY_ANNOTATION = PlaceKind.of(
    "topology annotation", "noderesourcetopology/{key}", metrics=_TOPOLOGY, key=r"(?!label/|zones/|zones\Z).+"
)
TOPOLOGY_LABEL = PlaceKind.of("topology label", "noderesourcetopology/label/{key}", metrics=_TOPOLOGY, key=".+")
ZONES = PlaceKind.of("zones", "noderesourcetopology/zones", metrics=_TOPOLOGY)
ZONE_RESOURCE = PlaceKind.of(
    "zone resource", "noderesourcetopology/zones/{zone}/{resource}", metrics=_TOPOLOGY, resource=".+"
)


class NodeResourceChange(NodeChange, msgspec.Struct, frozen=True):
    """Give the extended resource `resource` of the Node this amount in capacity and allocatable; None removes it."""

    place_kind: ClassVar[PlaceKind] = NODE_RESOURCE
    rank: ClassVar[int] = 70

    resource: str
    value: int | None

    @property
    def amounts(self) -> Mapping[str, int | None]:
        """The resource and its amount."""
        return {self.resource: self.value}

    def present(self, snapshot: Snapshot) -> int | None:
        """The amount on the Node."""
        return snapshot.published.node_resources.get(self.resource)

    def before(self, snapshot: Snapshot, strategy: str) -> NodeResource:
        """The amount on the Node."""
        return NodeResource(resource=self.resource, previous=self.present(snapshot), strategy=strategy)

    def stands(self, node: NodeObject) -> bool:
        """Amounts are compared as amounts, since 5000 comes back as `5k`."""
        texts = [(resources or {}).get(self.resource) for resources in (node.status.capacity, node.status.allocatable)]
        try:
            amounts = [None if text is None else Quantity.parse(text) for text in texts]
        except ValueError:
            return False
        value = None if self.value is None else Quantity.of(self.value)
        return amounts == [value, value]


class NodeAnnotationChange(NodeChange, msgspec.Struct, frozen=True):
    """Give the annotation `key` of the Node the text `value`; None removes it."""

    place_kind: ClassVar[PlaceKind] = NODE_ANNOTATION
    rank: ClassVar[int] = 71

    key: str
    value: str | None

    @property
    def annotations(self) -> Mapping[str, str | None]:
        """The annotation and its text."""
        return {self.key: self.value}

    def present(self, snapshot: Snapshot) -> str | None:
        """The text on the Node."""
        return snapshot.node.annotations.get(self.key) if snapshot.node else None

    def before(self, snapshot: Snapshot, strategy: str) -> NodeAnnotation:
        """The text on the Node."""
        return NodeAnnotation(key=self.key, previous=self.present(snapshot), strategy=strategy)

    def stands(self, node: NodeObject) -> bool:
        """Tell whether the Node has this text."""
        return (node.metadata.annotations or {}).get(self.key) == self.value


class NodeConditionChange(NodeChange, msgspec.Struct, frozen=True):
    """Give the condition `type` of the Node the status `value`, True or False; None removes it. Others stay."""

    place_kind: ClassVar[PlaceKind] = NODE_CONDITION
    rank: ClassVar[int] = 72

    type: str
    value: str | None
    reason: str = ""
    message: str = ""
    since: str = ""
    """RFC 3339: when it got this status."""

    @property
    def conditions(self) -> tuple[Mapping[str, str], ...]:
        """The one element of the list, which is merged by type."""
        if self.value is None:
            return ({"$patch": "delete", "type": self.type},)
        words = {"reason": self.reason, "message": self.message, "lastTransitionTime": self.since}
        return ({"type": self.type, "status": self.value, **{key: text for key, text in words.items() if text}},)

    def present(self, snapshot: Snapshot) -> str | None:
        """The status on the Node."""
        return snapshot.node.conditions.get(self.type) if snapshot.node else None

    def before(self, snapshot: Snapshot, strategy: str) -> NodeCondition:
        """No condition: nobody but us writes it."""
        return NodeCondition(type=self.type, strategy=strategy)

    def stands(self, node: NodeObject) -> bool:
        """Reason, message and time go with the status, and are not compared."""
        return {each.type: each.status for each in node.status.conditions or ()}.get(self.type) == self.value


class TopologyChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give the annotation `key` of the node's NodeResourceTopology the JSON text `value`."""

    place_kind: ClassVar[PlaceKind] = TOPOLOGY_ANNOTATION
    rank: ClassVar[int] = 80

    key: str
    value: str

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with the text."""
        notes = {**(topology.metadata.annotations or {}), self.key: self.value}
        return structs.replace(topology, metadata=structs.replace(topology.metadata, annotations=notes))


class TopologyLabelChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give the label `key` of the node's NodeResourceTopology the `value`; None removes it."""

    place_kind: ClassVar[PlaceKind] = TOPOLOGY_LABEL
    rank: ClassVar[int] = 80

    key: str
    value: str | None

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with the label, or without it."""
        labels = {key: value for key, value in (topology.metadata.labels or {}).items() if key != self.key}
        labels |= {} if self.value is None else {self.key: self.value}
        return structs.replace(topology, metadata=structs.replace(topology.metadata, labels=labels))


class ZonesChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give the node's NodeResourceTopology these zones, policies and attributes; resources and attributes of other
    owners stay."""

    place_kind: ClassVar[PlaceKind] = ZONES
    rank: ClassVar[int] = 80

    zones: tuple[Zone, ...]
    policies: tuple[str, ...]
    attributes: tuple[tuple[str, str | None], ...] = ()
    """Attributes of the whole object; None removes one."""
    gone: frozenset[str] = frozenset()
    """Resources that no zone has any more."""
    zone_attributes: frozenset[str] = frozenset()
    """Names of the attributes of zones that are ours: a zone without one loses it."""

    def describe(self) -> str:
        """Nothing: they fill no line."""
        return ""

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with these zones in place of those of NUMA nodes; zones of other kinds stay."""
        present = {zone.name: zone for zone in topology.zones or ()}
        zones = [self._merged(present.get(zone.name), zone) for zone in self.zones]
        zones += [zone for zone in topology.zones or () if not nrt.is_numa_zone(zone.name, zone.type)]
        attributes = [{"name": name, "value": value} for name, value in self.attributes if value is not None]
        return structs.replace(
            topology,
            zones=tuple(zones),
            topology_policies=self.policies,
            attributes=_with_attributes(topology.attributes, attributes, dict(self.attributes)),
        )

    def _merged(self, present: Zone | None, zone: Zone) -> Zone:
        """Keep what others put into the zone: resources, attributes, and costs where there are any."""
        if present is None:
            return zone
        ours = {resource.name for resource in zone.resources or ()} | self.gone
        theirs = [resource for resource in present.resources or () if resource.name not in ours]
        resources = sorted([*(zone.resources or ()), *theirs], key=lambda resource: resource.name)
        return structs.replace(
            present,
            type=zone.type,
            resources=tuple(resources),
            costs=present.costs or zone.costs,
            attributes=_with_attributes(present.attributes, zone.attributes or (), self.zone_attributes),
        )


class ZoneResourceChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give one zone of the node's NodeResourceTopology this amount of `resource`; None removes it.

    A zone that is not there stays away: `ZonesChange` makes zones.
    """

    place_kind: ClassVar[PlaceKind] = ZONE_RESOURCE
    # The zones have to be there before their resources.
    rank: ClassVar[int] = 81

    zone: str
    resource: str
    value: ZoneResource | None

    def before(self, snapshot: Snapshot, strategy: str) -> ZoneAmount:
        """The amount of the zone."""
        previous = snapshot.published.zone_resource(self.zone, self.resource)
        return ZoneAmount(zone=self.zone, resource=self.resource, previous=previous, strategy=strategy)

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with the amount in its zone; the order of names stays."""
        zones = list(topology.zones or ())
        for index, zone in enumerate(zones):
            if zone.name == self.zone:
                remaining = [resource for resource in zone.resources or () if resource.name != self.resource]
                resources = sorted([*remaining, *filter(None, [self.value])], key=lambda resource: resource.name)
                zones[index] = structs.replace(zone, resources=tuple(resources))
        return structs.replace(topology, zones=tuple(zones))


class _PublishedEntry(Entry, frozen=True, kw_only=True):
    dies_with_boot: ClassVar[bool] = False
    strategy: str = ""


class NodeResource(_PublishedEntry, frozen=True, kw_only=True, tag="nodeResource"):
    """An extended resource of the Node before us; None when the Node had none."""

    resource: str
    previous: int | None

    def undoing(self) -> NodeResourceChange:
        """The change that puts it back."""
        return NodeResourceChange(self.resource, self.previous)


class NodeAnnotation(_PublishedEntry, frozen=True, kw_only=True, tag="nodeAnnotation"):
    """An annotation of the Node before us; None when there was none."""

    key: str
    previous: str | None

    def undoing(self) -> NodeAnnotationChange:
        """The change that puts it back."""
        return NodeAnnotationChange(self.key, self.previous)


class NodeCondition(_PublishedEntry, frozen=True, kw_only=True, tag="nodeCondition"):
    """A condition of the Node that nobody but us writes."""

    type: str

    def undoing(self) -> NodeConditionChange:
        """The change that removes it."""
        return NodeConditionChange(self.type, None)


class ZoneAmount(_PublishedEntry, frozen=True, kw_only=True, tag="zoneResource"):
    """A resource of a zone of the node's NodeResourceTopology before us; None when the zone had none."""

    zone: str
    resource: str
    previous: ZoneResource | None

    def describe(self) -> str:
        """The amount that comes back."""
        return "(removed)" if self.previous is None else str(self.previous.allocatable)

    def undoing(self) -> ZoneResourceChange:
        """The change that puts it back."""
        return ZoneResourceChange(self.zone, self.resource, self.previous)


Attributes = tuple[dict[str, str], ...]


def _with_attributes(
    present: Attributes | None, target: Iterable[dict[str, str]], ours: Container[str]
) -> Attributes | None:
    """Ours as wanted, in place of the present ones; the others stay, in their order."""
    foreign = [each for each in present or () if each.get("name") not in ours]
    merged = (*foreign, *target)
    return merged if merged or present else present
