"""Koordinator's Reservation: owners, affinity, matching, amounts, life cycle."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlite.model import times
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity
from koordlite.model.wire.objects import PodObject
from koordlite.model.wire.reservation import Condition, Owner, ReservationObject, ReservationStatus
from koordlite.reservation import capacity, lifecycle, matching
from koordlite.reservation.capacity import Demand, Holding, NodeCapacity
from koordlite.reservation.placeholder import reserve_pod
from tests.conformance.adapters import adapter, mappings, shapes

NOW = 2_000_000_000.0


@adapter("MatchReservationOwners")
def owned(given: Any, expect: Any) -> tuple[Any, Any]:
    listed = msgspec.convert(given.get("owners") or (), tuple[Owner, ...])
    try:
        return {"match": matching.match_owners(listed, pod_of(given["pod"]))}, expect
    except ValueError:
        return {"match": False, "parseError": True}, expect


@adapter("ReservationAffinity")
def asked(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        found = matching.parse_affinity(given.get("podAnnotations"), "pod")
    except InputError:
        return {"error": True}, expect
    reservation, one = given["reservation"], found or matching.NO_AFFINITY
    labels = {**(given.get("nodeLabels") or {}), **(reservation.get("labels") or {})}
    taints = reservation_of({"spec": {"taints": reservation.get("taints")}}).spec.taints
    return {
        "affinityMatches": one.selects(reservation["name"], labels),
        "hasAffinity": found is not None,
        "name": one.name,
        "nameMatches": one.name == reservation["name"],
        "toleratesUnschedulable": one.tolerates_unschedulable,
        "untoleratedTaint": one.untolerated(taints) is not None,
    }, expect


@adapter("matchReservation")
def matched(given: Any, expect: Any) -> tuple[Any, Any]:
    reservation, pod = reservation_of(given["reservation"]), given["pod"]
    one = matching.candidate(pod_of(pod), shapes.pod_of(pod).requests)
    why = matching.match(one, reservation, lifecycle.requests(reservation), given.get("nodeLabels") or {})
    return {"matchedOrIgnored": why in (matching.MATCHED, matching.IGNORED), "why": why}, expect


@adapter("ExactMatchReservation")
def exact(given: Any, expect: Any) -> tuple[Any, Any]:
    names = tuple((given.get("spec") or {}).get("resourceNames") or ())
    amounts = (shapes.quantities(given.get(name)) for name in ("podRequests", "reservationAllocatable"))
    return {"match": matching.exact_match(names, *amounts)}, expect


mappings(
    {
        "GetReservationRestrictedResources": lambda given: {
            "resources": list(capacity.restricted_names(given["allocatable"], given.get("options")))
        },
        "ValidateReservation": lambda given: {"error": lifecycle.invalid(reservation_of(given["reservation"])) or None},
    }
)


@adapter("NewReservePod")
def as_pod(given: Any, expect: Any) -> tuple[Any, Any]:
    return _numbers({"pod": reserve_pod(reservation_of(given["reservation"]))}), _numbers(expect)


def _numbers(value: Any) -> Any:
    """Amounts as numbers; what a writer leaves out because it is empty is left out."""
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if not isinstance(value, dict):
        return value
    amounts = {name: shapes.quantities(value[name]) for name in ("limits", "requests", "overhead") if value.get(name)}
    rest = {name: _numbers(each) for name, each in value.items() if name not in amounts and each not in (None, {}, [])}
    return {**rest, **amounts}


@adapter("SetReservationAvailable")
def made_available(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        found = lifecycle.available(reservation_of(given["reservation"]), given["nodeName"], times.show(NOW))
    except InputError:
        return {"error": True}, expect
    conditions = [{key: value for key, value in row.items() if value} for row in _rows(found)]
    amounts = shapes.quantities(found.allocatable)
    answer = {"allocatable": amounts, "conditions": conditions, "nodeName": found.node_name, "phase": found.phase}
    return answer, {**expect, "allocatable": shapes.quantities(expect.get("allocatable"))}


@adapter("SetReservationCondition")
def conditioned(given: Any, expect: Any) -> tuple[Any, Any]:
    conditions = msgspec.convert(given.get("conditions") or (), tuple[Condition, ...])
    status, now = ReservationStatus(phase=given["phase"], conditions=conditions), times.show(NOW)
    steps = {
        "expired": lambda: lifecycle.expired(status, now),
        "succeeded": lambda: lifecycle.succeeded(status, now),
        "unschedulable": lambda: lifecycle.unschedulable(status, given["message"], now),
    }
    found = steps.get(given["transition"], lambda: status)()
    return {"conditions": _rows(found), "isExpired": lifecycle.is_expired(found), "phase": found.phase}, expect


def _rows(status: ReservationStatus) -> list[dict[str, str]]:
    return [
        {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message} for c in status.conditions or ()
    ]


@adapter("isReservationNeedExpiration")
def expiring(given: Any, expect: Any) -> tuple[Any, Any]:
    expires = given.get("expiresSecondsFromNow")
    life = lifecycle.Lifetime(
        NOW + given["createdSecondsFromNow"], given.get("ttlSeconds"), None if expires is None else NOW + expires
    )
    ended = lifecycle.has_ended(ReservationStatus(phase=given["phase"]))
    found = (False, 0) if ended else (life.is_over(NOW), round(_next_look(life)))
    return {"expired": found[0], "nextSyncSeconds": found[1]}, expect


def _next_look(life: lifecycle.Lifetime) -> float:
    """Seconds until Koordinator looks again, 3 to 15; 0 when it need not. Our controller looks every 3 s."""
    end = life.expires
    if end is None:
        end = life.created + life.ttl if life.ttl and life.ttl > 0 else NOW
    return min(max(end - NOW, 3.0), 15.0) if end != NOW else 0.0


@adapter("isReservationNeedCleanup")
def garbage(given: Any, expect: Any) -> tuple[Any, Any]:
    moments = {
        "last_probe_time": times.show(NOW + given["lastProbeSecondsFromNow"]),
        "last_transition_time": times.show(NOW + given["lastTransitionSecondsFromNow"]),
    }
    status = "True" if given["readyReason"] == "Available" else "False"
    ready = Condition(type="Ready", status=status, reason=given["readyReason"], **moments)
    found = ReservationStatus(phase=given["phase"], conditions=(ready,))
    return {"cleanup": lifecycle.is_garbage(found, now=NOW, keep_seconds=given["gcDurationSeconds"])}, expect


@adapter("syncReservationStatus")
def synced(given: Any, expect: Any) -> tuple[Any, Any]:
    raw = given["reservation"]
    meta = {**raw["metadata"], "creationTimestamp": times.show(NOW - given["ageSeconds"])}
    pods = [(pod_of(pod), shapes.pod_of(pod).requests) for pod in given["podsOnNode"] or ()]
    found = lifecycle.synced(reservation_of({**raw, "metadata": meta}), pods, nodes=given["nodes"], now=NOW)
    ready = next((row for row in _rows(found) if row["type"] == "Ready"), None)
    answer = {
        "allocated": None if found.allocated is None else shapes.quantities(found.allocated),
        "currentOwners": [{"namespace": o.namespace, "name": o.name, "uid": o.uid} for o in found.current_owners or ()],
        "phase": found.phase,
        "ready": {"reason": ready["reason"], "status": ready["status"]} if ready else None,
    }
    wanted = {"ready": None, "currentOwners": [], **expect}
    return answer, {**wanted, "allocated": shapes.quantities(expect["allocated"]) if "allocated" in expect else None}


@adapter("ReservationInfo")
def holdings(given: Any, expect: Any) -> tuple[Any, Any]:
    reservation = reservation_of(given["reservation"])
    held, problems = lifecycle.holding(reservation)
    steps = [_step(reservation, held, problems, "")]
    for text in given.get("ops") or ():
        held = _after(held, text)
        steps.append(_step(reservation, held, problems, text))
    wanted = [{**step, "allocated": shapes.quantities(step["allocated"])} for step in expect["steps"]]
    return {"resourceNames": list(held.names), "steps": steps}, {**expect, "steps": wanted}


def _after(held: Holding, text: str) -> Holding:
    name, *amounts = text.split()
    if name.startswith("-"):
        return held.returned_by(name[1:])
    cpu, memory = amounts
    return held.taken_by(name[1:], {"cpu": Quantity.parse(cpu), "memory": Quantity.parse(f"{memory}Gi")})


def _step(reservation: ReservationObject, held: Holding, problems: Any, text: str) -> Any:
    return {
        "allocated": dict(held.allocated),
        "available": _resource(held.available),
        "matchable": lifecycle.is_matchable(reservation, held, problems),
        "op": text,
        "owners": len(held.owners),
    }


@adapter("ScoreReservation")
def scored(given: Any, expect: Any) -> tuple[Any, Any]:
    amounts = {name: shapes.quantities(given.get(name)) for name in ("allocatable", "allocated")}
    return {"ok": True, "score": capacity.score(shapes.quantities(given["podRequests"]), Holding(**amounts))}, expect


@adapter("findMostPreferredReservationByOrder")
def preferred(given: Any, expect: Any) -> tuple[Any, Any]:
    place = capacity.first_by_order(given["orders"])
    return {"selected": None if place is None else f"r{place}"}, expect


@adapter("fitsNodeAndReservation")
def fits(given: Any, expect: Any) -> tuple[Any, Any]:
    row = given["reservation"]
    notes = {
        "node.koordinator.sh/reservation": row["nodeReservationAnnotation"],
        "scheduling.koordinator.sh/reservation-restricted-options": row["restrictedOptions"],
    }
    raw = {
        "metadata": {"name": "r", "annotations": notes},
        "spec": {"allocatePolicy": row["allocatePolicy"]},
        "status": {"phase": "Available", "nodeName": "n", "allocatable": row["allocatable"]},
    }
    held, _ = lifecycle.holding(reservation_of(raw))
    for owner in row.get("owners") or ():
        held = held.taken_by(owner["name"], shapes.quantities(owner["requests"]))
    wanted = Demand(requests=shapes.quantities(given["podRequests"]), name="r" if given["detailedReasons"] else "")
    node, own = capacity.fit_both(wanted, _node(given), held)
    answer = {
        "available": _resource(held.available),
        "insufficientByNode": sorted(node),
        "reservationReasons": own,
        "resourceNames": list(held.names),
        "allocated": dict(held.allocated),
    }
    nothing = {"insufficientByNode": [], "reservationReasons": []}
    lists = {
        name: sorted(expect[name] or ()) if name == "insufficientByNode" else expect[name] or [] for name in nothing
    }
    return answer, {**expect, **lists, "allocated": shapes.quantities(expect.get("allocated"))}


@adapter("filterWithReservations")
def filtered(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = Demand(
        requests=shapes.quantities(given["podRequests"]),
        has_affinity=given["hasAffinity"],
        must_reserve=given["requiredFromReservation"],
        name=given["reservationName"],
    )
    held = [_holding(row) for row in given["reservations"]]
    why = capacity.refusals(wanted, _node(given), held, skip_node=given["skipReservationFitsNode"])
    return {"code": "Unschedulable", "reasons": list(why)} if why else {"code": "Success"}, expect


def _holding(row: Any) -> Holding:
    amounts = {name: shapes.quantities(row.get(name)) for name in ("allocatable", "allocated", "reserved")}
    return Holding(
        name=row["name"],
        uid=row["uid"],
        policy=row["allocatePolicy"],
        names=tuple(row["resourceNames"]),
        owners={str(number): {} for number in range(row.get("assignedPods", 0))},
        **amounts,
    )


def _node(given: Any) -> NodeCapacity:
    inside = given.get("preemptibleInReservations") or {}
    return NodeCapacity(
        allocatable=capacity.whole(shapes.quantities(given["nodeAllocatable"])),
        requested=_whole(given["podRequested"]),
        owners=_whole(given["rAllocated"]),
        pods=given["podsOnNode"],
        matched=given.get("matchedReservations", 0),
        preemptible=shapes.quantities(given.get("preemptible")),
        preemptible_in={uid: shapes.quantities(amounts) for uid, amounts in inside.items()},
    )


_FIELDS = {"milliCPU": "cpu", "memory": "memory", "ephemeralStorage": "ephemeral-storage"}


def _whole(row: Any) -> dict[str, int]:
    native = {name: row[field] for field, name in _FIELDS.items() if field in (row or {})}
    return {**native, **((row or {}).get("scalar") or {})}


def _resource(amounts: Any) -> dict[str, Any]:
    found = capacity.whole(amounts)
    found.pop("pods", None)  # counted apart from amounts
    native = {"memory": found.pop("memory", 0), "milliCPU": found.pop("cpu", 0)}
    storage = found.pop("ephemeral-storage", 0)
    return {**native, **({"ephemeralStorage": storage} if storage else {}), **({"scalar": found} if found else {})}


def pod_of(given: Any) -> PodObject:
    """The pod of a case."""
    return msgspec.convert(given, PodObject, strict=False)


def reservation_of(given: Any) -> ReservationObject:
    """The reservation of a case."""
    return msgspec.convert(given, ReservationObject, strict=False)
