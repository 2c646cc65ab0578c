"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386) as an API server applies them."""

from __future__ import annotations

import copy
from typing import Any

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Unpatchable(Exception):
    """A JSON patch whose operations do not fit the object."""


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


def edited(target: Any, operations: list[Any]) -> Any:
    """`target` after the operations of a JSON patch; Unpatchable when one of them does not fit."""
    document = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise Unpatchable
        document = _one(document, operation)
    return document


def _one(document: Any, operation: dict[str, Any]) -> Any:
    steps, word = _steps(operation["path"]), operation.get("op")
    if word in ("add", "replace"):
        return _put(document, steps, operation.get("value"), insert=word == "add")
    if word == "remove":
        _take(document, steps)
    elif word == "test":
        if not _same(_tested(document, steps), operation.get("value")):
            raise Unpatchable
    elif word in ("copy", "move"):
        source = _steps(str(operation.get("from", "")))
        value = copy.deepcopy(_at(document, source))
        if word == "move":
            _take(document, source)
        return _put(document, steps, value, insert=True)
    else:
        raise Unpatchable
    return document


def _tested(document: Any, steps: list[str]) -> Any:
    """What a test compares: a key that is absent is as good as null (evanphx/json-patch)."""
    parent = _at(document, steps[:-1])
    return parent.get(steps[-1]) if steps and isinstance(parent, dict) else _at(document, steps)


def _same(found: Any, wanted: Any) -> bool:
    """Whether two values are one in JSON, where true is not 1."""
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


def _steps(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise Unpatchable
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _at(document: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, len(document))]
        else:
            raise Unpatchable
    return document


def _put(document: Any, steps: list[str], value: Any, *, insert: bool) -> Any:
    if not steps:
        return value
    parent, last = _at(document, steps[:-1]), steps[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and insert:
        parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    elif isinstance(parent, list):
        parent[_index(last, len(parent))] = value
    else:
        raise Unpatchable
    return document


def _take(document: Any, steps: list[str]) -> None:
    if not steps:
        raise Unpatchable
    parent, last = _at(document, steps[:-1]), steps[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(last, len(parent))]
    else:
        raise Unpatchable


def _index(step: str, length: int) -> int:
    if not (step.isascii() and step.isdecimal()) or int(step) >= length:
        raise Unpatchable
    return int(step)
