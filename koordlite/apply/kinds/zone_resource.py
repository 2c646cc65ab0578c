"""A resource of one zone of the node's NodeResourceTopology."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply.cluster_kind import TopologyKind
from koordlite.apply.kind import Work
from koordlite.changes.zone_resource import PLACE, ZoneAmount, ZoneResourceChange


class ZonePart(TopologyKind[ZoneResourceChange, ZoneAmount]):
    """An amount of a zone."""

    change = ZoneResourceChange
    places = (PLACE,)
    is_amount = True

    def found(self, change: ZoneResourceChange, strategy: str, work: Work) -> Iterator[ZoneAmount]:
        """The amount in the zone."""
        part = work.seen.published.zone_resource(change.zone, change.resource)
        yield ZoneAmount(zone=change.zone, resource=change.resource, previous=part, strategy=strategy)


KIND = ZonePart()
