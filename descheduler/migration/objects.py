"""PodMigrationJob and Reservation of scheduling.koordinator.sh/v1alpha1, as far as a rule uses them.

Both are written by patches of what changed, so that fields which are not here stay as they are.
"""

from __future__ import annotations

from typing import Any

from koordlite.model import keys, merge_patch
from koordlite.model.wire.objects import ObjectMeta, WireObject
from koordlite.model.wire.reservation import Condition, ObjectReference, ReservationObject

GROUP_VERSION = "scheduling.koordinator.sh/v1alpha1"
JOBS = f"/apis/{GROUP_VERSION}/podmigrationjobs"
RESERVATIONS = f"/apis/{GROUP_VERSION}/reservations"

PENDING, RUNNING, SUCCEEDED, FAILED, ABORTED = "Pending", "Running", "Succeeded", "Failed", "Aborted"
"""Phases of a job."""


class ReservationOptions(WireObject, frozen=True):
    """How a place is reserved for a job."""

    reservation_ref: ObjectReference | None = None
    template: dict[str, Any] | None = None
    """metadata and spec of the Reservation."""


class JobSpec(WireObject, frozen=True):
    """What is asked for."""

    paused: bool = False
    ttl: str | None = None
    mode: str = ""
    pod_ref: ObjectReference | None = None
    reservation_options: ReservationOptions | None = None
    delete_options: dict[str, Any] | None = None


class JobStatus(WireObject, frozen=True):
    """How far it has come."""

    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    conditions: tuple[Condition, ...] = ()


class MigrationJob(WireObject, frozen=True):
    """A PodMigrationJob: one pod is to go, and maybe a place is reserved for its successor first."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def name(self) -> str:
        """metadata.name; jobs have no namespace."""
        return self.metadata.name

    @property
    def annotations(self) -> dict[str, str]:
        """metadata.annotations."""
        return self.metadata.annotations or {}

    @property
    def finished(self) -> bool:
        """Nothing more will come of it."""
        return self.status.phase in (SUCCEEDED, FAILED, ABORTED)

    @property
    def pending(self) -> bool:
        """Nobody has begun with it."""
        return self.status.phase in ("", PENDING)

    @property
    def passed(self) -> bool:
        """It was let through by arbitration."""
        return self.annotations.get(keys.PASSED_ARBITRATION) == "true"

    @property
    def pod(self) -> ObjectReference:
        """The pod to move."""
        return self.spec.pod_ref or ObjectReference()

    @property
    def reservation(self) -> str:
        """Name of its reservation; empty while there is none."""
        options = self.spec.reservation_options
        return options.reservation_ref.name if options and options.reservation_ref else ""

    @property
    def reason(self) -> str:
        """Why the pod is to go, in the word of the plugin."""
        return self.annotations.get(keys.EVICT_REASON) or "NotSet"


class Reservation(ReservationObject, frozen=True):
    """A place on a node that only its owners' pods take, as a migration looks at it."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type."""
        return next((c for c in self.status.conditions or () if c.type == kind), None)

    @property
    def pending(self) -> bool:
        """The scheduler has not looked at it yet."""
        return self.status.phase in ("", PENDING)

    @property
    def scheduled(self) -> bool:
        """It has a node."""
        found = self.condition("Scheduled")
        return bool(self.status.node_name) and found is not None and found.status == "True"

    @property
    def expired(self) -> bool:
        """Its time ran out before a pod took it."""
        found = self.condition("Ready")
        return self.status.phase == FAILED and found is not None and found.reason == "Expired"

    @property
    def bound(self) -> ObjectReference | None:
        """The pod that took it."""
        return next(iter(self.status.current_owners or ()), None)

    @property
    def for_one_pod(self) -> bool:
        """It waits for one given pod that is pending, not for a pod of a workload."""
        owners = self.spec.owners or ()
        return bool(owners) and all(
            owner.object is not None and owner.controller is None and owner.label_selector is None for owner in owners
        )


patch = merge_patch.between
