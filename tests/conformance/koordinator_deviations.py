"""Where Koordinator's NUMA rules are kept otherwise than its code keeps them, on purpose."""

from __future__ import annotations

from typing import Any

from koordlite.model.cpuset import CPUSet
from koordlite.numa.koordinator import ask, schedule
from koordlite.numa.koordinator.allocate import Supply
from koordlite.numa.machine import subsets
from koordlite.reservation import lifecycle, matching
from tests.conformance.adapters import koordinator_numa, reservations, shapes
from tests.conformance.deviation import Deviation


def own_words(given: Any, wanted: Any, found: Any) -> bool:
    """An annotation cannot be read, and the parser's words differ; the code is the same."""
    return bool(_code(wanted) == _code(found) == "Error")


def _code(answer: Any) -> Any:
    return answer.get("preFilter", answer).get("code")


def more_than_asked(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator takes the rest of an odd number once from each socket that is left."""
    return len(CPUSet.parse(wanted["cpus"])) > given["numCPUs"] == len(CPUSet.parse(found["cpus"]))


def other_order(given: Any, wanted: Any, found: Any) -> bool:
    """For some set of NUMA nodes, Koordinator's order is not that of what they have available."""
    if "pod" in given:
        asked = ask.of(koordinator_numa.pod_of(given["pod"]), koordinator_numa.settings_of(given))
        node = koordinator_numa.scheduled_node(given)
        assert isinstance(asked, ask.PodAsk)
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


def taints_without_affinity(given: Any, wanted: Any, found: Any) -> bool:
    """The reservation is tainted, and the pod has no affinity annotation."""
    notes = given.get("podAnnotations") or given.get("pod", {}).get("metadata", {}).get("annotations") or {}
    reservation = given["reservation"]
    tainted = reservation.get("taints") or reservation.get("spec", {}).get("taints")
    return "scheduling.koordinator.sh/reservation-affinity" not in notes and bool(tainted)


def missing_on_both_sides(given: Any, wanted: Any, found: Any) -> bool:
    """A resource that has to be equal is neither requested nor held, and another one differs."""
    if "pod" in given:
        one = matching.candidate(reservations.pod_of(given["pod"]), shapes.pod_of(given["pod"]).requests)
        sides = (one.requests, lifecycle.requests(reservations.reservation_of(given["reservation"])))
        return any(all(name not in side for side in sides) for name in one.exact)
    names = (given.get("spec") or {}).get("resourceNames") or ()
    return any(name not in given["podRequests"] and name not in given["reservationAllocatable"] for name in names)


def version_of_pods(given: Any, wanted: Any, found: Any) -> bool:
    """An owner names the version that pods have."""
    owners = given.get("owners") or given.get("reservation", {}).get("spec", {}).get("owners") or ()
    return any((owner.get("object") or {}).get("apiVersion") == "v1" for owner in owners)


def never_placed(given: Any, wanted: Any, found: Any) -> bool:
    """It has no node, and its time is over."""
    return not given["reservation"].get("status", {}).get("nodeName") and found["phase"] == "Failed"


DEVIATIONS = (
    Deviation(
        ("PreFilter", "schedule"),
        own_words,
        "koord-words: what is wrong with an annotation is said in our parser's words",
    ),
    Deviation(
        ("takeCPUs", "takePreferredCPUs"),
        more_than_asked,
        "koord-exact-count: a pod never gets more CPUs than it asks for",
    ),
    Deviation(
        ("Allocate", "GetTopologyHints", "schedule"),
        other_order,
        "koord-zone-order: amounts are split over NUMA nodes in the order of what these have, whatever their numbers",
    ),
    Deviation(
        ("ReservationAffinity", "matchReservation"),
        taints_without_affinity,
        "reservation-taints: taints also keep off pods without a reservation affinity",
    ),
    Deviation(
        ("ExactMatchReservation", "matchReservation"),
        missing_on_both_sides,
        "reservation-exact: a resource that pod and reservation both lack does not end the comparison",
    ),
    Deviation(
        ("MatchReservationOwners", "matchReservation"),
        version_of_pods,
        "reservation-version: an owner of version v1 is a pod",
    ),
    Deviation(
        ("syncReservationStatus",),
        never_placed,
        "reservation-unplaced: a reservation that was never placed expires, too",
    ),
)
