"""An extended resource of the Node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from koordlite.model.change import NodeChange
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire.objects import NodeObject

PLACE = PlaceKind(
    name="node resource",
    form="node/%s",
    pattern=re.compile(r"node/(?!annotations/)(?P<resource>.+)"),
    metric=lambda parts: "Node",
    metrics=frozenset({"Node"}),
    update="default",
)


class NodeResourceChange(NodeChange, msgspec.Struct, frozen=True):
    """Give the extended resource `resource` of the Node this amount in capacity and allocatable; None removes it."""

    rank: ClassVar[int] = 70

    resource: str
    value: int | None

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.resource)

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)

    @property
    def amounts(self) -> Mapping[str, int | None]:
        """What is to be in capacity and allocatable."""
        return {self.resource: self.value}

    def held(self, seen: Snapshot) -> int | None:
        """The amount on the Node."""
        return seen.published.node_resources.get(self.resource)

    def stands(self, node: NodeObject) -> bool:
        """Amounts are compared as amounts, since 5000 comes back as `5k`."""
        return all(self._same(held) for held in (node.status.capacity or {}, node.status.allocatable or {}))

    def _same(self, held: Mapping[str, str | int | float]) -> bool:
        text = held.get(self.resource)
        if text is None or self.value is None:
            return text is None and self.value is None
        try:
            return Quantity.parse(text) == Quantity.of(self.value)
        except ValueError:
            return False


class NodeResource(Entry, frozen=True, kw_only=True, tag="nodeResource"):
    """An extended resource of the Node before us; None when the Node had none."""

    dies_with_boot: ClassVar[bool] = False
    resource: str
    previous: int | None
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `NodeResourceChange` names it."""
        return PLACE.place(self.resource)

    def describe(self) -> str:
        """What comes back, in one line."""
        return "(removed)" if self.previous is None else str(self.previous)

    def undoing(self) -> NodeResourceChange:
        """The change that puts it back."""
        return NodeResourceChange(self.resource, self.previous)
