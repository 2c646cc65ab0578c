"""Adapters: one function per function name or kind of a vector file. They translate names and shapes, nothing else."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

Adapter = Callable[[Any, Any], tuple[Any, Any]]
"""(input, expect) of a case → (what we get, what is expected), both in a form that compares with `==`."""

ADAPTERS: dict[str, Adapter] = {}


def load() -> None:
    """Import every module of adapters, so that they register."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


class NotCovered(Exception):
    """The case asks for something outside what the adapter's function does."""


def adapter(*names: str) -> Callable[[Adapter], Adapter]:
    """Register a function for these names."""

    def register(function: Adapter) -> Adapter:
        ADAPTERS.update(dict.fromkeys(names, function))
        return function

    return register


def mappings(functions: Mapping[str, Callable[[Any], Any]]) -> None:
    """Register functions of the input alone, whose result is the expected value as the vector has it."""

    def expecting(function: Callable[[Any], Any]) -> Adapter:
        return lambda given, expect: (function(given), expect)

    ADAPTERS.update({name: expecting(function) for name, function in functions.items()})
