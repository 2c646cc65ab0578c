"""Carrying out, journaling and undoing each kind of change: each is one object of the type `Kind`.

They are found by listing this package. A new kind is a file here and one in `koordlite.changes`.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from koordlite.apply.kind import Kind
from koordlite.model.change import Change, Entry
from koordlite.model.place import PlaceKind

AnyKind = Kind[Any, Any]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@functools.cache
def every() -> tuple[AnyKind, ...]:
    """All kinds, in the order of their modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    members = (each for name in names for each in vars(importlib.import_module(f"{__name__}.{name}")).values())
    return tuple(dict.fromkeys(each for each in members if isinstance(each, Kind)))


def of(change: Change) -> AnyKind:
    """The kind of a change."""
    return _by_change()[type(change)]


def of_entry(entry: Entry) -> AnyKind:
    """The kind of a journal's entry."""
    return _by_place()[entry.place.kind]


def runs(changes: Iterable[Change]) -> Iterator[tuple[AnyKind, Sequence[Change]]]:
    """Changes that are carried out in one go, in their order, with one of their kinds."""
    for _, run in itertools.groupby(changes, lambda change: of(change).carried_out_with or of(change)):
        together = list(run)
        yield of(together[0]), together


def by_kind(changes: Iterable[Change]) -> Mapping[AnyKind, Sequence[Change]]:
    """The changes of each kind."""
    return _parted(changes, of)


def by_entry(entries: Iterable[Entry]) -> Mapping[AnyKind, Sequence[Entry]]:
    """The entries of each kind."""
    return _parted(entries, of_entry)


def families(entries: Iterable[Entry]) -> Iterator[tuple[AnyKind, Sequence[Entry]]]:
    """Entries that are undone in one go, in the order in which to undo them, with one of their kinds."""
    groups = _parted(entries, lambda entry: of_entry(entry).undone_with or of_entry(entry))
    together = [(of_entry(each[0]), each) for each in groups.values()]
    yield from sorted(together, key=lambda pair: pair[0].undo_rank)


def _parted(all_of_them: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for each in all_of_them:
        groups.setdefault(key(each), []).append(each)
    return groups


@functools.cache
def _by_change() -> Mapping[type[Change], AnyKind]:
    return {kind.change: kind for kind in every()}


@functools.cache
def _by_place() -> Mapping[PlaceKind, AnyKind]:
    return {place: kind for kind in every() for place in (kind.change.place_kind, *kind.entry_places)}
