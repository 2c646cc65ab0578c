"""The ordinary plugins of the descheduler: whole runs, and which arguments are refused."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tests.conformance import descheduler_cases
from tests.conformance.adapters import ADAPTERS

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "PodLifeTime": {},
    "RemoveFailedPods": {"minPodLifetimeSeconds": None},
    "RemovePodsHavingTooManyRestarts": {},
    "RemoveDuplicates": {},
    "RemovePodsViolatingNodeAffinity": {},
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsViolatingTopologySpreadConstraint": {},
}
"""Arguments that a plugin sets by itself and a case does not: its arguments are complete."""


def _run(name: str, given: Any, expect: Any) -> tuple[Any, Any]:
    return descheduler_cases.run(given, expect, DEFAULTS[name])


for plugin in DEFAULTS:
    ADAPTERS[f"run {plugin}"] = functools.partial(_run, plugin)
    ADAPTERS[f"Validate{plugin}Args"] = functools.partial(descheduler_cases.validated, plugin)
