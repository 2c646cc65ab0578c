"""Koordinator's Reservation (`scheduling.koordinator.sh/v1alpha1`) and what pods say about it, off the wire."""

from __future__ import annotations

from typing import Any

from koordlite.model.wire.objects import (
    KubeObject,
    LabelSelector,
    NodeSelectorTerm,
    Taint,
    Toleration,
    WireObject,
)

PENDING, AVAILABLE, WAITING, SUCCEEDED, FAILED = "Pending", "Available", "Waiting", "Succeeded", "Failed"
"""Phases."""
ALIGNED, RESTRICTED = "Aligned", "Restricted"


class ObjectReference(WireObject, frozen=True):
    """An object; what is empty may be anything."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ControllerReference(ObjectReference, frozen=True):
    """An owner reference of a pod."""

    controller: bool | None = None


class Owner(WireObject, frozen=True):
    """Pods that may take a reservation: all that is given has to hold."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class Condition(WireObject, frozen=True):
    """One thing that is known of a reservation, or of a migration job."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class ReservationSpec(WireObject, frozen=True):
    """Resources to hold, for whom and how long."""

    template: dict[str, Any] | None = None
    """metadata and spec of a pod, with every field."""
    owners: tuple[Owner, ...] | None = None
    ttl: str | None = None
    expires: str | None = None
    pre_allocation: bool = False
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class ReservationStatus(WireObject, frozen=True):
    """State of the Reservation."""

    phase: str = ""
    node_name: str = ""
    allocatable: dict[str, str | int | float] | None = None
    allocated: dict[str, str | int | float] | None = None
    current_owners: tuple[ObjectReference, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class ReservationObject(KubeObject, frozen=True):
    """A Reservation; it has no namespace."""

    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()


class SelectorTerms(WireObject, frozen=True):
    """Terms of which one has to hold."""

    reservation_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class AffinityText(WireObject, frozen=True):
    """Annotation `scheduling.koordinator.sh/reservation-affinity` of a pod."""

    name: str = ""
    reservation_selector: dict[str, str] | None = None
    required_during_scheduling_ignored_during_execution: SelectorTerms | None = None
    tolerations: tuple[Toleration, ...] | None = None


class AllocatedText(WireObject, frozen=True):
    """Annotation `scheduling.koordinator.sh/reservation-allocated` of a pod."""

    name: str = ""
    uid: str = ""


class HandOverText(WireObject, frozen=True):
    """Annotation `reservation.koordlite.io/hand-over` of a Reservation: the pod its place is given to."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    since: str | None = None
    ended: str | None = None
    """Time at which it was given up; the next attempt with this pod waits."""
    tries: int = 0
    """Number of those that were given up one after the other."""
    rest: str = ""
    """Name of the placeholder that is made while the place is held without one: for what the pod leaves over, or after
    an owner went or did not come."""


class ResourceNames(WireObject, frozen=True):
    """Annotation `scheduling.koordinator.sh/exact-match-reservation` of a pod."""

    resource_names: tuple[str, ...] | None = None


class RestrictedOptions(WireObject, frozen=True):
    """Annotation `scheduling.koordinator.sh/reservation-restricted-options` of a Reservation."""

    resources: tuple[str, ...] | None = None


class ResizeAllocatable(WireObject, frozen=True):
    """Annotation `scheduling.koordinator.sh/reservation-resize-allocatable` of a Reservation."""

    resources: dict[str, str | int | float] | None = None
