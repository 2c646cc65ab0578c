"""The zones of the node's NodeResourceTopology."""

from __future__ import annotations

from typing import Never

from koordlite.apply.cluster_kind import TopologyKind
from koordlite.changes.zones import PLACE, ZonesChange


class Zones(TopologyKind[ZonesChange, Never]):
    """A description: it is not undone."""

    change = ZonesChange
    places = (PLACE,)


KIND = Zones()
