"""A Node with what was worked out for it: prepared by our formulas, published as the agent publishes."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from koordlite.changes.published import NodeResourceChange
from koordlite.formulas.allocatable import node_sync
from koordlite.kube.folder.published import Published
from koordlite.model import keys
from koordlite.model.picture import node_notes
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects
from tests.conformance.adapters import shapes

Status = dict[str, dict[str, Quantity]]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What the Node shows afterwards."""

    status: Status
    offered: dict[str, int | None]
    left: dict[str, int | None]


def prepare(node: Any, worked_out: Any, names: tuple[str, ...]) -> Prepared:
    """`worked_out` is {resources, resets, annotations}; a resource without an amount goes."""
    notes = node["metadata"].get("annotations") or {}
    third = node_notes.parse(notes, "node", last=NodeNotes(), problems=[]).third_party
    offered, left = node_sync.prepared(
        thousandths={name: _thousandths(worked_out, name) for name in names},
        ratio=ratio(worked_out),
        taken={name: amount.value for name, amount in third.items()},
    )
    return Prepared(show(node, left), offered, left)


def show(node: Any, amounts: dict[str, int | None]) -> Status:
    """Capacity and allocatable of the node once these amounts are published."""
    obj = msgspec.convert(node, objects.NodeObject)
    shown = Published("n", None)
    shown.publish([NodeResourceChange(name, amount) for name, amount in amounts.items()], node=obj, topology=None)
    return status({"status": msgspec.to_builtins(shown.over_node(obj).status)})


def status(given: Any) -> Status:
    """Capacity and allocatable as numbers."""
    return {name: shapes.quantities(given["status"].get(name)) for name in ("capacity", "allocatable")}


def ratio(worked_out: Any) -> float:
    """The normalization ratio among the annotations worked out, 1 without one."""
    notes = worked_out.get("annotations") or {}
    return node_notes.parse(notes, "node", last=NodeNotes(), problems=[]).cpu_normalization or 1.0


def multiplied(name: str, amount: Quantity, factor: float) -> Quantity:
    """A zone's part."""
    if name != keys.BATCH_CPU:
        return amount
    return Quantity.of_milli(node_sync.multiplied(thousandths=amount.milli, ratio=factor))


def _thousandths(worked_out: Any, name: str) -> int | None:
    text = (worked_out.get("resources") or {}).get(name)
    gone = text is None or (worked_out.get("resets") or {}).get(name)
    return None if gone else Quantity.parse(text).milli
