"""One rule a file: `NAME`, `POINT`, `Config` and `judge`. A file in this folder is a plugin by being there.

Other packages add theirs by an entry point of the group `descheduler.plugins` that names such a module.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from descheduler.framework import FACETS, POINTS, Plugin
from koordlite.model.errors import ConfigError, Problem

GROUP = "descheduler.plugins"
"""The group of entry points."""
_BUILT_IN = ("DefaultEvictor", "MigrationController")
"""Names that stand for something else in policy files."""


@functools.cache
def discover() -> Mapping[str, Plugin]:
    """All plugins by name: ours in the order of their file names, then those of other packages in the order of names.

    ConfigError when a plugin of another package cannot be used: to run without it would be to ignore the policy.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    own = (_load(importlib.import_module(f"{__name__}.{name}")) for name in names)
    by_name = {plugin.name: plugin for plugin in own}
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            module = entry.load()
        except (ImportError, AttributeError, SyntaxError) as error:
            raise _unusable(entry, f"it cannot be imported: {error}") from error
        why = _wrong(module)
        if why:
            raise _unusable(entry, why)
        plugin = _load(module)
        if plugin.name in by_name or plugin.name in _BUILT_IN:
            raise _unusable(entry, f"the name {plugin.name} is taken")
        by_name[plugin.name] = plugin
    return by_name


def _wrong(module: Any) -> str:
    """The shortcoming of a module as a plugin; empty when it is one."""
    missing = [name for name in ("NAME", "POINT", "Config", "judge") if not hasattr(module, name)]
    if missing:
        return f"it has no {', '.join(missing)}"
    if module.POINT not in POINTS:
        return f"its POINT is {module.POINT!r}, which is none of {', '.join(POINTS)}"
    if not dataclasses.is_dataclass(module.Config):
        return "its Config is no dataclass"
    reads = getattr(module, "READS", ())
    if not isinstance(reads, tuple) or not set(reads) <= FACETS:
        return f"its READS is {reads!r}, which is no tuple of some of {', '.join(sorted(FACETS))}"
    return "" if callable(module.judge) else "its judge cannot be called"


def _unusable(entry: metadata.EntryPoint, why: str) -> ConfigError:
    package = entry.dist.name if entry.dist else "an unknown package"
    do = f"fix or uninstall {package}"
    return ConfigError(Problem(f"plugin {entry.name} of {package}", entry.value, "", why, do))


def _load(module: Any) -> Plugin:
    return Plugin(
        name=module.NAME,
        config=module.Config,
        judge=module.judge,
        doc=(module.__doc__ or "").strip(),
        point=module.POINT,
        order=getattr(module, "ORDER", "own"),
        numbers=getattr(module, "numbers", None),
        reads=frozenset(getattr(module, "READS", FACETS)),
    )
