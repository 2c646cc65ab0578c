"""Which classes may stand in a record, and under which names: our vocabulary, and nothing else is ever built."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import operator
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec

from koordlite import model, strategies
from koordlite.record import moment

FIRST_CODE = 16
"""Smaller numbers at the head of a list are marks of `record.plain`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """One class of the vocabulary."""

    name: str
    """`snapshot.Use`: its module and its own name."""
    made: Callable[..., Any]
    fields: tuple[str, ...]
    """Empty for an enumeration."""
    values: Callable[[Any], tuple[Any, ...]]
    """The values of the fields, in their order."""
    is_enum: bool = False


@functools.cache
def vocabulary() -> Mapping[type, Word]:
    """Every class of the model, the sections of the strategies, and the moment; always in the same order."""
    found = [(cls, _word(cls, cls.__module__.rpartition(".")[2])) for cls in _model_classes()]
    found += [(rule.config, _word(rule.config, rule.module)) for rule in strategies.discover()]
    return dict(sorted(found, key=lambda pair: pair[1].name))


@functools.cache
def codes() -> Mapping[type, int]:
    """The number of each class in records that this version writes."""
    return {cls: number for number, cls in enumerate(vocabulary(), FIRST_CODE)}


def table() -> list[list[Any]]:
    """Names and fields of all classes, in the order of their numbers: it stands at the head of each record."""
    return [[word.name, list(word.fields)] for word in vocabulary().values()]


def _model_classes() -> Iterator[type]:
    names = sorted(found.name for found in pkgutil.iter_modules(model.__path__))
    for module in (*(importlib.import_module(f"{model.__name__}.{name}") for name in names), moment):
        yield from _own(module)


def _own(module: ModuleType) -> Iterator[type]:
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if cls.__module__ == module.__name__ and _is_value(cls):
            yield cls


def _is_value(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) or issubclass(cls, (msgspec.Struct, enum.Enum))


def _word(cls: type, home: str) -> Word:
    if issubclass(cls, enum.Enum):
        return Word(f"{home}.{cls.__qualname__}", cls, (), lambda value: (value.value,), is_enum=True)
    fields = cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else _init_fields(cls)
    return Word(f"{home}.{cls.__qualname__}", cls, tuple(fields), _getter(tuple(fields)))


def _init_fields(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
