"""JSON documents of other people, read as Go reads them, with every mistake noted instead of thrown.

Names match without regard to case, `null` is unset, a repeated name's last value wins, unknown names are ignored (and
reported). A value of the wrong type spoils the whole document; a value out of range spoils the object it stands in.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from koordlite.model.errors import Problem

_INT64 = 2**63


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One name a document may hold: what it means to us, its type and range."""

    attribute: str
    """The attribute of our value that it fills."""
    kind: type
    """bool, int, float or str."""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    """Exclusive lower bound."""
    words: tuple[str, ...] = ()
    """The words that mean something; the first is what any other word means."""

    def out_of_range(self, value: float) -> str:
        """Why `value` is outside the range, empty when it is inside."""
        if self.above is not None and value <= self.above:
            return f"not above {self.above:g}"
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            return f"below {self.low:g}" if self.high is None else f"not within {self.low:g} to {self.high:g}"
        return ""


class Document:
    """One JSON text on its way to values; `problems` fills up, `broken` says that it must not be used."""

    def __init__(self, owner: str, key: str, meanwhile: str) -> None:
        self.owner, self.key, self.meanwhile = owner, key, meanwhile
        self.problems: list[Problem] = []
        self.broken = False

    def decode(self, text: str) -> Any:
        """The decoded text; None, and `broken`, when it is not JSON."""
        try:
            return json.loads(text, parse_constant=_refuse)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno} column {error.colno}"
            lines = text.split("\n")
            self.spoil("", lines[error.lineno - 1], f"not JSON: {error.msg} at {where}")
        except (ValueError, RecursionError) as error:
            self.spoil("", text, f"not usable JSON: {error}")
        return None

    def object(self, value: Any, path: str, known: Collection[str]) -> dict[str, Any]:
        """The members of a JSON object by their proper names, without nulls; others than `known` are reported."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.spoil(path, value, f"{_word(value)} where an object is needed")
            return {}
        proper = {name.lower(): name for name in known}
        members: dict[str, Any] = {}
        for name, member in value.items():
            canonical = name if name in known else proper.get(name.lower())
            if canonical is None:
                self._unknown(_join(path, printable(name)), name, known)
            elif member is not None:
                members[canonical] = member
        return members

    def items(self, value: Any, path: str) -> Sequence[Any]:
        """The elements of a JSON list; nothing for null."""
        if value is not None and not isinstance(value, list):
            self.spoil(path, value, f"{_word(value)} where a list is needed")
            return ()
        return value or ()

    def values(
        self, members: Mapping[str, Any], table: Mapping[str, Field], path: str, meanwhile: str
    ) -> dict[str, Any] | None:
        """The given values of `table` by name, or None when one is out of range; `meanwhile` says what holds then."""
        found: dict[str, Any] = {}
        usable = True
        for name, field in table.items():
            value: Any = members.get(name)
            where = _join(path, name)
            unset = value is None or (field.kind is str and value == "")
            if unset or not self._typed(value, field, where):
                continue
            why = field.out_of_range(value) if field.kind in (int, float) else ""
            if why:
                self.note(where, value, why, f"mend it; {meanwhile}")
                usable = False
            found[name] = self._word(value, field, where)
        return found if usable else None

    def text(self, members: Mapping[str, Any], name: str, path: str) -> str:
        """A text member, empty when absent."""
        value = members.get(name, "")
        if not isinstance(value, str):
            self.spoil(_join(path, name), value, f"{_word(value)} where text is needed")
            return ""
        return value

    def spoil(self, path: str, value: Any, why: str) -> None:
        """Note a mistake that makes the whole document unusable."""
        self.broken = True
        self.note(path, value, why, f"mend it; {self.meanwhile}")

    def note(self, path: str, value: Any, why: str, do: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem(self.owner, _join(self.key, path), _shown(value)[:120], why, do))

    def _typed(self, value: Any, field: Field, path: str) -> bool:
        if field.kind is float and type(value) is int:
            fits = True
        elif field.kind is int:
            fits = type(value) is int and -_INT64 <= value < _INT64
        else:
            fits = type(value) is field.kind
        if not fits or (isinstance(value, float) and not math.isfinite(value)):
            self.spoil(path, value, f"{_word(value)} where {_NEEDED[field.kind]} is needed")
            return False
        return True

    def _word(self, value: Any, field: Field, path: str) -> Any:
        if not field.words or value in field.words:
            return value
        self.note(path, value, f"not one of {', '.join(field.words)}", f"write one of them; it means {field.words[0]}")
        return field.words[0]

    def _unknown(self, path: str, name: str, known: Collection[str]) -> None:
        close = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1)
        meant = next((each for each in known if close and each.lower() == close[0]), "")
        do = f"did you mean {meant}? It is ignored" if meant else "it is ignored; remove it"
        self.note(path, name, "unknown key", do)


_NEEDED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _word(value: Any) -> str:
    words: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return words.get(type(value), "a number")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "{…}" if isinstance(value, dict) else "[…]"
    return value if isinstance(value, str) else json.dumps(value)


def printable(name: str) -> str:
    """A name from a document, fit for a message: in one line, without control characters, at most 60 characters."""
    return (name if name.isprintable() else ascii(name))[:60]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")
