"""NodeResourceTopology as scheduler-plugins judges it, and what its reporters sign and encode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from koordlite.model import nrt as reports
from koordlite.model.quantity import Quantity
from koordlite.numa.nrt import filter as nrt_filter
from koordlite.numa.nrt import fingerprint, placement, reader
from koordlite.numa.nrt import score as nrt_score
from koordlite.numa.nrt.filter import Amounts, Zones
from koordlite.numa.nrt.score import only_elsewhere
from koordlite.reservation import pods
from koordlite.scheduler.node_state import has_exclusive
from tests.conformance.adapters import adapter, mappings, shapes


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
    asked = request_of(given["pod"], guaranteed=given["pod"]["qosClass"] == "Guaranteed")
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
        request_of(given["pod"], guaranteed=True),
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


def request_of(pod: Any, *, guaranteed: bool) -> nrt_filter.AlignedRequest:
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


def _pod(given: Any) -> Any:
    parts = {"containers": "containers", "initContainers": "initContainers"}
    spec: dict[str, Any] = {key: [_container(c) for c in given.get(name) or ()] for key, name in parts.items()}
    spec["overhead"] = given.get("overhead") or {}
    meta = {"name": "pod", "namespace": "default", "uid": "uid", **(given.get("metadata") or {})}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending", "qosClass": given["qosClass"]}}


def _container(given: Any) -> Any:
    resources = {key: given.get(key) or {} for key in ("requests", "limits")}
    return {"name": given.get("name"), "restartPolicy": given.get("restartPolicy"), "resources": resources}


def flaw(text: str, pods: list[tuple[str, str]]) -> str | None:
    """What upstream's check says of a fingerprint, in its order. Ours is compared as a whole."""
    if len(text.encode()) < 16 or not text.startswith("pfp0"):
        return "malformed"
    if not text.startswith("pfp0v001"):
        return "incompatible-version"
    return None if text == fingerprint.sign(pods) else "mismatch"


mappings(
    {
        # The NUMA question only, since another filter of the scheduler asks for resources.
        "nrt.filter": filtered,
        "nrt.topology_manager_config": lambda given: _config(_told(given).over(reader.DEFAULT)),
        "nrt.topology_manager_config_partial": lambda given: {
            key: value for key, value in _config(_told(given)).items() if value
        },
        "podfingerprint.sign": lambda given: {"fingerprint": fingerprint.sign(_names(given))},
        "podfingerprint.check": lambda given: {"error": flaw(given["fingerprint"], _names(given))},
        "numaplacement.hash": lambda given: {"hash": str(placement.hash_of(_place(given)))},
        "nrt.only_non_numa": lambda given: {"onlyNonNUMA": only_elsewhere(_zones(given), given["requests"])},
        "nrt.read_fingerprint": lambda given: {
            "fingerprint": fingerprint.read(_attributes(given), given.get("annotations") or {})
        },
        "nrt.read_fingerprint_method": lambda given: {"onlyExclusive": fingerprint.only_exclusive(_attributes(given))},
    }
)


def _told(given: Any) -> reader.Told:
    by_policies = reader.by_policies(given.get("topologyPolicies") or ())
    return reader.by_attributes(given.get("attributes") or ()).over(by_policies)


def _config(told: reader.Told) -> dict[str, Any]:
    return {"policy": told.policy, "scope": told.scope, "maxNUMANodes": told.max_numa_nodes}


@adapter("nrt.subtract_from_one_numa")
def taken_from_one(given: Any, expect: Any) -> tuple[Any, Any]:
    zones, guaranteed = _zones(given), given["qosClass"] == "Guaranteed"
    asked = {name: nano for name, nano in amounts(given["requests"]).items() if _counts(name, guaranteed)}
    if any(asked.get(name, 0) > left for name, left in zones.get(given["numaID"], {}).items()):
        # A part is placed only where it fits. Which of several resources is named depends on Go's order of a map.
        return {"error": True}, {"error": bool(expect.get("error") or expect.get("expectedError"))}
    return nrt_filter.without(zones, (given["numaID"],), asked), _zones(expect)


@adapter("nrt.subtract_from_numas")
def taken_from_several(given: Any, expect: Any) -> tuple[Any, Any]:
    return nrt_filter.without(_zones(given), given["fromNUMAs"], amounts(given["requests"])), _zones(expect)


def _counts(name: str, guaranteed: bool) -> bool:
    """Of a pod that is not Guaranteed, devices only are taken from a NUMA node."""
    return guaranteed or not nrt_filter.is_shared(name)


@adapter("nrt.overreserve_apply")
def reserved_everywhere(given: Any, expect: Any) -> tuple[Any, Any]:
    zones = {zone["name"]: amounts(zone["resources"]) for zone in given["zones"]}
    for pod in given["pods"]:
        requests = shapes.pod_of({"spec": _pod({"qosClass": "", **pod})["spec"]}).requests
        asked = {name: amount.nano for name, amount in requests.items()}
        zones = {name: nrt_filter.without({0: zone}, (0,), asked)[0] for name, zone in zones.items()}
    return zones, {zone["name"]: amounts(zone["available"]) for zone in expect["zones"]}


@adapter("nrt.pod_resources_class")
def resources_class(given: Any, expect: Any) -> tuple[Any, Any]:
    found = {"nonNative": _devices(given["pod"]), "exclusive": _exclusive(given["pod"], given["nrtResources"])}
    return {key: found[key] for key in expect}, expect


@adapter("nrt.is_foreign_pod")
def foreign(given: Any, expect: Any) -> tuple[Any, Any]:
    """Bound, and by a scheduler that is none of the profiles'."""
    pod = given["pod"]
    bound = bool(pod.get("nodeName")) and pod.get("schedulerName", "") not in given["profileNames"]
    counts = not given["exclusiveOnly"] or _exclusive(pod, given["nrtResources"])
    return {"foreign": bound and counts}, expect


def _running(pod: Any) -> list[Amounts]:
    """What app containers and sidecars ask for: plain init containers have ended."""
    sidecars = [c for c in pod.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return [amounts(c.get("requests")) for c in (*(pod.get("containers") or ()), *sidecars)]


def _exclusive(pod: Any, listed: Any) -> bool:
    guaranteed = pod["qosClass"] == "Guaranteed"
    return has_exclusive(pods.exclusive(_running(pod), guaranteed=guaranteed), listed)


def _devices(pod: Any) -> bool:
    """Does any container, an init container too, ask for something that is not native?"""
    containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
    return any(not nrt_filter.is_native(name) for container in containers for name in container.get("requests") or ())


@adapter("nrt.after_eviction")
def after_eviction(given: Any, expect: Any) -> tuple[Any, Any]:
    zones = {_number(zone["name"]): zone for zone in given["nrt"]["zones"]}
    available, totals = _column(zones, "available"), _column(zones, "allocatable")
    why = _unanswerable(given)
    if why:
        return why, expect.get("error")
    try:
        after = _given_back(available, totals, _released(given, totals))
    except ValueError as error:
        return str(error), expect.get("error")
    wanted = {_number(zone["name"]): zone for zone in expect["nrt"]["zones"]} if "nrt" in expect else {}
    return after, _column(wanted, "available")


def _unanswerable(given: Any) -> str:
    """What a scheduler says before any arithmetic."""
    if not given.get("victims"):
        return "no victims found, cannot process eviction simulation"
    if given.get("placement") is None:
        return "numa placement info not found, cannot process eviction simulation"
    if not given["placement"]:
        return "no containers found in numa placement info, cannot process eviction simulation"
    return ""


def _released(given: Any, totals: Zones) -> Iterator[tuple[int | None, Amounts]]:
    place = {(p["namespace"], p["pod"], p["container"]): p["numa"] for p in given["placement"]}
    listed = {name for zone in totals.values() for name in zone}
    for pod in given["victims"]:
        meta = pod["metadata"]
        for container in pod["containers"]:
            zone = place.get((meta.get("namespace", ""), meta["name"], container["name"]))
            guaranteed = pod["qosClass"] == "Guaranteed"
            own = pods.exclusive([amounts(container.get("requests"))], guaranteed=guaranteed)
            yield zone, {name: nano for name, nano in own.items() if has_exclusive({name: nano}, listed)}


def _given_back(zones: Zones, totals: Zones, victims: Iterable[tuple[int | None, Amounts]]) -> Zones:
    """What evicted containers had is back; upstream concludes nothing from amounts that cannot be right."""
    after = {number: dict(zone) for number, zone in zones.items()}
    placed = [(number, released) for number, released in victims if number is not None and released]
    for number, released in placed:
        if number in after:
            nrt_filter.add(after[number], {name: released.get(name, 0) for name in after[number]})
    if not placed:
        raise ValueError("no resources to add, cannot process eviction simulation")
    if any(nano > totals[number].get(name, nano) for number, zone in after.items() for name, nano in zone.items()):
        raise ValueError("resource release request exceeds NUMA allocatable")
    return after


def _attributes(given: Any) -> dict[str, str]:
    return {a["name"]: a["value"] for a in given.get("attributes") or ()}


def _column(zones: Mapping[int, Any], column: str) -> dict[int, dict[str, int]]:
    return {
        number: {r["name"]: Quantity.parse(r[column]).nano for r in zone["resources"] if column in r}
        for number, zone in zones.items()
    }


def _zones(given: Any) -> dict[int, dict[str, int]]:
    return {zone["numaID"]: amounts(zone["resources"]) for zone in given["numaNodes"]}


def _number(name: str) -> int:
    return int(name.removeprefix("node-"))


@adapter("numaplacement.leb89")
def number(given: Any, expect: Any) -> tuple[Any, Any]:
    text = placement.number(given["value"])
    assert list(placement.numbers(text)) == [given["value"]]
    found = {"text": text, "chars": len(text)}
    return {name: found[name] for name in expect}, expect


@adapter("numaplacement.encode")
def encode(given: Any, expect: Any) -> tuple[Any, Any]:
    nodes = {_place(each): each["numa"] for each in given["containers"]}
    try:
        encoded = placement.encode(nodes, numa_nodes=given["numaNodes"])
    except placement.PlacementError as error:
        return {"error": error.flaw}, expect
    assert placement.decode(placement.parse_metadata(str(encoded.metadata)), encoded.vectors, list(nodes)) == nodes
    vectors = {str(node): vector for node, vector in encoded.vectors.items()}
    return {"metadata": str(encoded.metadata), "vectors": vectors}, expect


@adapter("numaplacement.unpack_metadata")
def unpack(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        read = placement.parse_metadata(given["metadata"])
    except placement.PlacementError as error:
        return {"error": error.flaw}, expect
    found = {
        "error": None,
        "containers": read.containers,
        "numaNodes": read.numa_nodes,
        "busiestNode": read.busiest,
        "vectorEncoding": read.encoding,
    }
    return {name: found.get(name) for name in expect}, expect


def _names(given: Any) -> list[tuple[str, str]]:
    return [(pod["namespace"], pod["name"]) for pod in given["pods"]]


def _place(given: Any) -> placement.Container:
    return given["namespace"], given["pod"], given["container"]
