"""The kinds of changes, one module a kind. They are found by listing this package."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

from koordlite.model.change import Change


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """The modules of the kinds, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in names)


@functools.cache
def classes() -> frozenset[type[Change]]:
    """The class of each kind."""
    return frozenset(each for module in modules() for each in vars(module).values() if _is_kind(each, module))


def _is_kind(each: object, module: ModuleType) -> bool:
    return isinstance(each, type) and issubclass(each, Change) and each.__module__ == module.__name__
