"""Mid allocatable, and how it is prepared for the Node."""

from __future__ import annotations

from typing import Any

from koordlite.formulas.allocatable import mid
from koordlite.model import keys
from tests.conformance.adapters import adapter, node_metric, prepared, shapes
from tests.conformance.adapters.node_metric import Case

CPU, MEMORY = "mid-cpu", "mid-memory"


@adapter("MidResource.Calculate")
def calculate(given: Any, expect: Any) -> tuple[Any, Any]:
    if "error" in expect:
        return node_metric.refused(given, "metrics"), expect
    return mid_resources(node_metric.case(given, "metrics")), node_metric.wanted(expect, CPU, MEMORY)


def mid_resources(case: Case) -> dict[str, Any]:
    """Mid resources of a case."""
    if case.degraded:
        return dict.fromkeys((CPU, MEMORY), node_metric.RESET)
    reclaimable = (case.status.get("prodReclaimableMetric") or {}).get("resource")
    cpu, memory = mid.mid(
        capacity=case.capacity,
        colocation=case.colocation,
        reclaimable=shapes.use(reclaimable),
        used=case.used,
        kept=mid.kept(system=case.system, host_apps=case.host_apps(mid.MID_AND_BELOW), reserved=case.reserved),
        requested=mid.prod_requests(case.pods),
    )
    return {CPU: node_metric.found(cpu.result), MEMORY: node_metric.found(memory.result)}


@adapter("MidResource.Prepare")
def prepare(given: Any, expect: Any) -> tuple[Any, Any]:
    found = prepared.prepare(given["node"], given["nr"], (keys.MID_CPU, keys.MID_MEMORY))
    return found.status, prepared.status(expect)
