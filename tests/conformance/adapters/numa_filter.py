"""NodeResourceTopology as scheduler-plugins judges it: does a pod fit, what is left, what does the node say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from koordlite.model.quantity import Quantity
from koordlite.numa.nrt import filter as nrt_filter
from koordlite.numa.nrt import fingerprint, reader
from koordlite.numa.nrt.filter import Amounts, Zones
from koordlite.numa.nrt.score import only_elsewhere
from koordlite.reservation import pods
from koordlite.scheduler.judgement.reports import has_exclusive
from tests.conformance.adapters import adapter, mappings, nrt_match, shapes


@adapter("nrt.filter")
def fits(given: Any, expect: Any) -> tuple[Any, Any]:
    """The NUMA question only, since another filter of the scheduler asks for resources."""
    return nrt_match.filtered(given), expect


def _pod(given: Any) -> Any:
    parts = {"containers": "containers", "initContainers": "initContainers"}
    spec: dict[str, Any] = {key: [_container(c) for c in given.get(name) or ()] for key, name in parts.items()}
    spec["overhead"] = given.get("overhead") or {}
    meta = {"name": "pod", "namespace": "default", "uid": "uid", **(given.get("metadata") or {})}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending", "qosClass": given["qosClass"]}}


def _container(given: Any) -> Any:
    resources = {key: given.get(key) or {} for key in ("requests", "limits")}
    return {"name": given.get("name"), "restartPolicy": given.get("restartPolicy"), "resources": resources}


mappings(
    {
        "nrt.topology_manager_config": lambda given: _config(_told(given).over(reader.DEFAULT)),
        "nrt.topology_manager_config_partial": lambda given: {
            key: value for key, value in _config(_told(given)).items() if value
        },
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
    asked = {name: nano for name, nano in _amounts(given["requests"]).items() if _counts(name, guaranteed)}
    if any(asked.get(name, 0) > left for name, left in zones.get(given["numaID"], {}).items()):
        # A part is placed only where it fits. Which of several resources is named depends on Go's order of a map.
        return {"error": True}, {"error": bool(expect.get("error") or expect.get("expectedError"))}
    return nrt_filter.without(zones, (given["numaID"],), asked), _zones(expect)


@adapter("nrt.subtract_from_numas")
def taken_from_several(given: Any, expect: Any) -> tuple[Any, Any]:
    zones, amounts = _zones(given), _amounts(given["requests"])
    return nrt_filter.without(zones, given["fromNUMAs"], amounts), _zones(expect)


def _counts(name: str, guaranteed: bool) -> bool:
    """Of a pod that is not Guaranteed, devices only are taken from a NUMA node."""
    return guaranteed or not nrt_filter.is_shared(name)


@adapter("nrt.overreserve_apply")
def reserved_everywhere(given: Any, expect: Any) -> tuple[Any, Any]:
    zones = {zone["name"]: _amounts(zone["resources"]) for zone in given["zones"]}
    for pod in given["pods"]:
        requests = shapes.pod_of({"spec": _pod({"qosClass": "", **pod})["spec"]}).requests
        asked = {name: amount.nano for name, amount in requests.items()}
        zones = {name: nrt_filter.without({0: zone}, (0,), asked)[0] for name, zone in zones.items()}
    return zones, {zone["name"]: _amounts(zone["available"]) for zone in expect["zones"]}


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
    return [_amounts(c.get("requests")) for c in (*(pod.get("containers") or ()), *sidecars)]


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
            own = pods.exclusive([_amounts(container.get("requests"))], guaranteed=guaranteed)
            yield zone, {name: nano for name, nano in own.items() if has_exclusive({name: nano}, listed)}


def _given_back(zones: Zones, totals: Zones, victims: Iterable[tuple[int | None, Amounts]]) -> Zones:
    """What evicted containers had is back; upstream concludes nothing from amounts that cannot be right."""
    after = {number: dict(zone) for number, zone in zones.items()}
    for number, amounts in victims:
        if number is not None and number in after:
            nrt_filter.add(after[number], {name: amounts.get(name, 0) for name in after[number]})
    if after == zones:
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
    return {zone["numaID"]: _amounts(zone["resources"]) for zone in given["numaNodes"]}


def _amounts(given: Any) -> dict[str, int]:
    return {name: Quantity.parse(text).nano for name, text in (given or {}).items()}


def _number(name: str) -> int:
    return int(name.removeprefix("node-"))
