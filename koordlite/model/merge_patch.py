"""JSON merge patches (RFC 7386) from one value to another: fields that a shape does not know stay as they are."""

from __future__ import annotations

from typing import Any

import msgspec


def between(before: msgspec.Struct, after: msgspec.Struct) -> dict[str, Any]:
    """JSON merge patch from one value to the other; what went is null, lists are whole. Nothing and an empty value are
    the same."""
    return _difference(msgspec.to_builtins(before), msgspec.to_builtins(after))


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            inner = _difference(old, value)
            if inner:
                changed[key] = inner
        elif old != value and (old or value not in ({}, [], ())):
            changed[key] = value
    return changed
