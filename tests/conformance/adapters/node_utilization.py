"""LowNodeUtilization and HighNodeUtilization: whole runs, and which arguments are refused."""

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

for plugin in ("LowNodeUtilization", "HighNodeUtilization"):
    ADAPTERS[f"Validate{plugin}Args"] = functools.partial(descheduler_cases.validated, plugin)


@adapter("run LowNodeUtilization", "run HighNodeUtilization")
def run(given: Any, expect: Any) -> tuple[Any, Any]:
    return descheduler_cases.run(given, expect, view=measured(given))


def measured(given: Any) -> View:
    """The picture with the measurements of the case."""
    usage = {}
    if given.get("nodeMetrics"):
        nodes = {name: _amounts(use) for name, use in given["nodeMetrics"].items()}
        usage["KubernetesMetrics"] = Usage(nodes, {_key(pod): _sum(pod) for pod in given.get("podMetrics") or ()})
    if given.get("prometheusNodeUsagePercent"):
        query = ((given["args"].get("metricsUtilization") or {}).get("prometheus") or {}).get("query")
        percents = given["prometheusNodeUsagePercent"]
        usage[f"Prometheus:{query}"] = Usage({name: {levels.METRIC: int(p)} for name, p in percents.items()})
    return msgspec.structs.replace(picture(given), usage=usage)


def _key(pod: Any) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _amounts(use: Any) -> dict[str, int]:
    return pods.units(shapes.quantities(use))


def _sum(pod: Any) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for container in pod.get("containers") or ():
        for name, amount in _amounts(container.get("usage")).items():
            total[name] = total.get(name, 0) + amount
    return total
