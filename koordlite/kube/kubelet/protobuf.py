"""Just enough of protocol buffers to read a few messages: fields by number, no schema, no generated code."""

from __future__ import annotations

from collections.abc import Iterator

Value = int | bytes
"""A varint or fixed number, or the bytes of a text, a message, or packed numbers."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


def fields(raw: bytes) -> Iterator[tuple[int, Value]]:
    """Field number and value, in order; ValueError when `raw` is no message."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise ValueError("field number 0")
        value: Value
        if wire_type == _VARINT:
            value, at = _varint(raw, at)
        elif wire_type == _BYTES:
            length, at = _varint(raw, at)
            value, at = _piece(raw, at, length)
        elif wire_type in (_FIXED64, _FIXED32):
            piece, at = _piece(raw, at, 8 if wire_type == _FIXED64 else 4)
            value = int.from_bytes(piece, "little")
        else:
            raise ValueError(f"wire type {wire_type}")
        yield number, value


def text(value: Value) -> str:
    """The value of a string field; ValueError when it is none."""
    return _bytes(value).decode()


def message(value: Value) -> bytes:
    """The value of a message field; ValueError when it is none."""
    return _bytes(value)


def numbers(value: Value) -> Iterator[int]:
    """Values of a repeated int64 field, packed or not; ValueError when it is none."""
    if isinstance(value, int):
        yield signed(value)
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield signed(number)


def signed(value: Value) -> int:
    """An int64: the upper half of the 64 bits is negative. ValueError when it is no number."""
    if not isinstance(value, int):
        raise ValueError("a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("text or a message was expected")
    return value


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(raw[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + count + 1
    raise ValueError("a number does not end")


def _piece(raw: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length > len(raw) - at:
        raise ValueError("the message is cut off")
    return raw[at : at + length], at + length
