"""NodeResourceTopologyMatch of scheduler-plugins: its scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordlite.model import nrt as reports
from koordlite.model.quantity import Quantity
from koordlite.numa.nrt import filter as nrt_filter
from koordlite.numa.nrt import reader
from koordlite.numa.nrt import score as nrt_score
from tests.conformance.adapters import adapter


@adapter("nrt.normalize_score")
def normalized(given: Any, expect: Any) -> tuple[Any, Any]:
    found = nrt_score.least_numa_score(
        given["numaNodesUsed"], is_nearest=given["isMinDistance"], max_numa_nodes=given["maxNUMANodes"]
    )
    return {"score": found}, expect


@adapter("nrt.numa_nodes_required")
def required(given: Any, expect: Any) -> tuple[Any, Any]:
    guaranteed = given["qosClass"] == "Guaranteed"
    asked = nrt_filter.request([("app", "", amounts(given["requests"]))], guaranteed=guaranteed, overhead={})
    zones = {zone["numaID"]: amounts(zone["available"]) for zone in given["numaNodes"]}
    costs = {zone["numaID"]: {int(to): far for to, far in zone["costs"].items()} for zone in given["numaNodes"]}
    found = nrt_score.nodes_required(asked.parts[0], zones, costs)
    if found is None:
        return {"numaNodes": None}, {"numaNodes": expect.get("numaNodes") or None}
    return {"numaNodes": sorted(found[0]), "isMinDistance": found[1]}, expect


@adapter("nrt.score")
def scores(given: Any, expect: Any) -> tuple[Any, Any]:
    found = {report["metadata"]["name"]: _score(given, report) for report in given["nrts"]}
    best = max(found, key=lambda name: found[name])
    answer = {"scores": found, "best": best, "bestScore": found[best]}
    return {key: answer[key] for key in expect}, expect


def filtered(given: Any) -> Any:
    """What the filter answers to a case."""
    report = given.get("nrt")
    words = reader.by_policies((report or {}).get("topologyPolicies") or ())
    said = reader.by_attributes((report or {}).get("attributes") or ()).over(words)
    asked = asked_by(given["pod"], guaranteed=given["pod"]["qosClass"] == "Guaranteed")
    best_effort = given["pod"]["qosClass"] == "BestEffort" and nrt_filter.only_native(asked)
    if report is None or best_effort or said.policy != "single-numa-node":
        return {"code": "Success"}
    allocatable = amounts({"pods": "110", **given["nodeAllocatable"]})
    scope = said.over(reader.DEFAULT).scope
    fit = nrt_filter.align(asked, zones=zones_of(report), allocatable=allocatable, scope=scope)
    return {"code": "Unschedulable", "message": fit.why_not} if fit.why_not else {"code": "Success"}


def _score(given: Any, report: Any) -> int:
    word, scope = reports.kubelet_topology_manager((report.get("topologyPolicies") or [""])[0])
    strategy = given["strategy"]
    if not _guaranteed(given["pod"]):
        return nrt_score.FULL
    if strategy != nrt_score.LEAST_NUMA_NODES and word != "single-numa-node":
        return 0
    return nrt_score.score(
        asked_by(given["pod"], guaranteed=True),
        zones=zones_of(report),
        costs=_costs(report),
        scope=scope,
        strategy=strategy,
        weights=given.get("resourceWeights"),
    )


def _guaranteed(pod: Any) -> bool:
    if "qosClass" in pod:
        return bool(pod["qosClass"] == "Guaranteed")
    return all({"cpu", "memory"} <= (c.get("limits") or {}).keys() or "cpu" not in c["requests"] for c in _all(pod))


def _all(pod: Any) -> list[Any]:
    return [*(pod.get("initContainers") or ()), *pod["containers"]]


def asked_by(pod: Any, *, guaranteed: bool) -> nrt_filter.AlignedRequest:
    """The pod of a case as the filter counts it."""
    started: list[Any] = [
        ("sidecar" if c.get("restartPolicy") == "Always" else "init", c.get("name", ""), amounts(c.get("requests")))
        for c in pod.get("initContainers") or ()
    ]
    started += [("app", c.get("name", ""), amounts(c.get("requests"))) for c in pod.get("containers") or ()]
    return nrt_filter.request(started, guaranteed=guaranteed, overhead=amounts(pod.get("overhead")))


def zones_of(report: Any) -> dict[int, dict[str, int]]:
    """What is available by NUMA node."""
    found = {reports.numa_node_of_zone(zone["name"]): zone for zone in report["zones"] if zone["type"] == "Node"}
    return {
        node: {r["name"]: Quantity.parse(r["available"]).nano for r in zone.get("resources") or ()}
        for node, zone in found.items()
        if node is not None
    }


def _costs(report: Any) -> dict[int, dict[int, int]]:
    number = reports.numa_node_of_zone
    return {
        number(zone["name"]) or 0: {number(cost["name"]) or 0: cost["value"] for cost in zone.get("costs") or ()}
        for zone in report["zones"]
    }


def amounts(given: Mapping[str, Any] | None) -> dict[str, int]:
    """Quantities in nano-units."""
    return {name: Quantity.parse(text).nano for name, text in (given or {}).items()}
