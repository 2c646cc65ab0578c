"""Where guards and policy files of the descheduler differ on purpose (docs/compatibility.md has the reasons)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cyaml

from descheduler import plugins
from descheduler.arguments.evictor import SYSTEM_CRITICAL
from descheduler.policy.upstream import EVICTOR, MIGRATION, missing_args

_EVICT = "descheduler.alpha.kubernetes.io/evict"
_MIRROR = "kubernetes.io/config.mirror"
_SOURCE = "kubernetes.io/config.source"


def never_evicted(given: Any, wanted: Any, found: Any) -> bool:
    """The annotation overrules no fact: mirror and static pods, and those that go already, cannot be evicted."""
    return _is_overruled(given["pod"]) and wanted is True and found is False


def never_evicted_in_a_run(given: Any, wanted: Any, found: Any) -> bool:
    """As `never_evicted`, of some pod of a run; a case may also let every pod go. Others may go instead."""
    anything = given.get("evictorFilter") == "always_true"
    return found != "refused" and any(_is_fact(pod) and (anything or _is_overruled(pod)) for pod in given["pods"])


def arguments_missing(given: Any, wanted: Any, found: Any) -> bool:
    """A plugin that is enabled and cannot work without arguments is a mistake of the file."""
    profiles = (cyaml.safe_load(given["policy"]) or {}).get("profiles") or ()
    return found == "refused" and any(name for profile in profiles for name in _without_arguments(profile))


def unusable_guard(given: Any, wanted: Any, found: Any) -> bool:
    """A selector, or a threshold beyond system-cluster-critical, that upstream's validation does not look at."""
    args = given.get("args") or {}
    selectors = any(args.get(name) for name in ("labelSelector", "namespaceLabelSelector", "nodeSelector"))
    beyond = ((args.get("priorityThreshold") or {}).get("value") or 0) > SYSTEM_CRITICAL
    return wanted is True and found is False and (selectors or beyond)


def nobody_s_plugin(given: Any, wanted: Any, found: Any) -> bool:
    """Arguments stand in the file for a plugin that there is not."""
    known = {*plugins.discover(), EVICTOR, MIGRATION}
    named = {e["name"] for profile in given["args"].get("profiles") or () for e in profile.get("pluginConfig") or ()}
    return wanted is True and found is False and bool(named - known)


def _is_overruled(pod: Any) -> bool:
    return _EVICT in (pod["metadata"].get("annotations") or {}) and _is_fact(pod)


def _is_fact(pod: Any) -> bool:
    meta = pod["metadata"]
    notes = meta.get("annotations") or {}
    return bool(_MIRROR in notes or notes.get(_SOURCE, "api") != "api" or meta.get("deletionTimestamp"))


def _without_arguments(profile: Any) -> Iterator[str]:
    """Plugins of the profile that are enabled and need arguments, and have none."""
    given = {entry["name"] for entry in profile.get("pluginConfig") or () if entry.get("args")}
    points = profile.get("plugins") or {}
    for point in ("deschedule", "balance"):
        for name in (points.get(point) or {}).get("enabled") or ():
            plugin = plugins.discover().get(name)
            if plugin and name not in given and missing_args(plugin.config):
                yield name
