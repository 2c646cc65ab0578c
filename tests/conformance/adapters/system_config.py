"""Settings of the whole kernel."""

from __future__ import annotations

from typing import Any

from koordlite.formulas import system_settings
from koordlite.model.reading.declared import settings
from koordlite.model.slo.settings import System
from tests.conformance.adapters import adapter

_NAMES = {
    system_settings.GROUP_IDENTITY: "sched_group_identity_enabled",
    system_settings.IDLE_SAVER: "sched_idle_saver_wmark",
    system_settings.PAGE_CACHE_LIMIT: "pagecache_limit.enabled",
}
"""How the vectors call settings, where it is not as we do."""


@adapter("system_config.reconcile")
def reconcile(given: Any, expect: Any) -> tuple[Any, Any]:
    """What stands in each file after the earlier round and the new one."""
    earlier = _files(given["initialStrategyAlreadyApplied"], given["nodeMemoryCapacityBytesAtInit"])
    found = {**earlier, **_files(given["newStrategy"], given["nodeMemoryCapacityBytes"])}
    return {name: found.get(name) for name in expect["files"]}, expect["files"]


def _files(strategy: Any, capacity_bytes: int | None) -> dict[str, str]:
    if not capacity_bytes:
        return {}
    known = settings(System)
    read = System(**{known[name].attribute: value for name, value in (strategy or {}).items() if value is not None})
    wanted = system_settings.targets(read, capacity_bytes=capacity_bytes)
    files = {_NAMES.get(n, n): str(v) for n, v in wanted.items() if system_settings.in_range(n, v)}
    words = [f"{system_settings.feature_word(name, on)}\n" for name, on in read.sched_features.items()]
    # A regular file keeps the last word that was written.
    return files | ({"sched_features": words[-1]} if words else {})
