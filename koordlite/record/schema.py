"""Classes that may stand in a record, and the fields of each: found by the types of what is recorded, never listed."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koordlite import changes, strategies
from koordlite.model.memory import Memory
from koordlite.ports import ClusterView
from koordlite.record.round_record import RoundRecord


@functools.cache
def vocabulary() -> Mapping[type, str]:
    """Every class that a moment, a change, a strategy's settings or the cluster's view is made of, with its name in
    records.

    TypeError when two classes would have one name.
    """
    rules = {rule.config: rule.module for rule in strategies.discover()}
    names: dict[str, type] = {}
    for cls in _reachable(RoundRecord, ClusterView, *changes.classes(), *rules, *Memory.__subclasses__()):
        name = f"{rules.get(cls) or cls.__module__.rpartition('.')[2]}.{cls.__qualname__}"
        if names.setdefault(name, cls) is not cls:
            raise TypeError(f"two classes have the name {name} in records: rename one of them")
    return {cls: name for name, cls in sorted(names.items())}


@functools.cache
def classes() -> Mapping[str, type]:
    """Classes by their names in records."""
    return {name: cls for cls, name in vocabulary().items()}


@functools.lru_cache(maxsize=512)
def named(name: str) -> type | None:
    """The class of this name in records; None when there is none.

    The name tells the module too: a class that an earlier version had in another module is found by its own name,
    where only one class has that.
    """
    if name in classes():
        return classes()[name]
    own = name.partition(".")[2]
    alike = [cls for each, cls in classes().items() if each.partition(".")[2] == own]
    return alike[0] if len(alike) == 1 else None


@functools.cache
def field_types(cls: Any) -> Mapping[str, Any]:
    """The types of the fields that make an object of `cls`; empty for an enumeration."""
    if issubclass(cls, enum.Enum):
        return {}
    hints = typing.get_type_hints(cls)
    if issubclass(cls, msgspec.Struct):
        return {name: hints[name] for name in cls.__struct_fields__}
    made: Any = cls
    return {field.name: hints[field.name] for field in dataclasses.fields(made) if field.init}


def is_object(hint: Any) -> bool:
    """Tell whether it is a class of ours with fields."""
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct))


def members(hint: Any) -> tuple[Any, ...]:
    """The types a union joins, without what stands for an absent value; of any other type itself."""
    joined = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return tuple(each for each in joined if each not in (types.NoneType, msgspec.UnsetType))


@functools.cache
def kinds(hint: Any) -> tuple[type, ...]:
    """The classes with fields that a value of this type may have, with those derived from them."""
    bases = tuple(each for each in members(hint) if isinstance(each, type) and each is not object)
    return tuple(cls for cls in vocabulary() if is_object(cls) and issubclass(cls, bases))


def _reachable(*roots: type) -> Iterator[type]:
    found: set[type] = set()
    todo: list[Any] = list(roots)
    while todo:
        each = todo.pop()
        todo += typing.get_args(each)
        if each not in found and (is_object(each) or (isinstance(each, type) and issubclass(each, enum.Enum))):
            found.add(each)
            yield each
            todo += field_types(each).values()
