"""Life of a reservation from Pending to its end: conditions, expiry, owners, clean-up. Moments are given.

Source: Koordinator v1.9 pkg/util/reservation, plugins/reservation/controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from koordlite.formulas.allocatable.reservation import written_resources
from koordlite.model import duration, keys, times
from koordlite.model.errors import InputError, Problem, noting, refusing
from koordlite.model.node import parse_reservation
from koordlite.model.pod.pod_reader import effective_requests
from koordlite.model.quantity import Quantity, add_resources, parse_resources
from koordlite.model.wire.objects import PodObject, PodSpec
from koordlite.model.wire.reservation import (
    AVAILABLE,
    FAILED,
    PENDING,
    RESTRICTED,
    SUCCEEDED,
    AllocatedText,
    Condition,
    ObjectReference,
    ReservationObject,
    ReservationStatus,
    ResizeAllocatable,
    RestrictedOptions,
)
from koordlite.reservation.capacity import Holding, restricted_names
from koordlite.reservation.matching import check_owners, read

_SCHEDULED, _READY = "Scheduled", "Ready"


def invalid(reservation: ReservationObject) -> str:
    """Missing fields of a reservation, in Koordinator's words; empty for nothing. Source: `ValidateReservation`."""
    if reservation.spec.template is None:
        return "the reservation misses the template spec"
    if not reservation.spec.owners:
        return "the reservation misses the owner spec"
    if reservation.spec.ttl is None and reservation.spec.expires is None:
        return "the reservation misses the expiration spec"
    return ""


def is_available(reservation: ReservationObject) -> bool:
    """Placed, and ready for owners."""
    return reservation.status.phase == AVAILABLE and bool(reservation.status.node_name)


def is_expired(status: ReservationStatus) -> bool:
    """It ended because its time ran out, or its node went."""
    ready = _condition(status, _READY)
    return status.phase == FAILED and ready is not None and (ready.status, ready.reason) == ("False", "Expired")


def is_once(reservation: ReservationObject) -> bool:
    """Its first owner ends it, unless it says otherwise."""
    return reservation.spec.allocate_once is not False


def template_requests(reservation: ReservationObject) -> dict[str, Quantity]:
    """Requests of the template's pod."""
    return pod_requests((reservation.spec.template or {}).get("spec") or {})


def pod_requests(spec: dict[str, Any]) -> dict[str, Quantity]:
    """Requests of a pod with this spec."""
    return effective_requests(msgspec.convert(spec, PodSpec, strict=False), "", [])


def requests(reservation: ReservationObject) -> dict[str, Quantity]:
    """Amounts it holds: those in the status once it is available, else those of the template."""
    if is_available(reservation):
        return amounts(reservation.status.allocatable)
    return template_requests(reservation)


def resized(reservation: ReservationObject) -> dict[str, Quantity]:
    """The same with its resize annotation; InputError when that cannot be read."""
    resize = read(ResizeAllocatable, reservation.metadata.annotations, keys.RESERVATION_RESIZE, _name(reservation))
    return {**requests(reservation), **(amounts(resize.resources) if resize else {})}


def holding(reservation: ReservationObject) -> tuple[Holding, tuple[Problem, ...]]:
    """Amounts it holds, without owners; with problems no pod may take it."""
    owner, notes = _name(reservation), reservation.metadata.annotations
    allocatable, problems = requests(reservation), list[Problem]()
    names, reserved = tuple(sorted(allocatable)), dict[str, Quantity]()
    do = "fix the selector; until then no pod matches"
    with noting(problems), refusing(owner, "spec.owners", "", do):
        if reservation.spec.allocate_policy == RESTRICTED:
            options = read(RestrictedOptions, notes, keys.RESERVATION_RESTRICTED, owner)
            names = restricted_names(names, options.resources if options else None)
        check_owners(reservation.spec.owners)
    with noting(problems):
        reserved = written_resources(parse_reservation((notes or {}).get(keys.RESERVATION, ""), owner))
    own = Holding(
        name=reservation.metadata.name,
        uid=reservation.metadata.uid,
        policy=reservation.spec.allocate_policy,
        names=names,
        allocatable=allocatable,
        reserved=reserved,
    )
    return own, tuple(problems)


def is_matchable(reservation: ReservationObject, holding: Holding, problems: Collection[Problem]) -> bool:
    """Tell whether any pod may take it now."""
    return is_available(reservation) and not problems and not (is_once(reservation) and holding.owners)


def available(reservation: ReservationObject, node: str, now: str) -> ReservationStatus:
    """Its status once it is placed on `node`; InputError when its resize annotation cannot be read."""
    return msgspec.structs.replace(
        reservation.status,
        phase=AVAILABLE,
        node_name=node,
        allocatable=_texts(resized(reservation)),
        conditions=(_new(_SCHEDULED, "True", "Scheduled", now), _new(_READY, "True", "Available", now)),
    )


def unschedulable(status: ReservationStatus, message: str, now: str) -> ReservationStatus:
    """The status after a scheduler found no node; it is tried again, so the phase stays."""
    scheduled = _condition(status, _SCHEDULED)
    if scheduled is None:
        return _with(status, _new(_SCHEDULED, "False", "Unschedulable", now, message))
    if scheduled.status == "True":
        return _with(status, msgspec.structs.replace(scheduled, last_probe_time=now))
    same = msgspec.structs.replace(scheduled, reason="Unschedulable", message=message, last_probe_time=now)
    return _with(status, same)


def lost(status: ReservationStatus, message: str, now: str) -> ReservationStatus:
    """The status after its place went before anybody took of it: it looks for another one. Koordinator has no such
    case.

    No time of a probe is noted: nothing has been tried yet.
    """
    why = msgspec.structs.replace(_new(_SCHEDULED, "False", "Unschedulable", now, message), last_probe_time=None)
    return msgspec.structs.replace(
        status,
        phase=PENDING,
        node_name="",
        allocatable=None,
        allocated=None,
        conditions=(why,),
    )


def message(status: ReservationStatus) -> str:
    """Reason why it is not placed, as its status says."""
    scheduled = _condition(status, _SCHEDULED)
    return scheduled.message if scheduled is not None and scheduled.status == "False" else ""


def expired(status: ReservationStatus, now: str) -> ReservationStatus:
    """The status after its time ran out, or its node went."""
    ready, over = _condition(status, _READY), msgspec.structs.replace(status, phase=FAILED)
    if ready is None or ready.status == "True":
        return _with(over, _new(_READY, "False", "Expired", now))
    return _with(over, msgspec.structs.replace(ready, reason="Expired", last_probe_time=now))


def succeeded(status: ReservationStatus, now: str) -> ReservationStatus:
    """The status after its owner took it for good."""
    ready = _condition(status, _READY) or _new(_READY, "False", "", now)
    done = msgspec.structs.replace(ready, status="False", reason="Succeeded", last_probe_time=now)
    return _with(msgspec.structs.replace(status, phase=SUCCEEDED), done)


class Lifetime(msgspec.Struct, frozen=True):
    """Time when a reservation ends by itself, in seconds since the epoch; None for never."""

    created: float
    ttl: float | None = None
    """Seconds; 0 switches `expires` off, too."""
    expires: float | None = None

    @classmethod
    def of(cls, reservation: ReservationObject) -> Lifetime:
        """InputError when its ttl cannot be read."""
        ttl = reservation.spec.ttl
        do = "write a duration like 24h; until then it does not expire"
        with refusing(_name(reservation), "spec.ttl", ttl or "", do):
            seconds = None if ttl is None else duration.parse(ttl) / 10**9
        created = times.parse_or_none(reservation.metadata.creation_timestamp) or 0.0
        return cls(created, seconds, times.parse_or_none(reservation.spec.expires))

    def is_over(self, now: float) -> bool:
        """Past `expires`, or older than `ttl`."""
        if self.ttl == 0:
            return False
        return (self.expires is not None and now > self.expires) or (
            self.ttl is not None and now - self.created > self.ttl
        )


def has_ended(status: ReservationStatus) -> bool:
    """Nothing more becomes of it."""
    return status.phase in (SUCCEEDED, FAILED)


def is_garbage(status: ReservationStatus, *, now: float, keep_seconds: float) -> bool:
    """Tell whether it ended so long ago that it is deleted: expired, or taken. Another failure is kept for its
    reader."""
    if is_expired(status):
        moments = [c.last_transition_time for c in status.conditions or () if c.reason == "Expired"]
    elif status.phase == SUCCEEDED:
        moments = [c.last_probe_time for c in status.conditions or () if c.reason == "Succeeded"]
    else:
        return False
    since = times.parse_or_none(moments[0]) if moments else None
    return since is not None and now - since > keep_seconds


def synced(
    reservation: ReservationObject,
    pods: Iterable[tuple[PodObject, Mapping[str, Quantity]]],
    *,
    nodes: Collection[str],
    now: float,
) -> ReservationStatus:
    """Its status by the pods that run on its node, with their requests: owners, amounts, and its end.

    The same object when nothing changed. Ours, unlike Koordinator's: one that was never placed expires, too.
    """
    status, at = reservation.status, times.show(now)
    if has_ended(status):
        return status
    is_lost = bool(status.node_name) and status.node_name not in nodes
    if is_lost or Lifetime.of(reservation).is_over(now):
        return expired(status, at)
    if not status.node_name:
        return status
    took = sorted((pod for pod in pods if _took(pod[0], reservation)), key=lambda pod: pod[0].metadata.uid)
    total: dict[str, Quantity] = {}
    for _, requests in took:
        add_resources(total, {name: amount for name, amount in requests.items() if name in (status.allocatable or {})})
    current = tuple(
        ObjectReference(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)
        for pod, _ in took
    )
    before = tuple(sorted(status.current_owners or (), key=lambda owner: owner.uid))
    if before == current and amounts(status.allocated) == total:
        return status
    after = msgspec.structs.replace(status, current_owners=current or None, allocated=_texts(total))
    return succeeded(after, at) if is_once(reservation) else after


def _took(pod: PodObject, reservation: ReservationObject) -> bool:
    name = f"pod/{pod.metadata.namespace}/{pod.metadata.name}"
    try:
        allocated = read(AllocatedText, pod.metadata.annotations, keys.RESERVATION_ALLOCATED, name)
    except InputError:
        # The scheduler writes this annotation; one that cannot be read takes nothing.
        return False
    return allocated is not None and allocated.uid == reservation.metadata.uid


def _condition(status: ReservationStatus, kind: str) -> Condition | None:
    return next((condition for condition in status.conditions or () if condition.type == kind), None)


def _with(status: ReservationStatus, condition: Condition) -> ReservationStatus:
    """The status with this condition in the place of the one of its type, or at the end."""
    before = status.conditions or ()
    conditions = [condition if each.type == condition.type else each for each in before]
    exists = any(each.type == condition.type for each in before)
    return msgspec.structs.replace(status, conditions=tuple(conditions if exists else [*conditions, condition]))


def _new(kind: str, status: str, reason: str, now: str, message: str = "") -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_probe_time=now, last_transition_time=now
    )


def amounts(texts: Mapping[str, str | int | float] | None) -> dict[str, Quantity]:
    """Quantities of a status or an annotation; what cannot be read is left out."""
    return parse_resources(texts, "", "", [])


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str | int | float]:
    return {name: str(amount) for name, amount in amounts.items()}


def _name(reservation: ReservationObject) -> str:
    return f"reservation/{reservation.metadata.name}"
