"""Messages of protocol buffers from declared fields: no schema file, no generated code.

A message is a class with `@declared` whose fields are `wire(NUMBER, KIND)`. The same declaration reads and
writes it. Fields that are not declared are skipped, as the protocol wants it of whoever is older than its peer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, dataclass_transform

M = TypeVar("M")

MOST_ITEMS = 200_000
"""Messages and entries within one message. An empty one takes two bytes on the wire and hundreds in memory."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_WORD = 1 << 64


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """Wire type of a field."""

    wire_type: int
    decode: Callable[[Any, _Budget], Any]
    """Reader of the number or the bytes on the wire; ValueError when they are none of this kind."""
    encode: Callable[[Any], bytes]
    """The value with its length where it has one, without the field's key."""
    repeated: bool = False
    optional: bool = False
    """Present and zero differ from absent."""
    mapping: bool = False
    packed: bool = False
    """Several numbers may come as one field of bytes."""


class _Budget:
    """Counts the items of one message."""

    def __init__(self) -> None:
        self.remaining = MOST_ITEMS

    def spend(self) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise ValueError(f"more than {MOST_ITEMS} items in one message")


_FIELDS: dict[type[Any], tuple[tuple[str, int, Kind], ...]] = {}
"""Name, number and kind of the fields of each message."""
_BY_NUMBER: dict[type[Any], dict[int, tuple[str, Kind]]] = {}


def _varint(number: int) -> bytes:
    number %= _WORD
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(raw: bytes) -> bytes:
    return _varint(len(raw)) + raw


def _signed(value: int, _: _Budget) -> int:
    return value - _WORD if value >= _WORD >> 1 else value


def _text(raw: bytes, _: _Budget) -> str:
    return str(raw, "utf-8")


STRING = Kind(_BYTES, _text, lambda text: _sized(text.encode()))
BYTES = Kind(_BYTES, lambda raw, _: bytes(raw), _sized)
INT = Kind(_VARINT, _signed, _varint)
"""int64, int32 and enum."""
UINT = Kind(_VARINT, lambda number, _: number, _varint)
INTS = Kind(_VARINT, _signed, _varint, repeated=True, packed=True)
"""Repeated int64, packed or not."""
STRINGS = Kind(_BYTES, STRING.decode, STRING.encode, repeated=True)
BOOL = Kind(_VARINT, lambda number, _: bool(number), lambda value: _varint(int(value)))


def message(of: Callable[[], type[Any]], *, repeated: bool = False) -> Kind:
    """A message within a message; without `repeated` it is None where it is absent."""
    return Kind(
        _BYTES,
        lambda raw, budget: _decode(of(), raw, budget),
        lambda value: _sized(encode(value)),
        repeated=repeated,
        optional=not repeated,
    )


def wrapper(inner: Kind) -> Kind:
    """A message whose only field, number 1, is the value: with it 0 can be told from nothing."""

    def unwrapped(raw: bytes, budget: _Budget) -> Any:
        value = inner.decode(b"" if inner.wire_type == _BYTES else 0, budget)
        for number, wire_type, item in _fields(raw):
            if number == 1 and wire_type == inner.wire_type:
                value = inner.decode(item, budget)
        return value

    return Kind(
        _BYTES, unwrapped, lambda value: _sized(_key(1, inner) + inner.encode(value) if value else b""), optional=True
    )


def _entry(raw: bytes, budget: _Budget) -> tuple[str, str]:
    parts = {1: "", 2: ""}
    for number, wire_type, item in _fields(raw):
        if number in parts and wire_type == _BYTES:
            parts[number] = _text(item, budget)
    return parts[1], parts[2]


MAP = Kind(
    _BYTES,
    _entry,
    lambda pair: _sized(
        _key(1, STRING) + STRING.encode(pair[0]) + (_key(2, STRING) + STRING.encode(pair[1]) if pair[1] else b"")
    ),
    mapping=True,
)
"""Map from strings to strings."""


def wire(number: int, kind: Kind) -> Any:
    """The field of a message with this number."""
    named = {"number": number, "kind": kind}
    if kind.mapping:
        return dataclasses.field(default_factory=dict, metadata=named)
    if kind.optional:
        return dataclasses.field(default=None, metadata=named)
    empty = () if kind.repeated else kind.decode(b"" if kind.wire_type == _BYTES else 0, _Budget())
    return dataclasses.field(default=empty, metadata=named)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def declared(of: type[M]) -> type[M]:
    """Make the class a message: a frozen dataclass, all of whose fields have defaults."""
    cls = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(of)
    _FIELDS[cls] = tuple((f.name, f.metadata["number"], f.metadata["kind"]) for f in dataclasses.fields(cls))  # type: ignore[arg-type]
    _BY_NUMBER[cls] = {number: (name, kind) for name, number, kind in _FIELDS[cls]}
    return cls


def decode(of: type[M], raw: bytes) -> M:
    """The message that `raw` holds; ValueError when it holds none, or more than is good for us."""
    return _decode(of, raw, _Budget())


def encode(value: Any) -> bytes:
    """The message on the wire; what is at its default is left out."""
    out: list[bytes] = []
    for name, number, kind in _FIELDS[type(value)]:
        item = getattr(value, name)
        items: Any = item.items() if kind.mapping else item if kind.repeated else (item,)
        if not item and (item is None or not kind.optional):
            continue
        key = _key(number, kind)
        out += (key + kind.encode(each) for each in items)
    return b"".join(out)


def _key(number: int, kind: Kind) -> bytes:
    return _varint(number << 3 | kind.wire_type)


def _decode(of: type[M], raw: bytes, budget: _Budget) -> M:
    table = _BY_NUMBER[of]
    values: dict[str, Any] = {}
    for number, wire_type, item in _fields(raw):
        if number not in table:
            continue
        name, kind = table[number]
        if kind.packed and wire_type == _BYTES:
            at = 0
            while at < len(item):
                value, at = _read_varint(item, at)
                values.setdefault(name, []).append(kind.decode(value, budget))
            continue
        if wire_type != kind.wire_type:
            raise ValueError(f"{of.__name__}.{name}: wire type {wire_type} in place of {kind.wire_type}")
        budget.spend()
        value = kind.decode(item, budget)
        if kind.mapping:
            values.setdefault(name, {})[value[0]] = value[1]
        elif kind.repeated:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return of(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def _fields(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field, in order; ValueError when `raw` is no message."""
    at, end = 0, len(raw)
    while at < end:
        key, at = _read_varint(raw, at)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise ValueError("field number 0")
        if wire_type == _VARINT:
            value, at = _read_varint(raw, at)
            yield number, wire_type, value
            continue
        if wire_type == _BYTES:
            length, at = _read_varint(raw, at)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if length > end - at:
            raise ValueError("the message is cut off")
        yield number, wire_type, raw[at : at + length]
        at += length


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    if at < len(raw) and raw[at] < 0x80:
        return raw[at], at + 1
    value = 0
    for count, byte in enumerate(raw[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value % _WORD, at + count + 1
    raise ValueError("a number does not end")
