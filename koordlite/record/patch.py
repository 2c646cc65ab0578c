"""A value from an older one and what `record.delta` says is different. What is the same stays the same object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordlite.model.errors import KoordliteError
from koordlite.record.damage import Damage
from koordlite.record.delta import ALIGNED, CENTI, COLUMNS, FIELDS, MEMBERS, NEW, NUMBERS, SPARSE
from koordlite.record.gaps import plus
from koordlite.record.plain import Builder


class Patcher:
    """Applies differences of one record. Whatever it is given: a value, or Damage."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._ways: Mapping[int, Callable[[Any, list[Any]], Any]] = {
            NEW: lambda old, parts: builder.build(parts[0]),
            FIELDS: self._fields,
            ALIGNED: self._aligned,
            MEMBERS: self._members,
            CENTI: lambda old, parts: (round(old * 100) + parts[0]) / 100,
        }

    def patched(self, old: Any, changed: Any) -> Any:
        """The newer value. Damage when `changed` was not made for `old`."""
        try:
            return self._apply(old, changed)
        except Damage:
            raise
        except (KoordliteError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Damage(f"it does not go together with what stands before it: {error}") from error
        except RecursionError as error:
            raise Damage("it is nested too deeply") from error

    def _apply(self, old: Any, changed: Any) -> Any:
        if changed is None:
            return old
        if isinstance(changed, int):
            return old + changed
        return self._ways[changed[0]](old, changed[1:])

    def _fields(self, old: Any, parts: list[Any]) -> Any:
        names, usable = self._builder.fields_of(old)
        values = {name: getattr(old, name) for name in usable}
        for number, changed in zip(parts[::2], parts[1::2], strict=True):
            name = names[number]
            if name in usable:
                values[name] = self._apply(values[name], changed)
        return type(old)(**values)

    def _aligned(self, old: Any, parts: list[Any]) -> Any:
        keyed = isinstance(old, dict)
        order, changed, *rest = parts
        if order is None:
            values = self._items(list(old.values() if keyed else old), changed)
            return dict(zip(old, values, strict=True)) if keyed else tuple(values)
        indexes = _indexes(order)
        items = list(old.values()) if keyed else list(old)
        kept = iter(self._items([items[index] for index in indexes if index is not None], changed))
        came = iter([self._builder.build(part) for part in rest[0]])
        if not keyed:
            return tuple(next(came) if index is None else next(kept) for index in indexes)
        keys = list(old)
        return dict((next(came), next(came)) if index is None else (keys[index], next(kept)) for index in indexes)

    def _items(self, old: list[Any], changed: Any) -> list[Any]:
        if changed is None:
            return old
        way, *rest = changed
        if way == NUMBERS:
            return plus(old, rest[0])
        if way == COLUMNS:
            return self._columns(old, rest)
        return self._sparse(old, rest) if way == SPARSE else _mismatch()

    def _columns(self, old: list[Any], columns: list[bytes | None]) -> list[Any]:
        names, usable = self._builder.fields_of(old[0])
        kept = [[getattr(item, name) for item in old] if name in usable else [] for name in names]
        moved = {name: plus(now, gap) for name, now, gap in zip(names, kept, columns, strict=True) if name in usable}
        rows = zip(*moved.values(), strict=True)
        return [type(item)(**dict(zip(moved, row, strict=True))) for item, row in zip(old, rows, strict=True)]

    def _sparse(self, old: list[Any], parts: list[Any]) -> list[Any]:
        values, at = list(old), 0
        for skipped, changed in zip(parts[::2], parts[1::2], strict=True):
            at += skipped
            values[at] = self._apply(values[at], changed)
            at += 1
        return values

    def _members(self, old: Any, parts: list[Any]) -> Any:
        left, came = (frozenset(self._builder.build(part)) for part in parts)
        return (old - left) | came


def _indexes(order: list[int | None]) -> list[int | None]:
    found: list[int | None] = []
    expected = 0
    for gap in order:
        index = None if gap is None else expected + gap
        if index is not None:
            if index < 0:
                _mismatch()
            expected = index + 1
        found.append(index)
    return found


def _mismatch() -> Any:
    raise Damage("items do not go together with those before them")
