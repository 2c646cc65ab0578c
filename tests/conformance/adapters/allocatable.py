"""Batch allocatable of the node and its zones, and how it is prepared for the Node and its zones."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlite.changes.published import ZoneResourceChange
from koordlite.formulas.allocatable import allocatable, node_sync, numa_shares
from koordlite.formulas.allocatable.allocatable import BATCH_AND_BELOW
from koordlite.model import keys
from koordlite.model.picture import node_notes
from koordlite.model.picture.usage import Use
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects
from tests.conformance.adapters import adapter, node_metric, prepared, shapes, slo
from tests.conformance.adapters.node_metric import Case

CPU, MEMORY = "batch-cpu", "batch-memory"


@adapter("BatchResource.Calculate")
def calculate(given: Any, expect: Any) -> tuple[Any, Any]:
    if "error" in expect:
        return node_metric.refused(given, "resourceMetrics"), expect
    return batch(node_metric.case(given, "resourceMetrics"), given.get("nrtZones")), node_metric.wanted(
        expect, CPU, MEMORY
    )


def batch(case: Case, zones: Any) -> dict[str, Any]:
    """Batch resources of a case."""
    if case.degraded:
        return dict.fromkeys((CPU, MEMORY), node_metric.RESET)
    cpu, memory = allocatable.batch(
        capacity=case.capacity,
        colocation=case.colocation,
        sums=allocatable.pod_sums(pods=case.pods, usage=case.usage),
        system=case.system,
        host_apps=case.host_apps(BATCH_AND_BELOW),
        reserved=case.reserved,
    )
    parts = numa_shares.batch(
        zones=numa_shares.sizes(_zones(zones))[0],
        colocation=case.colocation,
        pods=case.pods,
        usage=case.usage,
        measured=allocatable.plus(case.system, case.host_apps(BATCH_AND_BELOW)),
        reserved=case.reserved,
    )
    cpus = {f"node-{part.node}": Quantity.of(part.cpu.result) for part in parts}
    memories = {f"node-{part.node}": Quantity.of_milli(part.memory.result) for part in parts}
    return {CPU: node_metric.found(cpu.result, cpus), MEMORY: node_metric.found(memory.result, memories)}


@adapter("isDegradeNeeded")
def degrade_needed(given: Any, expect: Any) -> tuple[Any, Any]:
    status = (given.get("nodeMetric") or {}).get("status") or {}
    minutes = slo.colocation(given.get("strategy")).degrade_time_minutes
    return node_sync.degraded(age_seconds=node_metric.age(status), degrade_minutes=minutes), expect


@adapter("degrade")
def degrade(given: Any, expect: Any) -> tuple[Any, Any]:
    found = node_sync.degraded(age_seconds=given["ageSeconds"], degrade_minutes=given["degradeTimeMinutes"])
    return {"degraded": found}, expect


@adapter("GetNodeSafetyMargin")
def margin(given: Any, expect: Any) -> tuple[Any, Any]:
    # The node's size under whatever name it has.
    size = next(value for name, value in given.items() if name.lower().endswith(("capacity", "allocatable")))
    found = allocatable.safety_margin(capacity=shapes.use(size), colocation=slo.colocation(given.get("strategy")))
    return found, shapes.use(expect)


@adapter("GetPodNUMARequestAndUsage")
def numa_request_and_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    nodes, zones = shapes.pod_of(given["pod"]).resource_status.numa_nodes, range(given["numaNum"])
    found = {
        "request": numa_shares.shares(shapes.use(given["podRequest"]), zones, nodes),
        "usage": numa_shares.shares(shapes.use(given["podUsage"]), zones, nodes),
    }
    return {name: list(parts.values()) for name, parts in found.items()}, {
        name: [_in_thousandths(part) for part in parts] for name, parts in expect.items()
    }


@adapter("DivideResourceList")
def divide(given: Any, expect: Any) -> tuple[Any, Any]:
    amounts = shapes.quantities(given["rl"])
    found = {name: numa_shares.divided(amount.milli, given["divisor"]) for name, amount in amounts.items()}
    return found, {name: amount.milli for name, amount in shapes.quantities(expect).items()}


@adapter("BatchResource.Prepare")
def prepare(given: Any, expect: Any) -> tuple[Any, Any]:
    result = prepared.prepare(given["node"], given["nr"], (keys.BATCH_CPU, keys.BATCH_MEMORY))
    found, wanted = {"status": result.status}, {"status": prepared.status(expect)}
    if "originExtendedAllocatable" in expect:
        written = msgspec.json.decode(node_notes.encode_origin(result.offered))["resources"]
        found["origin"] = shapes.quantities(written)
        wanted["origin"] = shapes.quantities(expect["originExtendedAllocatable"])
    return found, wanted


@adapter("UpdateNRTZoneListIfNeeded", "updateNRT zones")
def update_zones(given: Any, expect: Any) -> tuple[Any, Any]:
    zones, worked_out = _zones(given.get("zones")), given.get("nr") or {}
    ratio = prepared.ratio(worked_out)
    parts = {
        zone: {name: prepared.multiplied(name, amount, ratio) for name, amount in shapes.quantities(amounts).items()}
        for zone, amounts in (worked_out.get("zoneResources") or {}).items()
    }
    changes = node_sync.zone_changes(zones=zones, wanted=parts, threshold=given["diffThreshold"])
    topology = objects.NRTObject(zones=zones)
    for where, value in changes.items():
        topology = ZoneResourceChange(*where, value).onto(topology)
    found = {"needUpdate": bool(changes), "zones": _numbers(topology.zones or ())}
    wanted = {"needUpdate": expect.get("needUpdate"), "zones": _numbers(_zones(expect.get("zones")))}
    # One of both may be all that is asked.
    named = [name for name in wanted if name in expect] or list(wanted)
    return {name: found[name] for name in named}, {name: wanted[name] for name in named}


def _zones(given: Any) -> tuple[objects.Zone, ...]:
    return msgspec.convert(given or [], tuple[objects.Zone, ...])


def _numbers(zones: tuple[objects.Zone, ...]) -> list[Any]:
    return [
        (
            zone.name,
            [(r.name, *map(Quantity.parse, (r.capacity, r.allocatable, r.available))) for r in zone.resources or ()],
        )
        for zone in zones
    ]


def _in_thousandths(amounts: Any) -> Use:
    """CPU in millicores, memory in thousandths of a byte."""
    parsed = shapes.quantities(amounts)
    return Use(parsed["cpu"].milli, parsed["memory"].milli)
