"""Batch allocatable, its degradation and when it is written."""

from __future__ import annotations

from typing import Any

from koordlite.formulas import allocatable, reservation
from koordlite.model import keys
from koordlite.model.qos import PriorityClass
from koordlite.model.slo import Colocation, HostApplication
from koordlite.model.snapshot import Use
from tests.conformance.adapters import NotCovered, adapter, shapes, slo


@adapter("BatchResource.Calculate")
def calculate(given: Any, expect: Any) -> tuple[Any, Any]:
    if "strategy" not in given or "error" in expect:
        raise NotCovered
    status = given["resourceMetrics"]["nodeMetric"].get("status", {})
    colocation = slo.colocation(given["strategy"])
    wanted = {name: expect[name].get("quantity") for name in ("batch-cpu", "batch-memory")}
    age = -status["updateTime"]["$now"] if status.get("updateTime") else None
    if allocatable.degraded(age_seconds=age, degrade_minutes=colocation.degrade_time_minutes):
        return {"batch-cpu": None, "batch-memory": None}, wanted
    cpu, memory = _terms(given, status, colocation)
    return {"batch-cpu": str(cpu.result), "batch-memory": str(memory.result)}, wanted


def _terms(given: Any, status: Any, colocation: Colocation) -> tuple[allocatable.Terms, allocatable.Terms]:
    node = shapes.node_of(given["node"])
    apps = status.get("hostApplicationMetric") or []
    reserved = reservation.larger(
        reservation.from_kubelet(capacity=node.capacity, allocatable=node.allocatable),
        reservation.written_resources(shapes.reservation(dict(node.annotations))),
    )
    return allocatable.batch(
        capacity=allocatable.amounts(node.capacity),
        colocation=colocation,
        sums=allocatable.pod_sums(pods=map(shapes.pod_of, given["podList"]["items"]), usage=_usage(given, status)),
        system=shapes.use(status["nodeMetric"]["systemUsage"]),
        host_apps=allocatable.host_app_use(
            applications=[HostApplication(name=a["name"], priority=PriorityClass(a.get("priority", ""))) for a in apps],
            usage={a["name"]: shapes.use(a["usage"]) for a in apps},
        ),
        reserved=allocatable.amounts(reserved),
    )


def _usage(given: Any, status: Any) -> dict[str, Use]:
    """Use by pod; without that of unknown pods whose metric says batch or free, which the agent would know."""
    known = {shapes.pod_of(item).uid for item in given["podList"]["items"]}
    usage = {}
    for metric in status.get("podsMetric") or []:
        uid = f"{metric['namespace']}/{metric['name']}"
        if uid in known or metric.get("priority") not in ("koord-batch", "koord-free"):
            usage[uid] = shapes.use(metric["podUsage"])
    return usage


@adapter("isDegradeNeeded")
def degrade_needed(given: Any, expect: Any) -> tuple[Any, Any]:
    status = (given.get("nodeMetric") or {}).get("status", {})
    age = -status["updateTime"]["$now"] if status.get("updateTime") else None
    minutes = given.get("strategy", {}).get("degradeTimeMinutes", 15)
    return allocatable.degraded(age_seconds=age, degrade_minutes=minutes), expect


@adapter("degrade")
def degrade(given: Any, expect: Any) -> tuple[Any, Any]:
    found = allocatable.degraded(age_seconds=given["ageSeconds"], degrade_minutes=given["degradeTimeMinutes"])
    return {"degraded": found}, expect


@adapter("GetNodeSafetyMargin")
def margin(given: Any, expect: Any) -> tuple[Any, Any]:
    found = allocatable.safety_margin(
        capacity=shapes.use(given["capacity"]), colocation=slo.colocation(given["strategy"])
    )
    return found, shapes.use(expect)


@adapter("isNodeResourceSyncNeeded")
def sync_needed(given: Any, expect: Any) -> tuple[Any, Any]:
    if "oldNode" not in given:
        raise NotCovered
    old, new = shapes.node_of(given["oldNode"]).allocatable, shapes.node_of(given["newNode"]).allocatable
    reasons = [
        allocatable.must_sync(
            old=old[name].value if name in old else None,
            new=new[name].value if name in new else None,
            threshold=given["strategy"]["resourceDiffThreshold"],
            since_last_seconds=-given["lastSync"] if "lastSync" in given else None,
            update_seconds=given["strategy"]["updateTimeThresholdSeconds"],
        )
        for name in (keys.BATCH_CPU, keys.BATCH_MEMORY)
    ]
    return any(reasons), expect["syncStatus"]


@adapter("IsResourceDiff")
def resource_diff(given: Any, expect: Any) -> tuple[Any, Any]:
    old, new = shapes.quantities(given["old"]), shapes.quantities(given["new"])
    name = given["resourceName"]
    reason = allocatable.must_sync(
        old=old[name].milli if name in old else None,
        new=new[name].milli if name in new else None,
        threshold=given["diffThreshold"],
        since_last_seconds=0,
        update_seconds=1,
    )
    return bool(reason), expect
