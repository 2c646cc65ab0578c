"""One rule a file: `NAME`, `Config` and `judge(view, config)`. A file in this folder is a plugin by being there."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from descheduler.framework import Plugin


@functools.cache
def discover() -> Mapping[str, Plugin]:
    """All plugins by name, in the order of their file names."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = (_load(name) for name in modules)
    return {plugin.name: plugin for plugin in found}


def _load(name: str) -> Plugin:
    module = importlib.import_module(f"{__name__}.{name}")
    return Plugin(module.NAME, module.Config, module.judge, (module.__doc__ or "").strip())
