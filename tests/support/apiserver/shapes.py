"""How fields of built-in kinds are typed: unknown fields fall away, quantities and times get their canonical form.

This is what decoding into the API's types and encoding again does to an object on a real server.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping
from typing import Any

from koordlite.model.quantity import Quantity

QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SECONDS = "2006-01-02T15:04:05Z07:00"
_MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)\Z", re.ASCII)
_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)\Z", re.ASCII)


class Mistyped(Exception):
    """A value that its field cannot hold."""


class Shape:
    """What a field may hold. This one holds anything."""

    omits_empty = False
    """Whether an empty value is as good as none."""

    def cast(self, value: Any, path: str) -> Any:
        """The value as the server keeps it; Mistyped when the field cannot hold it."""
        return value


@dataclasses.dataclass(frozen=True)
class Scalar(Shape):
    """A string, number or truth value."""

    types: tuple[type, ...]
    go: str
    omits_empty: bool = False

    def cast(self, value: Any, path: str) -> Any:
        """Itself."""
        fits = isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))
        if not fits:
            raise Mistyped(f"json: cannot unmarshal {_json_name(value)} into Go struct field {path} of type {self.go}")
        return value


class Amount(Shape):
    """A quantity, in canonical form."""

    def cast(self, value: Any, path: str) -> Any:
        """Its canonical text; numbers are accepted."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise Mistyped(QUANTITY_RULE)
        try:
            return str(Quantity.parse(value))
        except ValueError as error:
            raise Mistyped(QUANTITY_RULE) from error


@dataclasses.dataclass(frozen=True)
class RoundRecord(Shape):
    """A time: whole seconds, or exactly six digits of fraction."""

    micro: bool = False

    def cast(self, value: Any, path: str) -> Any:
        """In UTC."""
        layout = _MICROSECONDS if self.micro else _SECONDS
        if not isinstance(value, str):
            raise Mistyped(f"json: cannot unmarshal {_json_name(value)} into Go struct field {path} of type string")
        if not (_MICRO if self.micro else _TIME).match(value):
            raise Mistyped(f'parsing time "{value}" as "{layout}": cannot parse "{value}"')
        try:
            moment = datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
        except ValueError as error:
            raise Mistyped(f'parsing time "{value}": {error}') from error
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if self.micro else "%Y-%m-%dT%H:%M:%SZ")


@dataclasses.dataclass(frozen=True)
class MapOf(Shape):
    """Names to values."""

    values: Shape
    omits_empty = True

    def cast(self, value: Any, path: str) -> Any:
        """Each value cast; null values fall away."""
        if not isinstance(value, dict):
            raise Mistyped(f"json: cannot unmarshal {_json_name(value)} into Go struct field {path} of type map")
        return {key: self.values.cast(each, path) for key, each in value.items() if each is not None}


@dataclasses.dataclass(frozen=True)
class ListOf(Shape):
    """Values in order."""

    items: Shape
    omits_empty = True

    def cast(self, value: Any, path: str) -> Any:
        """Each value cast."""
        if not isinstance(value, list):
            raise Mistyped(f"json: cannot unmarshal {_json_name(value)} into Go struct field {path} of type []")
        return [self.items.cast(each, path) for each in value]


@dataclasses.dataclass(frozen=True)
class Struct(Shape):
    """Known fields. `always` holds what is written even when the client said nothing."""

    fields: Mapping[str, Shape]
    always: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_open: bool = False
    """Unknown fields are kept: this kind is not written down here field by field."""

    def cast(self, value: Any, path: str) -> Any:
        """Known fields cast, empty ones left out."""
        if not isinstance(value, dict):
            raise Mistyped(f"json: cannot unmarshal {_json_name(value)} into Go value of type {path}")
        kept = {key: self._field(key, each, path) for key, each in value.items() if each is not None}
        kept = {key: each for key, each in kept.items() if not self._omitted(key, each)}
        return {**{key: each for key, each in self.always.items() if key not in kept}, **kept}

    def _field(self, key: str, value: Any, path: str) -> Any:
        return self.fields[key].cast(value, f"{path}.{key}") if key in self.fields else value

    def _omitted(self, key: str, value: Any) -> bool:
        if key not in self.fields:
            return not self.is_open
        return self.fields[key].omits_empty and value in (0, "", {}, []) and key not in self.always


ANY = Shape()
STRING = Scalar((str,), "string", omits_empty=True)
TEXT = Scalar((str,), "string")
"""A string whose empty value differs from none."""
INTEGER = Scalar((int,), "int64")
FLAG = Scalar((bool,), "bool", omits_empty=True)
CHOICE = Scalar((bool,), "bool")
"""A truth value whose false differs from none."""
NUMBER_OR_TEXT = Scalar((int, str), "intstr.IntOrString")
QUANTITY = Amount()
TIME = RoundRecord()
MICRO_TIME = RoundRecord(micro=True)


def _json_name(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
