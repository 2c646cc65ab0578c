"""Reservations for people and programs: who may use each, who does, what it holds, why it waits, and when it ends; as
documents, and as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koordlite.model import duration, keys, times
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity
from koordlite.model.wire.reservation import Owner, ReservationObject
from koordlite.reservation import hand_over, lifecycle, matching, placed, placeholder, validity, waiting
from koordlite.reservation.pods import ClusterPod, total_requests
from koordlite.reservation.step import Case
from koordlite.reservation.world import World

Document = dict[str, Any]


def all_of(world: World, now: float) -> list[Document]:
    """One line each, by name."""
    return [_line(world, world.reservations[name], now) for name in sorted(world.reservations)]


def one_of(world: World, name: str, settings: placeholder.PlaceholderSettings, now: float) -> Document | None:
    """Everything about one; None when there is none of that name."""
    reservation = world.reservations.get(name)
    if reservation is None:
        return None
    case = Case(world, reservation, settings, now)
    coming = hand_over.read(reservation)
    return {
        **_line(world, reservation, now),
        "uid": reservation.metadata.uid,
        "may": [_owner(each) for each in reservation.spec.owners or ()],
        "allocateOnce": lifecycle.is_once(reservation),
        "allocatePolicy": reservation.spec.allocate_policy or "Aligned",
        "unschedulable": reservation.spec.unschedulable,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in reservation.spec.taints or ()],
        "order": (reservation.metadata.labels or {}).get(keys.RESERVATION_ORDER),
        "remaining": _texts(case.remaining) if lifecycle.is_available(reservation) else {},
        "cpus": (reservation.metadata.annotations or {}).get(keys.RESOURCE_STATUS),
        "placeholders": [_placeholder(pod) for pod in world.placeholders(reservation.metadata.uid)],
        "handOver": msgspec.to_builtins(coming) if coming is not None and coming.uid else None,
        "waiting": list(_waiting(world, reservation, settings, now)),
        "problems": [str(problem) for problem in validity.problems(reservation)],
        "koordScheduler": sorted(world.koord_schedulers.values()),
    }


def _line(world: World, obj: ReservationObject, now: float) -> Document:
    status = obj.status
    pods = [pod for pod in world.placeholders(obj.metadata.uid) if pod.alive and pod.node]
    return {
        "name": obj.metadata.name,
        "phase": status.phase or "Pending",
        "node": status.node_name,
        "holds": _holds(obj),
        "held": _texts(total_requests(pods)),
        "taken": _texts(lifecycle.amounts(status.allocated)),
        "owners": [f"{owner.namespace}/{owner.name}" for owner in status.current_owners or ()],
        "why": _why(obj),
        **_end(obj, now),
    }


def _placeholder(pod: ClusterPod) -> Document:
    if pod.deleting:
        state = "being deleted"
    elif pod.ended:
        state = "failed"
    elif pod.node:
        state = "held" if pod.admitted else "bound, kubelet has not taken it yet"
    else:
        state = pod.refused() or "waits for its scheduler"
    return {"pod": pod.key, "node": pod.node, "state": state, "requests": _texts(pod.requests)}


def _holds(obj: ReservationObject) -> dict[str, str]:
    try:
        return _texts(placeholder.resources(obj))
    except (InputError, msgspec.ValidationError):
        return {}  # `problems` names it.


def _why(obj: ReservationObject) -> str:
    """Reason why it is not available, or what becomes of it."""
    if lifecycle.is_expired(obj.status):
        return "its time is over, or its node is gone"
    coming = hand_over.under_way(obj)
    if coming is not None:
        return f"it is being handed over to pod {coming.namespace}/{coming.name}"
    if lifecycle.has_ended(obj.status) or lifecycle.is_available(obj):
        return ""
    return lifecycle.message(obj.status) or "its placeholder is not placed yet"


def _end(obj: ReservationObject, now: float) -> Document:
    """Time when it ends by itself, and the field that says so."""
    try:
        life = None if lifecycle.has_ended(obj.status) else lifecycle.Lifetime.of(obj)
    except InputError:
        life = None
    if life is None:
        return {"ends": None, "endsBy": "", "endsInSeconds": None}
    ends = [(life.expires, "expires")] if life.expires is not None else []
    ends += [(life.created + life.ttl, "ttl")] if life.ttl else []
    if life.ttl == 0 or not ends:
        return {"ends": None, "endsBy": "never", "endsInSeconds": None}
    at, by = min(ends)
    return {"ends": times.show(at), "endsBy": by, "endsInSeconds": round(at - now)}


def _owner(owner: Owner) -> str:
    """Owners that may take it, as one line."""
    parts = []
    if owner.object is not None:
        fields = msgspec.to_builtins(owner.object)
        parts.append("pod " + " ".join(f"{key}={value}" for key, value in fields.items()))
    if owner.controller is not None:
        fields = msgspec.to_builtins(owner.controller)
        parts.append("pods of " + " ".join(f"{key}={value}" for key, value in fields.items() if key != "controller"))
    if owner.label_selector is not None:
        parts.append("pods with " + _selector(msgspec.to_builtins(owner.label_selector)))
    return ", and ".join(parts) or "every pod"


def _selector(selector: Mapping[str, Any]) -> str:
    labels = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    lines = selector.get("matchExpressions") or ()
    labels += [f"{e.get('key')} {e.get('operator')} {','.join(e.get('values') or ())}".rstrip() for e in lines]
    return " and ".join(labels) or "any labels"


def _waiting(
    world: World, obj: ReservationObject, settings: placeholder.PlaceholderSettings, now: float
) -> Iterator[dict[str, str]]:
    """Pods that wait for a node and that its owners name, and why they do not get it."""
    place, coming = placed.matchable(obj), hand_over.under_way(obj)

    def why(pod: ClusterPod, one: matching.Candidate) -> str:
        if place is None:
            return "it is not available"
        if coming is not None:
            return f"it is being handed over to {'it' if coming.uid == pod.uid else 'another pod'}"
        if pod.refused() is None:
            return "its scheduler has not said that no node has room"
        if against := waiting.refusal(world, one, place, now):
            return against
        other = waiting.taker(world, pod, obj, settings.guarded)
        return f"pod {other.key} would take the room first" if other else "it is the next, or one before it is"

    for pod in sorted(world.waiting.values(), key=lambda pod: pod.key):
        one = waiting.candidate(pod)
        if one is not None and matching.may_own(obj, one.pod):
            yield {"pod": pod.key, "why": why(pod, one)}


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items()) if amount.nano}


_COLUMNS = ("NAME", "PHASE", "NODE", "HOLDS", "TAKEN", "OWNERS", "ENDS IN", "WHY")


def table(documents: Sequence[Mapping[str, Any]], *, wide: bool = False) -> Iterator[str]:
    """All of them, in columns. `wide`: also what placeholders hold now."""
    rows: list[tuple[str, ...]] = [_COLUMNS, *(_row(each) for each in documents)]
    if wide:
        amounts = ["HELD NOW", *(_amounts(each["held"]) for each in documents)]
        rows = [(*row, text) for row, text in zip(rows, amounts, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def details(document: Mapping[str, Any]) -> Iterator[str]:
    """Everything about one."""
    where = f" on node {document['node']}" if document["node"] else ""
    yield f"Reservation {document['name']}: {document['phase']}{where}"
    if document["why"]:
        yield f"  why: {document['why']}"
    if document["koordScheduler"]:
        pods = ", ".join(document["koordScheduler"])
        yield f"  koord-scheduler runs ({pods}): it holds the place, no placeholder does"
    yield from (f"  problem: {each}" for each in document["problems"])
    yield f"  holds: {_amounts(document['holds'])}; placeholders hold now: {_amounts(document['held'])}"
    if document["taken"] or document["owners"]:
        yield f"  taken: {_amounts(document['taken'])} by {', '.join(document['owners']) or 'none'}"
    if document["cpus"]:
        yield f"  CPUs and NUMA nodes: {document['cpus']}"
    yield f"  may take it: {'; '.join(document['may']) or 'no pod'}"
    rules = [
        "the first owner ends it" if document["allocateOnce"] else "owners share it",
        "no part of an owner comes from the node"
        if document["allocatePolicy"] == "Restricted"
        else "what exceeds it may come from the node",
        *(["it takes no new owners"] if document["unschedulable"] else []),
        *(f"taint {taint}" for taint in document["taints"]),
        *([f"order {document['order']}"] if document["order"] else []),
    ]
    yield f"  {'; '.join(rules)}"
    if (seconds := document["endsInSeconds"]) is not None:
        ago = f"{duration.brief(-seconds)} ago, at the next look"
        when = f"in {duration.brief(seconds)}" if seconds >= 0 else ago
        yield f"  ends: {document['ends']} ({document['endsBy']}), {when}"
    else:
        never = document["endsBy"] == "never"
        yield f"  ends: {'never by itself' if never else 'it has ended, or its end cannot be read'}"
    for pod in document["placeholders"]:
        where = f" on {pod['node']}" if pod["node"] else ""
        yield f"  placeholder {pod['pod']}{where}: {pod['state']} ({_amounts(pod['requests'])})"
    if coming := document["handOver"]:
        end = f"was given up at {coming.get('ended')}, the {coming.get('tries', 1)}. time in a row"
        how = end if coming.get("ended") else f"since {coming.get('since')}"
        yield f"  hand-over to pod {coming.get('namespace')}/{coming.get('name')} {how}"
    for pod in document["waiting"]:
        yield f"  waits: pod {pod['pod']}: {pod['why']}"


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = each["endsInSeconds"]
    ends = duration.brief(max(seconds, 0)) if seconds is not None else each["endsBy"] or "-"
    owners = ",".join(each["owners"]) or "-"
    amounts = _amounts(each["holds"]), _amounts(each["taken"])
    return each["name"], each["phase"], each["node"] or "-", *amounts, owners, ends, each["why"] or "-"


def _amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in amounts.items()) or "nothing"
