"""A reservation as a pod: what Koordinator's scheduler places and counts in its stead.

Source: Koordinator v1.9 `NewReservePod` (pkg/util/reservation).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from koordlite.model import keys
from koordlite.model.pod.pod_reader import effective_requests
from koordlite.model.quantity import Quantity, parse_resources
from koordlite.model.wire.objects import PodSpec
from koordlite.model.wire.reservation import AVAILABLE, FAILED, SUCCEEDED, ReservationObject

NEVER_PREEMPTED = 2**31 - 1
_DECIMAL = re.compile(r"[+-]?[0-9]{1,10}\Z", re.ASCII)
_INSIDE = "__internal_fake_container__"


def reserve_pod(reservation: ReservationObject) -> dict[str, Any]:
    """The pod as JSON: the template's, named and annotated after the reservation, on its node.

    Once the reservation is available and holds other amounts than the template, one container more asks for these, and
    the others for nothing.
    """
    template = reservation.spec.template or {}
    spec = dict(template.get("spec") or {})
    meta = dict(template.get("metadata") or {})
    notes = {**(meta.get("annotations") or {}), **(reservation.metadata.annotations or {}), **_notes(reservation, spec)}
    spec.pop("nodeName", None)
    if reservation.status.node_name:
        spec["nodeName"] = reservation.status.node_name
    if spec.get("priority") is None:
        spec["priority"] = _priority(reservation)
    spec["schedulerName"] = spec.get("schedulerName") or "default-scheduler"
    meta.update(
        name=reservation.metadata.uid,
        uid=reservation.metadata.uid,
        namespace=meta.get("namespace") or "default",
        labels={**(meta.get("labels") or {}), **(reservation.metadata.labels or {})},
        annotations=notes,
    )
    pod = {"metadata": meta, "spec": _with_allocatable(reservation, spec)}
    phase = {SUCCEEDED: "Succeeded", FAILED: "Failed"}.get(reservation.status.phase)
    return {**pod, "status": {"phase": phase}} if phase else pod


def template_requests(reservation: ReservationObject) -> dict[str, Quantity]:
    """Requests of the template's pod."""
    return _requests((reservation.spec.template or {}).get("spec") or {})


def _notes(reservation: ReservationObject, spec: dict[str, Any]) -> dict[str, str]:
    notes = {keys.RESERVE_POD: "true", keys.RESERVATION_NAME: reservation.metadata.name}
    if reservation.spec.pre_allocation:
        notes[keys.IS_PRE_ALLOCATION] = "true"
    if spec.get("nodeName"):
        notes[keys.RESERVATION_NODE] = spec["nodeName"]
    return notes


def _priority(reservation: ReservationObject) -> int:
    """The label's, else one that no pod preempts."""
    text = (reservation.metadata.labels or {}).get(keys.PRIORITY, "")
    number = int(text) if _DECIMAL.match(text) else NEVER_PREEMPTED
    return number if -(2**31) <= number < 2**31 else NEVER_PREEMPTED


def _with_allocatable(reservation: ReservationObject, spec: dict[str, Any]) -> dict[str, Any]:
    status = reservation.status
    if status.phase != AVAILABLE or not status.node_name:
        return spec
    asked, held = _requests(spec), parse_resources(status.allocatable, "", "", [])
    if asked == held:
        return spec
    amounts = {name: str(amount) for name, amount in {**asked, **held}.items()}
    bare = {name: [_bare(one) for one in spec[name]] for name in ("initContainers", "containers") if spec.get(name)}
    inside = {"name": _INSIDE, "resources": {"limits": amounts, "requests": dict(amounts)}}
    rest = {name: value for name, value in spec.items() if name != "overhead"}
    return {**rest, **bare, "containers": [*bare.get("containers", []), inside]}


def _bare(container: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in container.items() if name != "resources"}


def _requests(spec: dict[str, Any]) -> dict[str, Quantity]:
    return effective_requests(msgspec.convert(spec, PodSpec, strict=False), "", [])
