"""Which classes may stand in a record, and under which names: our vocabulary, and nothing else is ever built."""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from koordlite import changes, strategies
from koordlite.ports import ClusterView
from koordlite.record.moment import Moment

_CHANGES = "decision"
"""The home of all changes, as records of earlier versions name it."""
FIRST_CODE = 16
"""Smaller numbers at the head of a list are marks of `record.plain`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """One class of the vocabulary."""

    name: str
    """`usage.Use`: its module and its own name."""
    made: Callable[..., Any]
    fields: tuple[str, ...]
    """Empty for an enumeration."""
    values: Callable[[Any], tuple[Any, ...]]
    """The values of the fields, in their order."""
    is_enum: bool = False


@functools.cache
def vocabulary() -> Mapping[type, Word]:
    """Every class that a moment, a section of a strategy or the cluster's view is made of; always in the same order."""
    kinds = changes.classes()
    roots = (Moment, ClusterView, *kinds, *(rule.config for rule in strategies.discover()))
    found = [
        (cls, _word(cls, _CHANGES if cls in kinds else cls.__module__.rpartition(".")[2])) for cls in _reachable(*roots)
    ]
    return dict(sorted(found, key=lambda pair: pair[1].name))


@functools.cache
def codes() -> Mapping[type, int]:
    """The number of each class in records that this version writes."""
    return {cls: number for number, cls in enumerate(vocabulary(), FIRST_CODE)}


def table() -> list[list[Any]]:
    """Names and fields of all classes, in the order of their numbers: it stands at the head of each record."""
    return [[word.name, list(word.fields)] for word in vocabulary().values()]


def _reachable(*roots: type) -> Iterator[type]:
    """Every class of ours that a value of `roots` may be made of, by the types of their fields."""
    found: set[type] = set()
    todo: list[Any] = list(roots)
    while todo:
        each = todo.pop()
        todo += typing.get_args(each)
        if isinstance(each, type) and _is_value(each) and each not in found:
            found.add(each)
            yield each
            if not issubclass(each, enum.Enum):
                todo += typing.get_type_hints(each).values()


def _is_value(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) or issubclass(cls, (msgspec.Struct, enum.Enum))


def _word(cls: type, home: str) -> Word:
    if issubclass(cls, enum.Enum):
        return Word(f"{home}.{cls.__qualname__}", cls, (), lambda value: (value.value,), is_enum=True)
    fields = cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else _init_fields(cls)
    return Word(f"{home}.{cls.__qualname__}", cls, tuple(fields), _getter(tuple(fields)))


def _home(cls: type) -> str:
    return cls.__module__.rpartition(".")[2]


def _init_fields(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
