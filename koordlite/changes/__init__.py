"""The kinds of changes, one module a kind. They are found by listing this package."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from koordlite.model.change import Change
from koordlite.model.entry import Entry
from koordlite.model.place import Place, PlaceKind


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """The modules of the kinds, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in names)


@functools.cache
def classes() -> frozenset[type[Change]]:
    """The class of each kind."""
    return frozenset(each for module in modules() for each in vars(module).values() if _is_kind(each, module))


@functools.cache
def entry_types() -> tuple[type[Entry], ...]:
    """The forms that kinds have of their own for entries in the undo journal, by name."""
    found = {each for module in modules() for each in vars(module).values() if _is_form(each, module)}
    return tuple(sorted(found, key=lambda form: form.__name__))


@functools.cache
def place_kinds() -> tuple[PlaceKind, ...]:
    """Every kind of place, by name."""
    found = {each for module in modules() for each in vars(module).values() if isinstance(each, PlaceKind)}
    return tuple(sorted(found, key=lambda kind: kind.name))


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Place:
    """The place that prints as `text`; ValueError when no kind prints so."""
    found = next(_read(text), None)
    if found is None:
        raise ValueError(f"{text!r} is no place of any kind: {', '.join(kind.name for kind in place_kinds())}")
    return found


def _read(text: str) -> Iterator[Place]:
    """A name of the cluster may end as the name of a cgroup's file does, so that cgroups are tried last."""
    for kind in sorted(place_kinds(), key=lambda kind: kind.name == "cgroup"):
        place = kind.parse(text)
        if place:
            yield place


def _is_kind(each: object, module: ModuleType) -> bool:
    return isinstance(each, type) and issubclass(each, Change) and each.__module__ == module.__name__


def _is_form(each: object, module: ModuleType) -> bool:
    return isinstance(each, type) and issubclass(each, Entry) and each.__module__ == module.__name__
