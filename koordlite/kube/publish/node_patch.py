"""Patches of a Node: only our keys, so that other writers are not in the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from koordlite.model.change import NodeChange


def patch(changes: Iterable[NodeChange], *, uid: str) -> dict[str, Any]:
    """A merge patch for the node's status subresource; null removes a key.

    The subresource takes annotations as well, so one request and one permission do. With `uid` the server refuses the
    patch for a node that was created again under the same name.
    """
    changes = tuple(changes)
    notes = {key: text for change in changes for key, text in change.annotations.items()}
    amounts = {name: _text(amount) for change in changes for name, amount in change.amounts.items()}
    metadata: dict[str, Any] = ({"annotations": notes} if notes else {}) | ({"uid": uid} if uid else {})
    status = {"capacity": amounts, "allocatable": amounts}
    return ({"metadata": metadata} if metadata else {}) | ({"status": status} if amounts else {})


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
