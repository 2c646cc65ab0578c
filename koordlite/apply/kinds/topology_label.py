"""A label of the node's NodeResourceTopology."""

from __future__ import annotations

from typing import Never

from koordlite.apply.cluster_kind import TopologyKind
from koordlite.changes.topology_label import PLACE, TopologyLabelChange


class TopologyLabel(TopologyKind[TopologyLabelChange, Never]):
    """A description: it is not undone."""

    change = TopologyLabelChange
    places = (PLACE,)


KIND = TopologyLabel()
