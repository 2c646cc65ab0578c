"""Values as MessagePack, and back by the types of their fields.

msgspec writes objects as maps from field to value. Three things it cannot: a CPUSet and whole numbers beyond 64 bits
are extensions, and where a field may hold objects of several classes, an object is a list of its class and its fields.
The classes that may stand in a record are found by the types of what is recorded, never listed.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from koordlite import changes, strategies
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import UNREADABLE
from koordlite.model.place import Place
from koordlite.model.settings import Memory
from koordlite.ports import ClusterView
from koordlite.record.round_record import Damage, RecordError, RoundRecord

CPUS, BIG, PLACE = 1, 2, 3
"""Codes of our extensions: a CPU list, a whole number in decimals, and a place as it prints."""
_COLLECTIONS = (tuple, list, frozenset)
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
Load = Callable[[Any], Any]
Dump = Callable[[Any], Any]


def encode(value: Any, dump: Dump | None = None) -> bytes:
    """`value` as bytes; `dump` is what `dumper` gave for its type. TypeError for what no record may hold."""
    written = dump(value) if dump else value
    try:
        return _encode(written)
    except OverflowError:
        return _encode(_boxed(written))


def decode(raw: bytes) -> Any:
    """Maps, lists, texts and numbers of `raw`, with CPU sets and large numbers. Damage when it is no MessagePack."""
    try:
        return _decode(raw)
    except UNREADABLE as error:
        raise Damage(f"a frame does not hold what it should: {error}") from error


def _custom(value: Any) -> Any:
    if isinstance(value, CPUSet):
        return msgspec.msgpack.Ext(CPUS, str(value).encode())
    if isinstance(value, Place):
        return msgspec.msgpack.Ext(PLACE, str(value).encode())
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot stand in a record")


def _extension(code: int, data: memoryview) -> Any:
    text = bytes(data).decode()
    if code == CPUS:
        return CPUSet.parse(text)
    if code == BIG:
        return int(text)
    if code == PLACE:
        return changes.parse(text)
    raise ValueError(f"there is no extension {code}")


_encode = msgspec.msgpack.Encoder(enc_hook=_custom).encode
_decode = msgspec.msgpack.Decoder(ext_hook=_extension).decode


def _boxed(value: Any) -> Any:
    """`value` with an extension for each number beyond 64 bits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if _SMALLEST <= value <= _LARGEST else msgspec.msgpack.Ext(BIG, str(value).encode())
    if isinstance(value, Mapping):
        return {key: _boxed(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_boxed(each) for each in value]
    cls: Any = type(value)
    if isinstance(value, msgspec.Struct):
        written = zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True)
        return {there: _boxed(getattr(value, here)) for there, here in written}
    if cls in vocabulary():
        return {name: _boxed(getattr(value, name)) for name in field_types(cls)} or value
    return value


@functools.cache
def dumper(hint: Any) -> Dump | None:
    """Function that makes values of this type ready to be written; None where they are as they stand."""
    objects = kinds(hint)
    if len(objects) > 1:
        return _dump_named
    if objects:
        return functools.partial(_dump_object, objects[0]) if _dumps(objects[0]) else None
    items = [item for member in members(hint) if (item := _item(member)) is not None]
    dumps = list(filter(None, map(dumper, items)))
    return functools.partial(_dump_items, dumps[0]) if dumps else None


def _dump_named(value: Any) -> Any:
    if not is_object(type(value)):
        return value
    name = vocabulary().get(type(value))
    if name is None:
        raise TypeError(f"{type(value).__name__} cannot stand in a record")
    return [name, _dump_object(type(value), value)]


@functools.cache
def _dumps(cls: type) -> Mapping[str, Dump]:
    """Fields of a class in which objects are named."""
    return {name: dump for name, hint in field_types(cls).items() if (dump := dumper(hint)) is not None}


def _dump_object(cls: type, value: Any) -> Any:
    if not isinstance(value, cls) or not any(getattr(value, name) for name in _dumps(cls)):
        return value
    parts = {name: getattr(value, name) for name in field_types(cls)}
    return parts | {name: dump(parts[name]) for name, dump in _dumps(cls).items()}


def _dump_items(dump: Dump, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: dump(part) for key, part in value.items()}
    return None if value is None else [dump(part) for part in value]


def _item(hint: Any) -> Any:
    """Type of the items of a collection; None for anything else."""
    if _is_mapping(hint):
        return typing.get_args(hint)[1]
    return typing.get_args(hint)[0] if typing.get_origin(hint) in _COLLECTIONS else None


@functools.cache
def loader(hint: Any) -> Load:
    """Function that makes a value of this type from what `decode` gave; see `build_object` for the errors."""
    if members(hint) != (hint,):
        return _load_union(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return functools.partial(_one_of, arguments)
    if origin in _COLLECTIONS or _is_mapping(hint):
        return _load_collection(origin, arguments)
    if kinds(hint):
        return _load_objects(kinds(hint))
    enumeration: bool = isinstance(hint, type) and issubclass(hint, enum.Enum)
    return typing.cast(Load, hint) if enumeration else functools.partial(_checked, _accepted((hint,)))


def _is_mapping(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _load_collection(origin: Any, members: tuple[Any, ...]) -> Load:
    if issubclass(origin, Mapping):
        key, part = map(loader, members)
        return lambda value: {key(name): part(each) for name, each in _checked((dict,), value).items()}
    if origin is tuple and members[-1] is not ...:
        loads = tuple(map(loader, members))
        return lambda value: tuple(load(part) for load, part in zip(loads, value, strict=True))
    load = loader(members[0])
    return lambda value: origin(map(load, _checked((list, tuple), value)))


def _load_union(hint: Any) -> Load:
    """Objects are maps or lists; besides them a union has classes whose values stand for themselves."""
    joined = members(hint)
    if len(joined) == 1:
        load = loader(joined[0])
        return lambda value: None if value is None else load(value)
    leaves = tuple(each for each in joined if not is_object(each))
    if not all(isinstance(each, type) and not issubclass(each, enum.Enum) for each in leaves):
        raise TypeError(f"a record cannot tell the members of {hint} apart")
    plain = _accepted((*leaves, types.NoneType) if types.NoneType in typing.get_args(hint) else leaves)
    if not kinds(hint):
        return functools.partial(_checked, plain)
    whole = _load_objects(kinds(hint))
    return lambda value: whole(value) if isinstance(value, dict | list | tuple) else _checked(plain, value)


def _accepted(leaves: tuple[type, ...]) -> tuple[type, ...]:
    """A whole number may stand where a float is asked for, and anything where Any is."""
    return tuple(object if each is Any else each for each in (*leaves, *([int] if float in leaves else [])))


def _load_objects(objects: tuple[type, ...]) -> Load:
    if len(objects) == 1:
        return functools.partial(build_object, objects[0])
    return _load_named


def _load_named(value: Any) -> Any:
    name, fields = _checked((list, tuple), value)
    cls = class_named(name)
    if cls is None:
        raise RecordError(f"this koordlite has no class {name}: it was renamed or removed since")
    return build_object(cls, fields)


def build_object(cls: Any, value: Any) -> Any:
    """An object of `cls` from its fields. RecordError names a field that this koordlite does not have, or one that the
    record does not have and that has no default. Damage when a field holds something else than its type says."""
    if not isinstance(value, dict):
        raise Damage(f"{type(value).__name__} stands where a {named(cls)} is expected")
    loads, fields = _loads(cls), {}
    for written, part in value.items():
        if written not in loads:
            raise RecordError(f"{named(cls)} has no field {written} in this koordlite: it was renamed or removed since")
        name, load = loads[written]
        if load is not None:
            fields[name] = load(part)
    try:
        return cls(**fields)
    except TypeError as error:
        missing = [name for name in field_types(cls) if name not in fields]
        raise RecordError(f"{named(cls)} lacks {' or '.join(missing)} in the record: {error}") from error


def named(cls: type) -> str:
    """Name of a class in messages."""
    return vocabulary().get(cls, cls.__qualname__)


@functools.cache
def _loads(cls: Any) -> Mapping[str, tuple[str, Load | None]]:
    """Name and loader of a field by its written name; None for what an object works out itself."""
    hints = field_types(cls)
    if issubclass(cls, msgspec.Struct):
        written = zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True)
        return {there: (here, loader(hints[here])) for there, here in written}
    every = cls.__dataclass_fields__
    return {name: (name, loader(hints[name]) if name in hints else None) for name in every}


def _one_of(values: tuple[Any, ...], value: Any) -> Any:
    if value not in values:
        raise Damage(f"{value!r} is none of {', '.join(map(repr, values))}")
    return value


def _checked(expected: tuple[type, ...], value: Any) -> Any:
    if isinstance(value, expected):
        return value
    raise Damage(f"{type(value).__name__} stands where {' or '.join(e.__name__ for e in expected)} is expected")


@functools.cache
def vocabulary() -> Mapping[type, str]:
    """Every class that a round, a change, a strategy's settings or the cluster's view is made of, with its name in
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
def class_named(name: str) -> type | None:
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
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


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
    visited: set[type] = set()
    todo: list[Any] = list(roots)
    while todo:
        each = todo.pop()
        todo += typing.get_args(each)
        if each not in visited and (is_object(each) or (isinstance(each, type) and issubclass(each, enum.Enum))):
            visited.add(each)
            yield each
            todo += field_types(each).values()
