"""Reservations for people and programs: who may use each, who does, what it holds, why it waits, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koordlite.formulas.reservation import hand_over, lifecycle, placeholder, validity
from koordlite.model import keys, times
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity
from koordlite.model.wire.reservation import Owner, ReservationObject
from koordlite.scheduler.reserving import matches, waiting
from koordlite.scheduler.reserving.case import Case
from koordlite.scheduler.reserving.world import SeenPod, World

Document = dict[str, Any]


def all_of(world: World, now: float) -> list[Document]:
    """One line each, by name."""
    return [_line(world, world.reservations[name], now) for name in sorted(world.reservations)]


def one_of(world: World, name: str, settings: placeholder.Settings, now: float) -> Document | None:
    """Everything about one; None when there is none of that name."""
    found = world.reservations.get(name)
    if found is None:
        return None
    case = Case(world, found, settings, now)
    coming = hand_over.read(found)
    return {
        **_line(world, found, now),
        "uid": found.metadata.uid,
        "may": [_owner(each) for each in found.spec.owners or ()],
        "allocateOnce": lifecycle.is_once(found),
        "allocatePolicy": found.spec.allocate_policy or "Aligned",
        "unschedulable": found.spec.unschedulable,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in found.spec.taints or ()],
        "order": (found.metadata.labels or {}).get(keys.RESERVATION_ORDER),
        "remaining": _texts(case.remaining) if lifecycle.is_available(found) else {},
        "cpus": (found.metadata.annotations or {}).get(keys.RESOURCE_STATUS),
        "placeholders": [_placeholder(pod) for pod in world.placeholders(found.metadata.uid)],
        "handOver": msgspec.to_builtins(coming) if coming is not None and coming.uid else None,
        "waiting": list(_waiting(world, found, settings, now)),
        "problems": [str(problem) for problem in validity.problems(found)],
        "koordScheduler": sorted(world.koord_schedulers.values()),
    }


def _line(world: World, obj: ReservationObject, now: float) -> Document:
    status = obj.status
    pods = [pod for pod in world.placeholders(obj.metadata.uid) if pod.alive and pod.node]
    return {
        "name": obj.metadata.name,
        "phase": status.phase or "Pending",
        "node": status.node_name,
        "holds": _wanted(obj),
        "held": _texts(waiting.held_by(pods)),
        "taken": _texts(lifecycle.amounts(status.allocated)),
        "owners": [f"{owner.namespace}/{owner.name}" for owner in status.current_owners or ()],
        "why": _why(obj),
        **_end(obj, now),
    }


def _placeholder(pod: SeenPod) -> Document:
    if pod.deleting:
        state = "being deleted"
    elif pod.ended:
        state = "failed"
    elif pod.node:
        state = "held" if pod.admitted else "bound, kubelet has not taken it yet"
    else:
        state = pod.refused() or "waits for its scheduler"
    return {"pod": pod.key, "node": pod.node, "state": state, "requests": _texts(pod.requests)}


def _wanted(obj: ReservationObject) -> dict[str, str]:
    try:
        return _texts(placeholder.wanted(obj))
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
    if lifecycle.has_ended(obj.status):
        return {"ends": None, "endsBy": "", "endsInSeconds": None}
    try:
        life = lifecycle.Lifetime.of(obj)
    except InputError:
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
        found = msgspec.to_builtins(owner.object)
        parts.append("pod " + " ".join(f"{key}={value}" for key, value in found.items()))
    if owner.controller is not None:
        found = msgspec.to_builtins(owner.controller)
        parts.append("pods of " + " ".join(f"{key}={value}" for key, value in found.items() if key != "controller"))
    if owner.label_selector is not None:
        parts.append("pods with " + _selector(msgspec.to_builtins(owner.label_selector)))
    return ", and ".join(parts) or "every pod"


def _selector(found: Mapping[str, Any]) -> str:
    labels = [f"{key}={value}" for key, value in (found.get("matchLabels") or {}).items()]
    lines = found.get("matchExpressions") or ()
    labels += [f"{e.get('key')} {e.get('operator')} {','.join(e.get('values') or ())}".rstrip() for e in lines]
    return " and ".join(labels) or "any labels"


def _waiting(
    world: World, obj: ReservationObject, settings: placeholder.Settings, now: float
) -> Iterator[dict[str, str]]:
    """Pods that wait for a node and that its owners name, and why they do not get it."""
    place = matches.place_of(obj)
    for pod in sorted(world.waiting.values(), key=lambda pod: pod.key):
        one = waiting.candidate(pod)
        if one is None or not waiting.may_own(obj, one.pod):
            continue
        yield {
            "pod": pod.key,
            "why": _why_waits(world, pod.uid, obj, settings, now) if place else "it is not available",
        }


def _why_waits(world: World, uid: str, obj: ReservationObject, settings: placeholder.Settings, now: float) -> str:
    pod, place, coming = world.waiting[uid], matches.place_of(obj), hand_over.under_way(obj)
    one = waiting.candidate(pod)
    assert place is not None and one is not None
    if coming is not None:
        return "it is being handed over to it" if coming.uid == uid else "it is being handed over to another pod"
    if pod.refused() is None:
        return "its scheduler has not said that no node has room"
    if why := waiting.refusal(world, one, place, now):
        return why
    other = waiting.taker(world, pod, obj, settings.guarded)
    return f"pod {other.key} would take the room first" if other is not None else "it is the next, or one before it is"


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items()) if amount.nano}
