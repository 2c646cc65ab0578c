"""Where NUMA rules of Koordinator, Crane and scheduler-plugins are kept otherwise than their code keeps them."""

from __future__ import annotations

import copy
from typing import Any

from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.numa.koordinator import ask, schedule
from koordlite.numa.koordinator.allocate import Supply
from koordlite.numa.machine import subsets
from koordlite.reservation import lifecycle, matching
from tests.conformance.adapters import koordinator_numa, nrt_match, reservations, shapes
from tests.conformance.deviations import deviation


@deviation(
    "numa-promise-wrong: where the promised CPUs stand wrong themselves, writing them again is no cure",
    "numa.violation",
)
def promise_stands_wrong(given: Any, wanted: Any, found: Any) -> bool:
    """The promised CPUs span NUMA nodes themselves, and all that differs is that the finding is hard."""
    promises = {c["name"]: c.get("promise") or {} for c in given["pod"]["containers"]}
    numa = {row[0]: row[3] for row in given["node"]["topology"]}
    wrong = {name for name, promise in promises.items() if len(_nodes(promise, numa)) > 1}
    softened = [_softened(one, wrong) for one in found["violations"]]
    return bool(wrong) and softened == wanted["violations"]


def _nodes(promise: Any, numa: Any) -> set[int]:
    return {numa[cpu] for cpu in CPUSet.parse(promise.get("cpuset", "")) if cpu in numa}


def _softened(one: Any, wrong: set[str]) -> Any:
    spans = one["container"] in wrong and one["code"] in ("CPUSpansNUMA", "CPUWrongNUMA")
    return {**one, "severity": "fixable"} if spans else one


@deviation("koord-words: what is wrong with an annotation is said in our parser's words", "PreFilter", "schedule")
def own_words(given: Any, wanted: Any, found: Any) -> bool:
    """An annotation cannot be read, and the parser's words differ; the code is the same."""
    if _code(wanted) != _code(found):
        return False
    said = found.get("preFilter", found).get("reasons", [""])[0]
    return bool(_code(found) == "Error" or said.startswith(keys.RESERVATION_AFFINITY))


def _code(answer: Any) -> Any:
    return answer.get("preFilter", answer).get("code")


@deviation("koord-exact-count: a pod never gets more CPUs than it asks for", "takeCPUs", "takePreferredCPUs")
def more_than_asked(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator takes the rest of an odd number once from each socket that is left."""
    return len(CPUSet.parse(wanted["cpus"])) > given["numCPUs"] == len(CPUSet.parse(found["cpus"]))


@deviation(
    "koord-zone-order: amounts are split over NUMA nodes in the order of what these have, whatever their numbers",
    "Allocate",
    "GetTopologyHints",
    "schedule",
)
def other_order(given: Any, wanted: Any, found: Any) -> bool:
    """For some set of NUMA nodes, Koordinator's order is not that of what they have available."""
    if "pod" in given:
        asked = ask.of(koordinator_numa.pod_of(given["pod"]), koordinator_numa.settings_of(given))
        node = koordinator_numa.scheduled_node(given)
        assert isinstance(asked, ask.PodRequest)
        request = schedule.request_on(asked, node, koordinator_numa.settings_of(given))
    else:
        node, request = koordinator_numa.node_of(given), koordinator_numa.request_of(given)
    zones = Supply.of(node, request).zones
    amounts = [{zone: part[name].nano for zone, part in zones.items() if name in part} for name in request.requests]
    return any(_by_slots(nodes, each) != _by_amounts(nodes, each) for nodes, _ in subsets(zones) for each in amounts)


def _by_amounts(nodes: tuple[int, ...], amounts: dict[int, int]) -> list[int]:
    return sorted(nodes, key=lambda node: (amounts.get(node, 0), node))


def _by_slots(nodes: tuple[int, ...], amounts: dict[int, int]) -> list[int]:
    """Sorted by insertion, where places in the list are compared as if they were numbers of NUMA nodes."""
    order = list(nodes)
    for end in range(1, len(order)):
        for place in range(end, 0, -1):
            if amounts.get(place, 0) >= amounts.get(place - 1, 0):
                break
            order[place - 1], order[place] = order[place], order[place - 1]
    return order


@deviation(
    "reservation-taints: taints also keep off pods without a reservation affinity",
    "ReservationAffinity",
    "matchReservation",
)
def taints_without_affinity(given: Any, wanted: Any, found: Any) -> bool:
    """The reservation is tainted, and the pod has no affinity annotation."""
    notes = given.get("podAnnotations") or given.get("pod", {}).get("metadata", {}).get("annotations") or {}
    reservation = given["reservation"]
    tainted = reservation.get("taints") or reservation.get("spec", {}).get("taints")
    return "scheduling.koordinator.sh/reservation-affinity" not in notes and bool(tainted)


@deviation(
    "reservation-exact: a resource that pod and reservation both lack does not end the comparison",
    "ExactMatchReservation",
    "matchReservation",
)
def missing_on_both_sides(given: Any, wanted: Any, found: Any) -> bool:
    """A resource that has to be equal is neither requested nor held, and another one differs."""
    if "pod" in given:
        one = matching.candidate(reservations.pod_of(given["pod"]), shapes.pod_of(given["pod"]).requests)
        sides = (one.requests, lifecycle.requests(reservations.reservation_of(given["reservation"])))
        return any(all(name not in side for side in sides) for name in one.exact)
    names = (given.get("spec") or {}).get("resourceNames") or ()
    return any(name not in given["podRequests"] and name not in given["reservationAllocatable"] for name in names)


@deviation("reservation-version: an owner of version v1 is a pod", "MatchReservationOwners", "matchReservation")
def version_of_pods(given: Any, wanted: Any, found: Any) -> bool:
    """An owner names the version that pods have."""
    owners = given.get("owners") or given.get("reservation", {}).get("spec", {}).get("owners") or ()
    return any((owner.get("object") or {}).get("apiVersion") == "v1" for owner in owners)


@deviation("reservation-unplaced: a reservation that was never placed expires, too", "syncReservationStatus")
def never_placed(given: Any, wanted: Any, found: Any) -> bool:
    """It has no node, and its time is over."""
    return not given["reservation"].get("status", {}).get("nodeName") and found["phase"] == "Failed"


@deviation("crane-numa-widened", "crane.allocate")
def _numa_widened(given: Any, wanted: Any, found: Any) -> bool:
    """After a removal, containers of policy numa have more CPUs than Crane gives them before its next round; nothing
    else differs."""
    numa = {(step["pod"], step["container"]) for step in given["steps"] if step.get("cpuPolicy") == "numa"}
    removed = False
    for step, theirs, ours in zip(given["steps"], wanted["results"], found["results"], strict=True):
        removed = removed or step["op"] == "remove"
        if theirs["error"] != ours["error"] or theirs["defaultCPUSet"] != ours["defaultCPUSet"]:
            return False
        for key, cpus in _sets(theirs).items():
            other = _sets(ours).get(key)
            if other != cpus and not (removed and key in numa and other is not None and cpus <= other):
                return False
    return removed


def _sets(result: Any) -> dict[tuple[str, str], CPUSet]:
    assigned = result["assignments"]
    return {(pod, name): CPUSet.parse(text) for pod, theirs in assigned.items() for name, text in theirs.items()}


@deviation("crane-pod-divided", "crane.allocate")
def _reused(given: Any, wanted: Any, found: Any) -> bool:
    """A container's result is as large as what its pod has, and another pod was placed, or the pod lost a container,
    in between: Crane then chooses by what it remembers, not by what the pod has."""
    last: str | None = None
    for step in given["steps"]:
        interrupted = step["op"] == "remove" or (last is not None and step["pod"] != last)
        last = step["pod"]
        if interrupted and sum(other["pod"] == step["pod"] for other in given["steps"]) > 1:
            return True
    return False


@deviation("crane-carry-over", "crane.build_zones")
def _carried(given: Any, wanted: Any, found: Any) -> bool:
    """Only what is left on a NUMA node differs, and more is reserved than the first one has."""
    return bool(given.get("reserved")) and [zone["name"] for zone in wanted["zones"]] == [
        zone["name"] for zone in found["zones"]
    ]


@deviation(
    "nrt-sidecars: a sidecar keeps what it takes; what follows and the whole pod have to fit beside it", "nrt.filter"
)
def _sidecar_stays(given: Any, wanted: Any, found: Any) -> bool:
    """With its sidecars as init containers that end, the pod gets the answer expected."""
    del found
    case = copy.deepcopy(given)
    sidecars = [c for c in case["pod"].get("initContainers") or () if c.pop("restartPolicy", "") == "Always"]
    return bool(sidecars) and nrt_match.filtered(case) == wanted
