"""Deviations of promised resources: what we expect of ourselves where Koordinator's answer is not ours."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlite.model import keys, nrt
from koordlite.model.picture.usage import Use
from koordlite.model.quantity import Quantity
from tests.conformance.adapters import node_metric, shapes
from tests.conformance.deviations import deviation

BATCH = (keys.BATCH_CPU, keys.BATCH_MEMORY)


@deviation(
    "host-application-priority: a host application without a priority is counted",
    "BatchResource.Calculate",
    "MidResource.Calculate",
    "calculateNodeResource",
)
def application_without_priority(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator offers at most what such applications use more than we do."""
    apps = (_status(given).get("hostApplicationMetric")) or []
    extra = [shapes.use(app["usage"]) for app in apps if not app.get("priority")]
    return _less_by(wanted, found, _sum(extra))


@deviation(
    "pod-without-sample: a pod without a sample counts with its request under every policy", "BatchResource.Calculate"
)
def sample_missing(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator offers at most what pods without a sample request more than we do."""
    case = node_metric.case(given, "resourceMetrics")
    new = [pod for pod in case.pods if pod.active and pod.uid not in case.usage]
    requests = _sum([Use(pod.request_milli(), pod.request_value("memory")) for pod in new])
    policies = case.colocation.cpu_calculate_policy, case.colocation.memory_calculate_policy
    return "maxUsageRequest" in policies and _less_by(wanted, found, requests)


@deviation("zone-identity: a zone is known by its name, never by its place in the list", "BatchResource.Calculate")
def zones_by_place(given: Any, wanted: Any, found: Any) -> bool:
    """What Koordinator gives to the zone at a place of the list belongs to the NUMA node of that number."""
    names = [zone["name"] for zone in given.get("nrtZones") or []]
    ids = [nrt.numa_node_of_zone(name) for name in names]
    if sorted(ids, key=lambda node: -1 if node is None else node) == ids:
        return False
    return all(
        found[name]["quantity"] == wanted[name]["quantity"]
        and found[name]["zones"] == {f"node-{at}": wanted[name]["zones"][zone] for at, zone in enumerate(names)}
        for name in wanted
    )


@deviation(
    "zone-repeated: a NUMA node that a pod's promise names twice bears its part once", "GetPodNUMARequestAndUsage"
)
def node_repeated(given: Any, wanted: Any, found: Any) -> bool:
    """A node named twice bears its part once and whole; Koordinator divides by two and gives one of the halves."""
    text = given["pod"]["metadata"]["annotations"]["scheduling.koordinator.sh/resource-status"]
    nodes = [entry["node"] for entry in msgspec.json.decode(text)["numaNodeResources"]]
    pairs = [(_sum(wanted[part]), _sum(found[part])) for part in ("request", "usage")]
    whole = [shapes.use(given["podRequest"]), shapes.use(given["podUsage"])]
    return len(set(nodes)) < len(nodes) and all(
        theirs.cpu <= ours.cpu and ours.cpu >= asked.cpu and ours.memory >= asked.memory
        for (theirs, ours), asked in zip(pairs, whole, strict=True)
    )


@deviation(
    "zone-reset: a zone that is offered nothing gives back what it was offered",
    "UpdateNRTZoneListIfNeeded",
)
def zones_given_back(given: Any, wanted: Any, found: Any) -> bool:
    """What Koordinator leaves in a zone that is offered nothing goes; the rest is the same."""
    offered = (given.get("nr") or {}).get("zoneResources") or {}
    zones = [
        (name, [part for part in parts if part[0] not in BATCH or part[0] in offered.get(name, {})])
        for name, parts in wanted["zones"]
    ]
    ours = {"needUpdate": True, "zones": zones}
    return bool(zones != wanted["zones"] and found == {name: ours[name] for name in wanted})


def _less_by(more: Any, less: Any, most: Use) -> bool:
    """One side exceeds the other by something, and by `most` at most."""
    limits = {name: Quantity.of(most.cpu if name.endswith("-cpu") else most.memory) for name in more}
    gaps = {name: more[name]["quantity"].nano - less[name]["quantity"].nano for name in limits}
    return any(gaps.values()) and all(0 <= gap <= limits[name].nano for name, gap in gaps.items())


def _sum(uses: list[Use]) -> Use:
    return Use(sum(use.cpu for use in uses), sum(use.memory for use in uses))


def _status(given: Any) -> Any:
    """Of the NodeMetric, whatever it is wrapped in."""
    metrics = given.get("resourceMetrics") or given.get("metrics") or given
    return metrics["nodeMetric"]["status"]
