"""Values of the vocabulary as lists, numbers and text, and back. What comes back equals what went in.

Numbers, text, True, False and None stand for themselves; everything else is a list whose first element says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordlite.model.cpuset import CPUSet
from koordlite.record import words
from koordlite.record.damage import Damage

TUPLE, MAPPING, SET, CPUS, LIST, BIG = range(6)
"""Marks at the head of a list; numbers from `words.FIRST_CODE` on are classes."""
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_ITSELF = (float, str, bool, type(None), bytes)


def plain(value: Any) -> Any:
    """`value` as something that msgpack and JSON can write. TypeError for what is not in the vocabulary."""
    kind = type(value)
    if kind is int:
        return value if _SMALLEST <= value <= _LARGEST else [BIG, str(value)]
    if kind in _ITSELF:
        return value
    word = words.vocabulary().get(kind)
    if word is not None:
        return [words.codes()[kind], *map(plain, word.values(value))]
    return _collection(value)


def _collection(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [TUPLE, *map(plain, value)]
    if isinstance(value, Mapping):
        return [MAPPING, *(plain(part) for pair in value.items() for part in pair)]
    if isinstance(value, CPUSet):
        return [CPUS, str(value)]
    if isinstance(value, frozenset):
        return [SET, *map(plain, sorted(value))]
    if isinstance(value, list):
        return [LIST, *map(plain, value)]
    raise TypeError(f"{type(value).__name__} is not in the vocabulary of records")


class Builder:
    """Makes values of plain ones, with the table of classes that the record brought along.

    Fields this version does not have are left out, those the record does not have get their defaults: a record
    outlives an upgrade. Damage when that cannot be done.
    """

    def __init__(self, table: list[list[Any]]) -> None:
        known = {word.name: word for word in words.vocabulary().values()}
        self._names = [str(name) for name, _ in table]
        self._words = [known.get(name) for name in self._names]
        self._fields = [tuple(map(str, fields)) for _, fields in table]
        self._usable = [
            frozenset(word.fields).intersection(fields) if word else frozenset[str]()
            for word, fields in zip(self._words, self._fields, strict=True)
        ]
        self._by_class = {word.made: at for at, word in enumerate(self._words) if word}

    def build(self, value: Any) -> Any:
        """The value that `plain` was given."""
        if not isinstance(value, list):
            return value
        if not value or not isinstance(value[0], int):
            raise Damage("a list does not say what it is")
        if value[0] >= words.FIRST_CODE:
            return self._object(value[0] - words.FIRST_CODE, value[1:])
        make = _MAKERS.get(value[0])
        if make is None:
            raise Damage(f"there is no mark {value[0]}")
        return make(self, value[1:])

    def fields_of(self, value: Any) -> tuple[tuple[str, ...], frozenset[str]]:
        """Names of the fields of `value` as the record counts them, and those of them that this version has."""
        at = self._by_class.get(type(value))
        if at is None:
            raise Damage(f"{type(value).__name__} has no fields in this record")
        return self._fields[at], self._usable[at]

    def _object(self, at: int, parts: list[Any]) -> Any:
        word = self._words[at] if at < len(self._words) else None
        if word is None:
            name = self._names[at] if at < len(self._names) else f"number {at}"
            raise Damage(f"this version of koordlite has no {name}")
        if word.is_enum:
            return word.made(self.build(parts[0]))
        names, usable = self._fields[at], self._usable[at]
        if len(parts) != len(names):
            raise Damage(f"a {word.name} has {len(parts)} fields instead of {len(names)}")
        return word.made(**{n: self.build(part) for n, part in zip(names, parts, strict=True) if n in usable})


def _mapping(builder: Builder, parts: list[Any]) -> dict[Any, Any]:
    built = [builder.build(part) for part in parts]
    return dict(zip(built[::2], built[1::2], strict=True))


_MAKERS: Mapping[int, Callable[[Builder, list[Any]], Any]] = {
    TUPLE: lambda builder, parts: tuple(map(builder.build, parts)),
    MAPPING: _mapping,
    SET: lambda builder, parts: frozenset(map(builder.build, parts)),
    CPUS: lambda builder, parts: CPUSet.parse(parts[0]),
    LIST: lambda builder, parts: list(map(builder.build, parts)),
    BIG: lambda builder, parts: int(parts[0]),
}
