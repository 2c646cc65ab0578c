"""An extended resource of the Node."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply.cluster_kind import NodeKind
from koordlite.apply.kind import Work
from koordlite.changes.node_resource import PLACE, NodeResource, NodeResourceChange


class NodeAmount(NodeKind[NodeResourceChange, NodeResource]):
    """An amount in capacity and allocatable."""

    change = NodeResourceChange
    places = (PLACE,)
    is_amount = True

    def found(self, change: NodeResourceChange, strategy: str, work: Work) -> Iterator[NodeResource]:
        """The amount on the Node."""
        amount = work.seen.published.node_resources.get(change.resource)
        yield NodeResource(resource=change.resource, previous=amount, strategy=strategy)


KIND = NodeAmount()
