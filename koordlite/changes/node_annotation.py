"""An annotation of the Node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from koordlite.model.change import NodeChange
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire.objects import NodeObject

PLACE = PlaceKind(
    name="node annotation",
    form="node/annotations/%s",
    pattern=re.compile(r"node/annotations/(?P<key>.+)"),
    metric=lambda parts: "Node",
    metrics=frozenset({"Node"}),
    update="default",
)


class NodeAnnotationChange(NodeChange, msgspec.Struct, frozen=True):
    """Give the annotation `key` of the Node the text `value`; None removes it."""

    rank: ClassVar[int] = 71

    key: str
    value: str | None

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.key)

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)

    @property
    def annotations(self) -> Mapping[str, str | None]:
        """What is to be in the annotations."""
        return {self.key: self.value}

    def held(self, seen: Snapshot) -> str | None:
        """The text on the Node."""
        return seen.node.annotations.get(self.key) if seen.node else None

    def stands(self, node: NodeObject) -> bool:
        """Whether the Node has this text."""
        return (node.metadata.annotations or {}).get(self.key) == self.value


class NodeAnnotation(Entry, frozen=True, kw_only=True, tag="nodeAnnotation"):
    """An annotation of the Node before us; None when there was none."""

    dies_with_boot: ClassVar[bool] = False
    key: str
    previous: str | None
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `NodeAnnotationChange` names it."""
        return PLACE.place(self.key)

    def describe(self) -> str:
        """What comes back, in one line."""
        return "(removed)" if self.previous is None else str(self.previous)

    def undoing(self) -> NodeAnnotationChange:
        """The change that puts it back."""
        return NodeAnnotationChange(self.key, self.previous)
