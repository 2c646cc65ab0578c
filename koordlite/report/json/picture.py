"""A picture of the node as plain values: all that the rules judged, for programs and for reports of faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koordlite.model.snapshot import Snapshot

_SAID_ELSEWHERE = frozenset({"slo"})
"""`explain config` has the settings, with their origins."""


def document(snapshot: Snapshot | None) -> dict[str, Any] | None:
    """Every part of the picture under its name; None where there was none. Keys of several parts are joined by `/`."""
    if snapshot is None:
        return None
    fields = {name: getattr(snapshot, name) for name in Snapshot.__dataclass_fields__ if name not in _SAID_ELSEWHERE}
    return {_camel(name): _plain(value) for name, value in fields.items()}


def field_names(value: object) -> Iterable[str] | None:
    """The fields of a Struct or a dataclass; None of anything else."""
    names: Iterable[str] | None = getattr(value, "__struct_fields__", None)
    return getattr(value, "__dataclass_fields__", None) if names is None else names


def _plain(value: Any) -> Any:
    """Mappings by text, objects by field, the rest as JSON has it or as it prints itself."""
    if isinstance(value, msgspec.Struct) and value.__struct_encode_fields__ != value.__struct_fields__:
        # Its fields have names of their own in JSON: it is an object of the API server.
        return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    names = field_names(value)
    if names is not None:
        return {_camel(name): _plain(getattr(value, name)) for name in names}
    if hasattr(value, "items"):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return sorted(map(str, value)) if isinstance(value, frozenset | set) else str(value)


def _key(key: Any) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
