"""JSON merge patch (RFC 7386) as an API server applies it."""

from __future__ import annotations

from typing import Any

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def merged(target: Any, patch: Any) -> Any:
    """`target` with a merge patch applied: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
