"""An annotation of the Node."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply.cluster_kind import NodeKind
from koordlite.apply.kind import Work
from koordlite.changes.node_annotation import PLACE, NodeAnnotation, NodeAnnotationChange


class NodeNote(NodeKind[NodeAnnotationChange, NodeAnnotation]):
    """A text."""

    change = NodeAnnotationChange
    places = (PLACE,)

    def found(self, change: NodeAnnotationChange, strategy: str, work: Work) -> Iterator[NodeAnnotation]:
        """The text on the Node."""
        yield NodeAnnotation(key=change.key, previous=change.held(work.seen), strategy=strategy)


KIND = NodeNote()
