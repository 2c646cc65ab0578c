"""The official client without what this program does not use.

Importing any module of it runs the package's own module, which imports informers, web sockets, OAuth and JSON Schema:
12 MiB. Here three of its packages are entered as they are on disk, and run only when a name of theirs is asked for.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

PACKAGES = ("kubernetes", "kubernetes.utils", "kubernetes.config")
"""Packages with modules that are needed and a module of their own that is not."""


def prepare() -> None:
    """Before the first import of the client; does nothing where it was imported already."""
    for name in PACKAGES:
        if name not in sys.modules:
            _enter(name)


def _enter(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return  # It is not installed: whoever imports it says so.
    loader, module = spec.loader, importlib.util.module_from_spec(spec)

    def run(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {wanted!r}")
        if importlib.util.find_spec(f"{name}.{wanted}"):
            return importlib.import_module(f"{name}.{wanted}")
        vars(module).pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, wanted)

    vars(module)["__getattr__"] = run
    sys.modules[name] = module
    _name_in_parent(name, module)


def _name_in_parent(name: str, module: ModuleType) -> None:
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
