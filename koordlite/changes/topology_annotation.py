"""An annotation of the node's NodeResourceTopology."""

from __future__ import annotations

import dataclasses

from msgspec import structs

from koordlite.model.change import TopologyPart
from koordlite.model.wire.objects import NRTObject


@dataclasses.dataclass(frozen=True, slots=True)
class TopologyChange(TopologyPart):
    """Give the annotation `key` of the node's NodeResourceTopology the JSON text `value`."""

    key: str
    value: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"noderesourcetopology/{self.key}"

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` with the text."""
        notes = {**(topology.metadata.annotations or {}), self.key: self.value}
        return structs.replace(topology, metadata=structs.replace(topology.metadata, annotations=notes))
