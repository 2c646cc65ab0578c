"""An annotation of the node's NodeResourceTopology."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec
from msgspec import structs

from koordlite.model.change import TopologyPart
from koordlite.model.place import Place, PlaceKind
from koordlite.model.wire.objects import NRTObject

PLACE = PlaceKind(
    name="topology annotation",
    form="noderesourcetopology/%s",
    pattern=re.compile(r"noderesourcetopology/(?!label/|zones/|zones\Z)(?P<key>.+)"),
    metric=lambda parts: "NodeResourceTopology",
    metrics=frozenset({"NodeResourceTopology"}),
    update="default",
)


class TopologyChange(TopologyPart, msgspec.Struct, frozen=True):
    """Give the annotation `key` of the node's NodeResourceTopology the JSON text `value`."""

    rank: ClassVar[int] = 80

    key: str
    value: str

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.key)

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with the text."""
        notes = {**(topology.metadata.annotations or {}), self.key: self.value}
        return structs.replace(topology, metadata=structs.replace(topology.metadata, annotations=notes))
