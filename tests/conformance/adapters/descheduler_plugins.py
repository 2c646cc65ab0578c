"""Plugins of the descheduler that need no measurements of pods: whole runs, and which arguments are refused."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from descheduler.framework import Usage, View
from descheduler.picture import pods
from descheduler.utilization import levels
from tests.conformance import descheduler_cases
from tests.conformance.adapters import ADAPTERS, adapter, shapes
from tests.conformance.descheduler_view import picture

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "PodLifeTime": {},
    "RemoveFailedPods": {"minPodLifetimeSeconds": 0},
    "RemovePodsHavingTooManyRestarts": {},
    "RemoveDuplicates": {},
    "RemovePodsViolatingNodeAffinity": {},
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsViolatingTopologySpreadConstraint": {},
    "FragmentationAware": {"nodeFit": False, "imbalanceThreshold": 0, "minImprovementThreshold": 0},
}
"""Arguments that a plugin sets by itself and a case does not: its arguments are complete."""

for plugin, defaults in DEFAULTS.items():
    ADAPTERS[f"run {plugin}"] = functools.partial(descheduler_cases.run, defaults=defaults)
for plugin in (*DEFAULTS, "LowNodeUtilization", "HighNodeUtilization"):
    ADAPTERS[f"Validate{plugin}Args"] = functools.partial(descheduler_cases.validated, plugin)


@adapter("run LowNodeUtilization", "run HighNodeUtilization")
def run(given: Any, expect: Any) -> tuple[Any, Any]:
    usage = {}
    if given.get("nodeMetrics"):
        nodes = {name: _amounts(use) for name, use in given["nodeMetrics"].items()}
        listed = given.get("podMetrics") or ()
        by_pod = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": _sum(pod) for pod in listed}
        usage["KubernetesMetrics"] = Usage(nodes, by_pod)
    if given.get("prometheusNodeUsagePercent"):
        query = ((given["args"].get("metricsUtilization") or {}).get("prometheus") or {}).get("query")
        percents = given["prometheusNodeUsagePercent"]
        usage[f"Prometheus:{query}"] = Usage({name: {levels.METRIC: int(p)} for name, p in percents.items()})
    view: View = msgspec.structs.replace(picture(given), usage=usage)
    return descheduler_cases.run(given, expect, view=view)


def _amounts(use: Any) -> dict[str, int]:
    return pods.units(shapes.quantities(use))


def _sum(pod: Any) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for container in pod.get("containers") or ():
        for name, amount in _amounts(container.get("usage")).items():
            total[name] = total.get(name, 0) + amount
    return total
