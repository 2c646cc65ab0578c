"""The picture out of the objects of a descheduler case, by the product's own reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from descheduler.framework import View
from descheduler.snapshot import assemble, files

NOW = "2026-01-01T00:00:00Z"
_KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "namespaces": "Namespace",
    "priorityClasses": "PriorityClass",
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "podDisruptionBudgets": "PodDisruptionBudget",
    "topologies": "NodeResourceTopology",
}


def picture(given: Any) -> View:
    """What the product sees of `nodes`, `pods` and the other objects of a case."""
    objects = files.Objects()
    for obj in _objects(given):
        files.take(objects, json.dumps(obj).encode(), "case")
    return assemble.view(objects, given.get("now") or NOW)


def written(values: Any) -> Any:
    """Without what is null, at any depth: Go writes an unset list, map or pointer so."""
    if isinstance(values, dict):
        return {name: written(value) for name, value in values.items() if value is not None}
    if isinstance(values, list):
        return [written(value) for value in values]
    return {} if values is None else values


def _objects(given: Any) -> Iterator[Any]:
    for key, kind in _KINDS.items():
        for number, obj in enumerate(written(given.get(key) or [])):
            # The reader leaves out objects without a name, which no API server has.
            yield {**obj, "kind": kind, "metadata": {"name": f"unnamed-{number}", **(obj.get("metadata") or {})}}
