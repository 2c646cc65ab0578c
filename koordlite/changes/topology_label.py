"""A label of the node's NodeResourceTopology."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec
from msgspec import structs

from koordlite.model.change import TopologyPart
from koordlite.model.place import Place, PlaceKind
from koordlite.model.wire.objects import NRTObject

PLACE = PlaceKind(
    name="topology label",
    form="noderesourcetopology/label/%s",
    pattern=re.compile(r"noderesourcetopology/label/(?P<key>.+)"),
    metric=lambda parts: "NodeResourceTopology",
    metrics=frozenset({"NodeResourceTopology"}),
    update="default",
)


class TopologyLabelChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give the label `key` of the node's NodeResourceTopology the `value`; None removes it."""

    rank: ClassVar[int] = 80

    key: str
    value: str | None

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.key)

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with the label, or without it."""
        labels = {key: value for key, value in (topology.metadata.labels or {}).items() if key != self.key}
        labels |= {} if self.value is None else {self.key: self.value}
        return structs.replace(topology, metadata=structs.replace(topology.metadata, labels=labels))
