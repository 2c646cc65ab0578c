"""A round as what changed since the one before it, in MessagePack.

A frame is a map from field to what it holds now: a list of one for the whole value, or a map from place to value for
the items of a tuple or mapping that changed while its order stayed. Whether something changed is asked of the bytes:
equal values can differ in their types or their order. Fields of the picture have `seen.` before their names.
"""

from __future__ import annotations

import functools
import hashlib
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite.model.snapshot import Snapshot
from koordlite.record import codec
from koordlite.record.round_record import Damage, RecordError, RoundRecord

_SNAPSHOT = "snapshot."
_MARK_BYTES = 16


class _Field(msgspec.Struct, frozen=True):
    """Writer and reader of a field of a round or of its picture."""

    hint: Any
    item: Any
    """Type of the items; None where the value is always written whole."""

    def items(self, value: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
        """Mark that the order is the same, and the items; None where the value is written whole."""
        if self.item is None:
            return None
        if isinstance(value, Mapping):
            return (tuple(value), tuple(map(type, value))), list(value.values())
        return (len(value),), list(value)


@functools.cache
def _fields() -> Mapping[str, _Field]:
    hints = {name: hint for name, hint in codec.field_types(RoundRecord).items() if name != "snapshot"}
    hints |= {_SNAPSHOT + name: hint for name, hint in codec.field_types(Snapshot).items()}
    return {name: _Field(hint, _item(hint)) for name, hint in hints.items()}


def _item(hint: Any) -> Any:
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return members[1]
    return members[0] if origin is tuple and members[-1] is ... else None


class _Written(msgspec.Struct):
    value: Any
    mark: bytes = b""
    order: tuple[Any, ...] = ()
    items: list[Any] = msgspec.field(default_factory=list)
    marks: bytearray = msgspec.field(default_factory=bytearray)
    """Marks of the items, one after another: an object for each would be three times as large."""


class DifferenceWriter:
    """Gives each round as its difference from the one before."""

    def __init__(self) -> None:
        self._before: dict[str, _Written] = {}

    def frame(self, record: RoundRecord) -> bytes:
        """Frame that a reader needs besides those before it."""
        frame: dict[str, Any] = {}
        for name, field in _fields().items():
            owner = record.snapshot if name.startswith(_SNAPSHOT) else record
            value = getattr(owner, name.removeprefix(_SNAPSHOT))
            before = self._before.get(name)
            if before is None or before.value is not value:
                self._before[name], changed = _compared(field, value, before)
                if changed:
                    frame[name] = changed
        return codec.encode(frame)


def _compared(field: _Field, value: Any, before: _Written | None) -> tuple[_Written, Any]:
    items = field.items(value)
    if items is None:
        raw = codec.encode(value, codec.dumper(field.hint))
        mark = _mark(raw)
        same = before is not None and mark == before.mark
        return _Written(value, mark), None if same else [msgspec.Raw(raw)]
    dump = codec.dumper(field.item)
    order, now = items
    if before is None or before.order != order:
        whole = [msgspec.Raw(codec.encode(value, codec.dumper(field.hint)))]
        # When a container begins, nearly all items stay the same objects: `before` keeps them, so no id is used again.
        by_id = {id(old): _of(before.marks, at) for at, old in enumerate(before.items)} if before else {}
        marks = bytearray().join(by_id.get(id(each)) or _mark(codec.encode(each, dump)) for each in now)
        return _Written(value, order=order, items=now, marks=marks), whole
    marks, changed = bytearray(before.marks), {}
    for at, (each, old) in enumerate(zip(now, before.items, strict=True)):
        if each is old:
            continue
        part = codec.encode(each, dump)
        mark = _mark(part)
        if mark != _of(marks, at):
            marks[at * _MARK_BYTES : (at + 1) * _MARK_BYTES], changed[at] = mark, msgspec.Raw(part)
    return _Written(value, order=order, items=now, marks=marks), changed


def _mark(raw: bytes) -> bytes:
    """Fingerprint that tells `raw` from other bytes, and takes less memory: a full node's are 2 MiB. A cryptographic
    digest, since tenants choose some of the bytes."""
    return hashlib.blake2b(raw, digest_size=_MARK_BYTES).digest()


def _of(marks: bytearray, at: int) -> bytes:
    return bytes(marks[at * _MARK_BYTES : (at + 1) * _MARK_BYTES])


class DifferenceReader:
    """Gives the rounds again. What did not change stays the same object."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._snapshot: Snapshot | None = None

    def read(self, raw: bytes) -> RoundRecord:
        """The round in a frame. Damage when there is none, RecordError when this koordlite has other fields."""
        frame = codec.decode(raw)
        if not isinstance(frame, dict):
            raise Damage("a frame holds something else than a moment")
        try:
            self._take(frame)
        except RecordError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise Damage(f"a frame does not go together with what stands before it: {error}") from error
        if self._snapshot is None or any(name.startswith(_SNAPSHOT) for name in frame):
            self._snapshot = _made(Snapshot, _SNAPSHOT, self._values)
        own = {name: value for name, value in self._values.items() if not name.startswith(_SNAPSHOT)}
        return typing.cast(RoundRecord, _made(RoundRecord, "", {**own, "snapshot": self._snapshot}))

    def _take(self, frame: dict[str, Any]) -> None:
        for name, changed in frame.items():
            field = _fields().get(name)
            if field is None:
                owner = Snapshot if name.startswith(_SNAPSHOT) else RoundRecord
                own = name.removeprefix(_SNAPSHOT)
                raise RecordError(
                    f"{codec.named(owner)} has no field {own} in this koordlite: it was renamed or removed since"
                )
            if isinstance(changed, list):
                self._values[name] = codec.loader(field.hint)(changed[0])
                continue
            old, load = self._values[name], codec.loader(field.item)
            items = list(old.values() if isinstance(old, dict) else old)
            for at, value in changed.items():
                items[at] = load(value)
            self._values[name] = dict(zip(old, items, strict=True)) if isinstance(old, dict) else tuple(items)


def _made(cls: Any, prefix: str, values: Mapping[str, Any]) -> Any:
    try:
        return cls(**{name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)})
    except TypeError as error:
        raise RecordError(f"{codec.named(cls)} in the record lacks what this koordlite needs: {error}") from error
