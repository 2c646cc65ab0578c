"""Where guards and policy files of the descheduler differ on purpose (docs/compatibility.md has the reasons)."""

from __future__ import annotations

from typing import Any

_EVICT = "descheduler.alpha.kubernetes.io/evict"
_MIRROR = "kubernetes.io/config.mirror"
_SOURCE = "kubernetes.io/config.source"


def never_evicted(given: Any, wanted: Any, found: Any) -> bool:
    """The annotation overrules no fact: mirror and static pods, and those that go already, cannot be evicted."""
    meta = given["pod"]["metadata"]
    notes = meta.get("annotations") or {}
    fact = _MIRROR in notes or notes.get(_SOURCE, "api") != "api" or meta.get("deletionTimestamp")
    return bool(_EVICT in notes and fact and wanted is True and found is False)


def arguments_missing(given: Any, wanted: Any, found: Any) -> bool:
    """A plugin that is enabled and cannot work without arguments is a mistake of the file."""
    without = [name for name in _NEEDY if name in given["policy"] and f'name: "{name}"' not in given["policy"]]
    return bool(found == "refused" and without)


_NEEDY = ("RemovePodsHavingTooManyRestarts", "RemovePodsViolatingNodeAffinity", "PodLifeTime")
