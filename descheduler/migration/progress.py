"""How a job's status says how far it has come: conditions, and the last of them as its word.

Source: Koordinator `util.UpdateCondition` and the aborts of its PodMigrationJob controller.
"""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from descheduler.migration import objects
from descheduler.migration.objects import MigrationJob
from koordlite.model import times
from koordlite.model.wire.reservation import Condition

Kind = Literal[
    "ReservationCreated",
    "ReservationScheduled",
    "Eviction",
    "PodScheduled",
    "PodBoundReservation",
    "BoundPodReady",
    "ReservationBound",
]
COMPLETE = "Complete"


def condition(job: MigrationJob, kind: Kind) -> Condition | None:
    """The condition of this type; None before it is first set."""
    return next((c for c in job.status.conditions if c.type == kind), None)


def holds(job: MigrationJob, kind: Kind) -> bool:
    """That condition is True."""
    found = condition(job, kind)
    return found is not None and found.status == "True"


def noted(
    job: MigrationJob,
    kind: Kind,
    met: bool,
    *,
    now: float,
    reason: str = "",
    message: str = "",
    refresh: bool = False,
) -> MigrationJob:
    """The job with a condition. The status speaks of what changed last.

    Unchanged when it says so already, except with `refresh`: then the time of the last check is this one.
    """
    value: Literal["True", "False"] = "True" if met else "False"
    old = condition(job, kind)
    same = old is not None and (old.status, old.reason, old.message) == (value, reason, message)
    if same and not refresh:
        return job
    moment = times.show(now)
    since = old.last_transition_time if old is not None and old.status == value else moment
    entry = Condition(
        type=kind, status=value, reason=reason, message=message, last_probe_time=moment, last_transition_time=since
    )
    entries = job.status.conditions
    entries = tuple(entry if c is old else c for c in entries) if old is not None else (*entries, entry)
    return with_status(job, status=kind, reason=reason, message=message, conditions=entries)


def standing(job: MigrationJob) -> str:
    """Where a job that has not ended stands, and which reservation it counts on, for people."""
    if job.reservation:
        node = f"node {job.status.node_name}" if job.status.node_name else "no node yet"
        counts_on = f"counts on reservation {job.reservation}, on {node}"
    elif job.spec.mode == "EvictDirectly":
        counts_on = "reserves no place"
    else:
        counts_on = "has no reservation yet"
    status = job.status
    word = status.status or status.phase or objects.PENDING
    why = ": ".join(text for text in (status.reason, status.message) if text)
    return f"migration job {job.name} {counts_on}; {word}{f', {why}' if why else ''}"


def with_status(job: MigrationJob, **changes: object) -> MigrationJob:
    """The job with parts of its status replaced."""
    return structs.replace(job, status=structs.replace(job.status, **changes))


def failed(job: MigrationJob, reason: str, message: str) -> MigrationJob:
    """The job given up, and why. What it had reached stays to be read."""
    return with_status(job, phase=objects.FAILED, reason=reason, message=message)


def succeeded(job: MigrationJob, message: str) -> MigrationJob:
    """The job done."""
    return with_status(job, phase=objects.SUCCEEDED, status=COMPLETE, reason="", message=message)
