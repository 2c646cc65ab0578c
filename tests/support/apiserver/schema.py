"""Structural schemas of custom resources: pruning, defaults and validation (Kubernetes apiextensions)."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from apiserver.status import Cause, required, unsupported, wrong

_KEEP = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_ALWAYS = frozenset({"apiVersion", "kind", "metadata"})
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}

Schema = Mapping[str, Any]


def pruned(item: Any, schema: Schema, *, top: bool = False) -> Any:
    """`item` without fields that the schema does not know."""
    if isinstance(item, list):
        return [pruned(each, schema.get("items") or {}) for each in item]
    if not isinstance(item, dict) or not schema:
        return item
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    result = {}
    for key, value in item.items():
        if top and key in _ALWAYS:
            result[key] = value
        elif key in known:
            result[key] = pruned(value, known[key])
        elif isinstance(extra, dict):
            result[key] = pruned(value, extra)
        elif extra is True or schema.get(_KEEP):
            result[key] = value
    return result


def defaulted(item: Any, schema: Schema) -> Any:
    """`item` with the schema's defaults; null in a field that may not be null counts as absent."""
    if isinstance(item, list):
        return [defaulted(each, schema.get("items") or {}) for each in item]
    if not isinstance(item, dict):
        return item
    known = schema.get("properties") or {}
    result = {key: value for key, value in item.items() if value is not None or _nullable(known.get(key))}
    for key, below in known.items():
        if key not in result and "default" in below:
            result[key] = copy.deepcopy(below["default"])
        if key in result:
            result[key] = defaulted(result[key], below)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        result |= {key: defaulted(value, extra) for key, value in result.items() if key not in known}
    return result


def _nullable(schema: Schema | None) -> bool:
    return schema is None or bool(schema.get("nullable"))


def causes(item: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """What is wrong with `item`."""
    if item is None and schema.get("nullable"):
        return
    if schema.get(_INT_OR_STRING):
        allowed: tuple[str, ...] = ("integer", "string")
    else:
        allowed = (schema["type"],) if schema.get("type") else ()
    if allowed and not any(_is(item, name) for name in allowed):
        found = _name(item)
        shown = path or "<nil>"
        if schema.get(_INT_OR_STRING):
            yield from _neither(found, shown)
            return
        why = f'{shown} in body must be of type {allowed[0]}: "{found}"'
        yield Cause("FieldValueTypeInvalid", f'Invalid value: "{found}": {why}', shown)
        return
    yield from _value_causes(item, schema, path)
    if isinstance(item, dict):
        yield from _map_causes(item, schema, path)
    elif isinstance(item, list):
        for place, each in enumerate(item):
            yield from causes(each, schema.get("items") or {}, f"{path}[{place}]")


def _neither(found: str, path: str) -> Iterator[Cause]:
    """The causes for what is neither a number nor a string where either will do: as a union of two schemas."""
    for wanted in ("integer,string", "integer"):
        why = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
        yield Cause("FieldValueTypeInvalid", why, path)
        said = (
            f'"{path}" must validate at least one schema (anyOf)'
            if wanted == "integer,string"
            else f"Checked value must be of type integer (default format) in {path}"
        )
        yield wrong("<nil>", "", said)


def _map_causes(item: dict[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    prefix = f"{path}." if path else ""
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, value in item.items():
        below = known.get(key, extra if isinstance(extra, dict) else {})
        if path or key not in _ALWAYS:
            yield from causes(value, below, f"{prefix}{key}")
    for key in schema.get("required") or ():
        if key not in item:
            yield required(f"{prefix}{key}")


def _value_causes(item: Any, schema: Schema, path: str) -> Iterator[Cause]:
    pattern, options = schema.get("pattern"), schema.get("enum")
    if pattern and isinstance(item, str) and not re.search(pattern, item):
        yield wrong(path, item, f"{path} in body should match '{pattern}'")
    if options and item not in options:
        yield unsupported(path, item, options)
    if isinstance(item, int | float) and not isinstance(item, bool):
        yield from _number_causes(item, schema, path)
    if isinstance(item, str | list):
        yield from _length_causes(item, schema, path)


def _number_causes(item: float, schema: Schema, path: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and item < low:
        yield wrong(path, item, f"{path} in body should be greater than or equal to {low}")
    if high is not None and item > high:
        yield wrong(path, item, f"{path} in body should be less than or equal to {high}")


def _length_causes(item: str | list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    words = ("minLength", "maxLength", "chars long") if isinstance(item, str) else ("minItems", "maxItems", "items")
    low, high, unit = schema.get(words[0]), schema.get(words[1]), words[2]
    if low is not None and len(item) < low:
        yield wrong(
            path, item if isinstance(item, str) else len(item), f"{path} in body should be at least {low} {unit}"
        )
    if high is not None and len(item) > high:
        shown = item if isinstance(item, str) else len(item)
        yield wrong(path, shown, f"{path} in body should have at most {high} {unit}")


def _is(item: Any, name: str) -> bool:
    if isinstance(item, bool):
        return name == "boolean"
    if name == "integer" and isinstance(item, float):
        return item.is_integer()
    return isinstance(item, _TYPES.get(name, (object,)))


def _name(item: Any) -> str:
    if item is None:
        return "null"
    return next((name for name in ("boolean", *_TYPES) if _is(item, name)), "object")
