"""Patches of a Node: only our keys, so that nobody else's writes are in the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koordlite.model.decision import NodeAnnotationChange, NodeChange, NodeResourceChange
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects


def patch(changes: Iterable[NodeChange], *, uid: str) -> dict[str, Any]:
    """A merge patch for the node's status subresource; null removes a key.

    The subresource takes annotations as well, so one request and one permission do. With `uid` the server refuses the
    patch for a node that was made anew under the name.
    """
    changes = tuple(changes)
    notes = {change.key: change.value for change in changes if isinstance(change, NodeAnnotationChange)}
    amounts = {c.resource: _text(c.value) for c in changes if isinstance(c, NodeResourceChange)}
    metadata: dict[str, Any] = ({"annotations": notes} if notes else {}) | ({"uid": uid} if uid else {})
    status = {"capacity": amounts, "allocatable": amounts}
    return ({"metadata": metadata} if metadata else {}) | ({"status": status} if amounts else {})


def stands(node: objects.NodeObject, change: NodeChange) -> bool:
    """Whether the node holds the change already; amounts are compared as amounts, since 5000 comes back as `5k`."""
    if isinstance(change, NodeAnnotationChange):
        return (node.metadata.annotations or {}).get(change.key) == change.value
    held = (node.status.capacity or {}, node.status.allocatable or {})
    return all(_same(amounts, change) for amounts in held)


def _same(amounts: Mapping[str, str | int | float], change: NodeResourceChange) -> bool:
    text = amounts.get(change.resource)
    if text is None or change.value is None:
        return text is None and change.value is None
    try:
        return Quantity.parse(text) == Quantity.of(change.value)
    except ValueError:
        return False


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
