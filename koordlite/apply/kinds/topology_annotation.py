"""An annotation of the node's NodeResourceTopology."""

from __future__ import annotations

from typing import Never

from koordlite.apply.cluster_kind import TopologyKind
from koordlite.changes.topology_annotation import PLACE, TopologyChange


class TopologyNote(TopologyKind[TopologyChange, Never]):
    """A description: it is not undone."""

    change = TopologyChange
    places = (PLACE,)


KIND = TopologyNote()
