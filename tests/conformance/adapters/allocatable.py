"""What a node offers of batch and mid resources, how it is prepared for the Node and its zones, when it is written."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from koordlite.changes.published import NodeResourceChange, ZoneResourceChange
from koordlite.formulas.allocatable import allocatable, mid, node_sync, normalization, numa_shares
from koordlite.formulas.allocatable.allocatable import BATCH_AND_BELOW
from koordlite.kube.folder.published import Published
from koordlite.model import keys
from koordlite.model.node import Node
from koordlite.model.picture import node_notes
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.picture.usage import Use
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import Colocation
from koordlite.model.wire import objects
from koordlite.strategies import discover
from tests.conformance.adapters import adapter, node_metric, shapes, slo
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
        measured=case.system + case.host_apps(BATCH_AND_BELOW),
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
def prepare_batch(given: Any, expect: Any) -> tuple[Any, Any]:
    result = prepare(given["node"], given["nr"], (keys.BATCH_CPU, keys.BATCH_MEMORY))
    found, wanted = {"status": result.status}, {"status": status(expect)}
    if "originExtendedAllocatable" in expect:
        written = msgspec.json.decode(node_notes.encode_origin(result.offered))["resources"]
        found["origin"] = shapes.quantities(written)
        wanted["origin"] = shapes.quantities(expect["originExtendedAllocatable"])
    return found, wanted


@adapter("UpdateNRTZoneListIfNeeded")
def update_zones(given: Any, expect: Any) -> tuple[Any, Any]:
    zones, worked_out = _zones(given.get("zones")), given.get("nr") or {}
    factor = ratio(worked_out)
    parts = {
        zone: {name: _multiplied(name, amount, factor) for name, amount in shapes.quantities(amounts).items()}
        for zone, amounts in (worked_out.get("zoneResources") or {}).items()
    }
    changes = node_sync.zone_changes(zones=zones, target=parts, threshold=given["diffThreshold"])
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
    return Use(*(parsed[name].milli if name in parsed else 0 for name in ("cpu", "memory")))


MID_CPU, MID_MEMORY = "mid-cpu", "mid-memory"


@adapter("MidResource.Calculate")
def calculate_mid(given: Any, expect: Any) -> tuple[Any, Any]:
    if "error" in expect:
        return node_metric.refused(given, "metrics"), expect
    return mid_resources(node_metric.case(given, "metrics")), node_metric.wanted(expect, MID_CPU, MID_MEMORY)


def mid_resources(case: Case) -> dict[str, Any]:
    """Mid resources of a case."""
    if case.degraded:
        return dict.fromkeys((MID_CPU, MID_MEMORY), node_metric.RESET)
    reclaimable = (case.status.get("prodReclaimableMetric") or {}).get("resource")
    cpu, memory = mid.mid(
        capacity=case.capacity,
        colocation=case.colocation,
        reclaimable=shapes.use(reclaimable),
        used=case.used,
        reserved=mid.system_reserved(
            system=case.system, host_apps=case.host_apps(mid.MID_AND_BELOW), reserved=case.reserved
        ),
        requested=mid.prod_requests(case.pods),
    )
    return {MID_CPU: node_metric.found(cpu.result), MID_MEMORY: node_metric.found(memory.result)}


@adapter("MidResource.Prepare")
def prepare_mid(given: Any, expect: Any) -> tuple[Any, Any]:
    found = prepare(given["node"], given["nr"], (keys.MID_CPU, keys.MID_MEMORY))
    return found.status, status(expect)


Status = dict[str, dict[str, Quantity]]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What the Node shows afterwards."""

    status: Status
    offered: dict[str, int | None]
    left: dict[str, int | None]


def prepare(node: Any, worked_out: Any, names: tuple[str, ...]) -> Prepared:
    """`worked_out` is {resources, resets, annotations}; a resource without an amount goes."""
    notes = node["metadata"].get("annotations") or {}
    third = node_notes.parse(notes, "node", last=NodeNotes(), problems=[]).third_party
    offered, left = node_sync.prepared(
        thousandths={name: _thousandths(worked_out, name) for name in names},
        ratio=ratio(worked_out),
        allocated={name: amount.value for name, amount in third.items()},
    )
    return Prepared(show(node, left), offered, left)


def show(node: Any, amounts: dict[str, int | None]) -> Status:
    """Capacity and allocatable of the node once these amounts are published."""
    obj = msgspec.convert(node, objects.NodeObject)
    shown = Published("n", None)
    shown.publish([NodeResourceChange(name, amount) for name, amount in amounts.items()], node=obj, topology=None)
    return status({"status": msgspec.to_builtins(shown.over_node(obj).status)})


def status(given: Any) -> Status:
    """Capacity and allocatable as numbers."""
    return {name: shapes.quantities(given["status"].get(name)) for name in ("capacity", "allocatable")}


def ratio(worked_out: Any) -> float:
    """The normalization ratio among the annotations worked out, 1 without one."""
    notes = worked_out.get("annotations") or {}
    return node_notes.parse(notes, "node", last=NodeNotes(), problems=[]).cpu_normalization or 1.0


def _multiplied(name: str, amount: Quantity, factor: float) -> Quantity:
    """A zone's part."""
    if name != keys.BATCH_CPU:
        return amount
    return Quantity.of_milli(node_sync.multiplied(thousandths=amount.milli, ratio=factor))


def _thousandths(worked_out: Any, name: str) -> int | None:
    text = (worked_out.get("resources") or {}).get(name)
    gone = text is None or (worked_out.get("resets") or {}).get(name)
    return None if gone else Quantity.parse(text).milli


TEST_LABEL = "expect-to-change-label"
"""The one label that the tests' own plugin manages."""

OFFER = next(rule for rule in discover() if rule.module == "be_allocatable")


@adapter("isNodeResourceSyncNeeded")
def sync_needed(given: Any, expect: Any) -> tuple[Any, Any]:
    if given.get("newNode") is None:
        seen = node_metric.picture(node=None, colocation=Colocation(), used=None)
        written = [change for d in OFFER.answer(seen, OFFER.config()) for change in d.changes]
        return dict.fromkeys(("syncStatus", "syncMeta"), bool(written)), expect
    old, new = shapes.node_of(given["oldNode"]), shapes.node_of(given["newNode"])
    labels = {TEST_LABEL: new.labels.get(TEST_LABEL)}
    notes = {keys.AMPLIFICATION_RATIO: new.annotations.get(keys.AMPLIFICATION_RATIO)}
    changes = {
        **node_sync.metadata_changes(current=old.labels, target=labels),
        **node_sync.metadata_changes(current=old.annotations, target=notes),
    }
    found = {
        "syncStatus": bool(_why(given, slo.colocation(given["strategy"]), _amounts(old), _amounts(new))),
        "syncMeta": bool(changes) or normalization.differs(*map(_ratio, (old, new))),
    }
    return found, expect


@adapter("IsResourceDiff")
def resource_diff(given: Any, expect: Any) -> tuple[Any, Any]:
    old, new = (shapes.quantities(given[side]).get(given["resourceName"]) for side in ("old", "new"))
    found = node_sync.differs(
        old=None if old is None else old.milli,
        new=None if new is None else new.milli,
        threshold=given["diffThreshold"],
    )
    return found, expect


@adapter("updateNodeResource")
def update_node(given: Any, expect: Any) -> tuple[Any, Any]:
    if not given.get("existing") or not expect.get("node"):
        return {"error": not given.get("existing")}, {"error": bool(expect.get("error"))}
    node, items = given["oldNode"], given["nr"]
    worked_out = {
        "resources": {item["name"]: item["quantity"] for item in items if "quantity" in item and not item.get("reset")},
        "annotations": _joined(items, "annotations"),
    }
    result = prepare(node, worked_out, keys.PROMISED_RESOURCES)
    colocation = slo.colocation(given["config"], node)
    due = _why(given, colocation, _amounts(shapes.node_of(node)), result.left)
    labels = dict(node["metadata"].get("labels") or {})
    labels |= node_sync.metadata_changes(current=labels, target=_joined(items, "labels"))
    found = {"status": result.status if due else status(node), "labels": labels}
    shown = expect["node"]
    return found, {"status": status(shown), "labels": shown["metadata"].get("labels") or {}}


@adapter("calculateNodeResource")
def calculate_all(given: Any, expect: Any) -> tuple[Any, Any]:
    metrics = {"nodeMetric": given.get("nodeMetric")}
    case = node_metric.case({**given, "strategy": given["config"], "metrics": metrics}, "metrics")
    found = {**batch(case, given.get("nrtZones")), **mid_resources(case)}
    return {name: found[name] for name in expect}, node_metric.wanted(expect, *expect)


def _ratio(node: Node) -> float | None:
    return node_notes.parse_normalization(node.annotations.get(keys.CPU_NORMALIZATION_RATIO, ""), "node")


def _why(given: Any, colocation: Colocation, old: dict[str, int | None], new: dict[str, int | None]) -> str:
    return node_sync.must_sync(
        old=old,
        new=new,
        threshold=colocation.resource_diff_threshold,
        since_last_seconds=-given["lastSync"] if "lastSync" in given else None,
        update_seconds=colocation.update_time_threshold_seconds,
    )


def _amounts(node: Node) -> dict[str, int | None]:
    """What the Node promises; amounts in thousandths where they are not whole would differ by nothing that counts."""
    held: dict[str, Quantity | None] = {name: node.allocatable.get(name) for name in keys.PROMISED_RESOURCES}
    return {name: None if amount is None else amount.value for name, amount in held.items()}


def _joined(items: list[Any], name: str) -> dict[str, str]:
    return {key: text for item in items for key, text in (item.get(name) or {}).items()}
