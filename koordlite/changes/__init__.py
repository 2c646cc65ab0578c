"""The kinds of changes, one module for those of one subject. They are found by listing this package."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TypeVar

from koordlite.model.change import Change, Entry
from koordlite.model.place import Place, PlaceKind

T = TypeVar("T")
JOURNAL = PlaceKind.of("journal", "journal", update="")
"""The undo journal itself, where it could not be brought up to date. No change asks for this."""


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """The modules of the kinds, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in names)


@functools.cache
def classes() -> frozenset[type[Change]]:
    """The class of each kind."""
    return frozenset(_defined(Change))


@functools.cache
def entry_types() -> tuple[type[Entry], ...]:
    """The forms that kinds have of their own for entries in the undo journal, by name."""
    return tuple(sorted(_defined(Entry), key=lambda form: form.__name__))


def _defined(base: type[T]) -> Iterator[type[T]]:
    """Public classes below `base`, each from the module that defines it."""
    for module in modules():
        for name, value in vars(module).items():
            is_ours = isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
            if is_ours and not name.startswith("_"):
                yield value


@functools.cache
def place_kinds() -> tuple[PlaceKind, ...]:
    """Every kind of place, by name."""
    kinds = {value for module in modules() for value in vars(module).values() if isinstance(value, PlaceKind)}
    return tuple(sorted({*kinds, JOURNAL}, key=lambda kind: kind.name))


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Place:
    """The place that prints as `text`; ValueError when no kind prints so."""
    # A name of the cluster may end as the name of a cgroup's file does, so that cgroups are tried last.
    for kind in sorted(place_kinds(), key=lambda kind: kind.name == "cgroup"):
        place = kind.parse(text)
        if place:
            return place
    raise ValueError(f"{text!r} is no place of any kind: {', '.join(kind.name for kind in place_kinds())}")
