"""The difference between two values, and a value from an older one and the difference.

Most of a picture is the same as a second ago, and most of the rest are numbers that moved a little. None: the same.
A number: so much more than before. A list says by its first element what it is:

    NEW       the whole value
    FIELDS    of an object: number of a field, difference, …
    ALIGNED   of a tuple or mapping: which old items it still has, their differences, and the items that came
    MEMBERS   of a set: who left, who came
    CENTI     of a number with two decimals: so many hundredths more
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.record import words
from koordlite.record.gaps import gaps
from koordlite.record.plain import plain

NEW, FIELDS, ALIGNED, MEMBERS, CENTI = range(5)
SPARSE, COLUMNS, NUMBERS = range(3)
"""How differences of aligned items are written: those that changed with their distance; objects of whole numbers
field by field; whole numbers."""
NOTHING: Mapping[str, Any] = types.MappingProxyType({})
"""A mapping without anything that stays the same object."""
_WHOLE = frozenset((int, float, str, bool, bytes, type(None), CPUSet))
"""What has no parts."""
_encode = msgspec.msgpack.Encoder().encode
_VOCABULARY = words.vocabulary()
_MOST = 1 << 62
_LABELS = ("uid", "subject", "place", "id", "name", "pid", "field")


def difference(new: Any, old: Any) -> Any:
    """What has to be known besides `old` to have `new`.

    Equal is not enough to be the same: 1 equals 1.0 and True, and mappings are equal in any order. Whoever reads has to
    end up with the same in every respect, or the next difference would not fit. The sign of a zero alone is not kept.
    """
    if new is old:
        return None
    kind = type(new)
    if kind is not type(old):
        return [NEW, plain(new)]
    if kind in _WHOLE:
        return None if new == old else _moved(kind, new, old)
    return _of_parts(kind, new, old)


def _of_parts(kind: type, new: Any, old: Any) -> Any:
    if kind is Decision and _same_decision(new, old):
        return None
    if kind is tuple:
        return _tuple(new, old)
    if kind in _VOCABULARY:
        return _fields(_VOCABULARY[kind], new, old)
    if kind is dict or isinstance(new, Mapping):
        if set(map(type, new)) != set(map(type, old)):
            return [NEW, plain(new)]  # A class of pods equals its name, and is not the same.
        return None if _same_amounts(new, old) else _mapping(new, old)
    return _other(new, old)


def _same_decision(new: Decision, old: Decision) -> bool:
    """Hundreds of decisions are made anew each second and say the same: as bytes that is seen the quickest.

    Bytes keep the order of the evidence and the kinds of its numbers. They do not tell kinds of changes apart.
    """
    if new.changes or old.changes:
        return False
    try:
        return _encode(new) == _encode(old)
    except (TypeError, OverflowError):
        return False  # A number beyond 64 bits, or a mapping that is no dict.


def _moved(kind: type, new: Any, old: Any) -> Any:
    if kind is int and -_MOST < new - old < _MOST:
        return new - old
    return _decimals(new, old) if kind is float else [NEW, plain(new)]


def _same_amounts(new: Mapping[Any, Any], old: Mapping[Any, Any]) -> bool:
    """A quick look for the most common case: the same keys with the same numbers and texts."""
    if new != old or list(new) != list(old):
        return False
    kinds = [*map(type, new.values())]
    return _WHOLE.issuperset(kinds) and kinds == [*map(type, old.values())]


def _mapping(new: Mapping[Any, Any], old: Mapping[Any, Any]) -> list[Any] | None:
    return _aligned(list(new), list(old), list(new.values()), list(old.values()), keyed=True)


def _other(new: Any, old: Any) -> list[Any] | None:
    if isinstance(new, frozenset):
        left, came = plain(tuple(sorted(old - new))), plain(tuple(sorted(new - old)))
        return [MEMBERS, left, came] if new != old else None
    return [NEW, plain(new)]


def _decimals(new: float, old: float) -> list[Any]:
    """Pressure has two decimals: as whole hundredths it takes two bytes instead of nine."""
    if abs(new) < 1e6 and abs(old) < 1e6:
        now, then = round(new * 100), round(old * 100)
        if now / 100 == new and then / 100 == old:
            return [CENTI, now - then]
    return [NEW, new]


def _fields(word: words.Word, new: Any, old: Any) -> list[Any] | None:
    if word.is_enum:
        return [NEW, plain(new)]
    parts: list[Any] = [FIELDS]
    number = 0
    for now, then in zip(word.values(new), word.values(old), strict=True):
        if now is not then and (changed := difference(now, then)) is not None:
            parts += (number, changed)
        number += 1  # noqa: SIM113 - enumerate makes a tuple for each field of hundreds of decisions
    return parts if len(parts) > 1 else None


def _tuple(new: tuple[Any, ...], old: tuple[Any, ...]) -> list[Any] | None:
    """Most often the same items stand in the same order: that is found without sorting them by their labels."""
    if len(new) == len(old) and _same_order(new, old):
        return _in_place(list(new), list(old))
    return _aligned(_labels(new), _labels(old), list(new), list(old), keyed=False)


def _same_order(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    kinds = set(map(type, new))
    if len(kinds) != 1 or kinds != set(map(type, old)):
        return all(now is then or _label(now) == _label(then) for now, then in zip(new, old, strict=True))
    label = _label_of(kinds.pop())
    return list(map(label, new)) == list(map(label, old))


def _labels(items: Iterable[Any]) -> list[Any]:
    """Labels, numbered where several items have the same."""
    counts: collections.Counter[Any] = collections.Counter()
    found = []
    for item in items:
        label = _label(item)
        found.append((label, counts[label]))
        counts[label] += 1
    return found


def _label(item: Any) -> Any:
    """What tells an item of a tuple from its neighbours: a decision by rule and subject, a pod by its uid."""
    return _label_of(type(item))(item)


def _label_of(kind: type) -> Callable[[Any], Any]:
    label = _LABELLERS.get(kind)
    if label is None:
        label = _LABELLERS[kind] = _labeller(kind)
    return label


_LABELLERS: dict[type, Callable[[Any], Any]] = {}
"""By class, worked out once."""


def _labeller(kind: type) -> Callable[[Any], Any]:
    if kind in (int, str):
        return lambda item: item
    word = _VOCABULARY.get(kind)
    name = next((name for name in _LABELS if word and name in word.fields), None)
    if word is None or name is None:
        return id
    return operator.attrgetter(name, *{"strategy"}.intersection(word.fields))


def _in_place(new: list[Any], old: list[Any]) -> list[Any] | None:
    changed = _items(new, old)
    return None if changed is None else [ALIGNED, None, changed]


def _aligned(
    keys: Sequence[Any], old_keys: Sequence[Any], new: list[Any], old: list[Any], *, keyed: bool
) -> list[Any] | None:
    """Items in their new order. Where no item came, left or moved, the order is not written."""
    if keys == old_keys:
        return _in_place(new, old)
    at = {key: index for index, key in enumerate(old_keys)}
    order: list[int | None] = []
    came: list[Any] = []
    expected = 0
    for key, value in zip(keys, new, strict=True):
        index = at.get(key)
        order.append(None if index is None else index - expected)
        if index is not None:
            expected = index + 1
        else:
            came += (plain(key), plain(value)) if keyed else (plain(value),)
    kept = [(value, old[at[key]]) for key, value in zip(keys, new, strict=True) if key in at]
    return [ALIGNED, order, _items([now for now, _ in kept], [then for _, then in kept]), came]


def _items(new: list[Any], old: list[Any]) -> list[Any] | None:
    """The differences of items that belong together."""
    if all(map(operator.is_, new, old)):
        return None
    kinds = set(map(type, new)) | set(map(type, old))
    if len(kinds) == 1 and len(new) > 1:
        written = _numbers(new, old) if kinds == {int} else _columns(new, old, kinds.pop())
        if written is not None:
            return written
    return _sparse(new, old)


def _numbers(new: list[int], old: list[int]) -> list[Any] | None:
    return [NUMBERS, gaps(new, old)] if _small(new) and _small(old) else None


def _small(numbers: Sequence[int]) -> bool:
    return min(numbers) > -_MOST and max(numbers) < _MOST


def _columns(new: list[Any], old: list[Any], kind: type) -> list[Any] | None:
    """Objects of nothing but whole numbers: a column a field takes the least room and time."""
    word = _VOCABULARY.get(kind)
    if word is None or word.is_enum or not all(type(value) is int for value in word.values(new[0])):
        return None
    columns: list[Any] = [COLUMNS]
    for now, then in zip(_turned(word, new), _turned(word, old), strict=True):
        if set(map(type, now)) != {int} or set(map(type, then)) != {int} or not (_small(now) and _small(then)):
            return None
        columns.append(gaps(list(now), list(then)))
    return columns


def _turned(word: words.Word, items: list[Any]) -> Iterator[tuple[Any, ...]]:
    """A tuple a field."""
    return zip(*map(word.values, items), strict=True)


def _sparse(new: list[Any], old: list[Any]) -> list[Any] | None:
    parts: list[Any] = [SPARSE]
    skipped = 0
    for now, then in zip(new, old, strict=True):
        changed = None if now is then else difference(now, then)
        if changed is None:
            skipped += 1
        else:
            parts += (skipped, changed)
            skipped = 0
    return parts if len(parts) > 1 else None
