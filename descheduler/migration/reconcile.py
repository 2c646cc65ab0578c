"""A step of a job: what the cluster holds of it in, what is to be written and done out.

A step is repeated until the job has ended, by whichever process comes by: all that it needs to know is in the job. The
status says what is going to be done before it is done, so that nothing is done twice, or left half done, by a restart.

Source: Koordinator's PodMigrationJob controller. Unlike it, a pod is known by its uid (a new pod of the name is never
the victim), an eviction whose answer was lost is asked for again, and one that has to wait for its turn waits just so
long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import structs

from descheduler.filters.default_evictor import EVICT
from descheduler.migration import objects
from descheduler.migration.objects import MigrationJob, Reservation, with_condition
from koordlite.model import duration, times
from koordlite.model.wire import objects as wire
from koordlite.model.wire.reservation import ControllerReference, ObjectReference
from koordlite.reservation import hand_over, lifecycle

AGAIN_SECONDS = 3.0
"""Pause while something is waited for."""
ASK_AGAIN_SECONDS = 30.0
"""A pod that is still there and not going so long after its eviction was asked for is asked for again: the answer, or
the request, was lost."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster around one job."""

    now: float
    """Seconds since the epoch."""
    pod: wire.PodObject | None = None
    """The pod that has the name today, whoever it is; None when there is none."""
    pod_raw: Mapping[str, Any] | None = None
    """The same, whole."""
    reservation: Reservation | None = None
    """The reservation that the job names."""
    bound_pod: wire.PodObject | None = None
    """The pod that took the reservation."""
    others: Literal["", "wait", "lost"] = ""
    """State of the pods that must have a place before this one goes, or have to go before it: `wait` where some are
    not that far yet, `lost` where one never will be."""
    limited: str = ""
    """Reason why no pod of its workload or namespace may go yet; empty when one may."""
    turn_seconds: float = 0.0
    """Time of the next eviction at the earliest."""
    default_mode: str = "ReservationFirst"
    """Mode of jobs without one."""
    drop_claims: bool = False
    """Reserve no volumes."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Writes and requests, in this order: reservation, job, eviction, removal."""

    job: MigrationJob
    create: Mapping[str, Any] | None = None
    """A Reservation to make."""
    evict: bool = False
    """Ask for the eviction of the pod with the uid of the job's podRef."""
    remove: str = ""
    """A reservation to delete."""
    again_seconds: float = 0.0
    """Rest until the next step, unless the job is changed meanwhile; 0: take it in the next round."""
    error: str = ""
    """Mistake of the job itself, for the log."""


Stage = Callable[[MigrationJob, ClusterState], "MigrationJob | Step"]


def step(job: MigrationJob, state: ClusterState) -> Step:
    """The next step of a job."""
    if job.spec.paused or job.finished:
        return Step(job=job)
    if timed_out(job, state.now):
        return Step(job=objects.failed(job, "Timeout", "Abort job caused by timeout"), remove=job.reservation)
    direct = (job.spec.mode or state.default_mode) == "EvictDirectly"
    for stage in _DIRECT if direct else _RESERVED:
        result = stage(job, state)
        if isinstance(result, Step):
            return result
        job = result
    # A job that reserves no place is done; of the others the last stage says what comes of them.
    return Step(job=objects.succeeded(job, f'Pod "{job.pod.key}" has been evicted'))


def exchanges(
    jobs: Iterable[MigrationJob], reservations: Mapping[str, Reservation], is_gone: Callable[[MigrationJob], bool]
) -> dict[str, str]:
    """Pair jobs with other reservations of the same owners, where a successor took the place of another job.

    A job whose pod was evicted takes a place that a successor is in; one whose pod is still there takes a place that is
    free. It follows from the objects alone, so that it is the same after a restart between the writes of two jobs.
    `is_gone` tells whether the pod is gone whose eviction a job has asked for; it looks after `reservations` were read.
    Returns the names of new reservations by the names of jobs; a job that no other place is left for keeps its own.
    """
    jobs = tuple(jobs)
    names = {name for job in jobs for name in (job.reservation, job.first_reservation)}
    pools: dict[tuple[ControllerReference, ...], dict[str, Reservation]] = {}
    for name in sorted(names & reservations.keys()):
        owners = tuple(owner.controller for owner in reservations[name].spec.owners or () if owner.controller)
        if len(owners) == len(reservations[name].spec.owners or ()) > 0:
            pools.setdefault(owners, {})[name] = reservations[name]
    changes: dict[str, str] = {}
    for pool in pools.values():
        spent = {job.reservation for job in jobs if job.status.phase == objects.SUCCEEDED}
        occupied = [name for name, place in pool.items() if place.bound is not None and name not in spent]
        free = [name for name, place in pool.items() if place.bound is None and not lifecycle.has_ended(place.status)]
        members = [job for job in jobs if not job.finished and job.reservation and job.first_reservation in pool]
        members.sort(key=lambda job: job.metadata.uid)
        evicted = [
            job
            for job in members
            if objects.holds(job, "Eviction") or (occupied and _eviction_requested(job) and is_gone(job))
        ]
        staying = [job for job in members if job not in evicted]
        for group, choice in ((evicted, occupied), (evicted, free), (staying, free)):
            # Who has one of these keeps it; the others choose from what is left.
            for own in (True, False):
                for job in [job for job in group if job.name not in changes]:
                    name = job.reservation if own else next(iter(choice), "")
                    if name in choice:
                        choice.remove(name)
                        changes[job.name] = name
    return {job.name: name for job in jobs if (name := changes.get(job.name, "")) and name != job.reservation}


def timed_out(job: MigrationJob, now: float) -> bool:
    """Its time to live is over. 0 and no time to live mean for ever."""
    ttl, created = duration.seconds(job.spec.ttl or "0"), times.parse_or_none(job.metadata.creation_timestamp)
    return ttl > 0 and created is not None and now - created >= ttl


def same_pod(job: MigrationJob, pod: wire.PodObject | None) -> bool:
    """The pod of that name is the one the job speaks of; a job that names no uid speaks of any."""
    return pod is not None and (not job.pod.uid or job.pod.uid == pod.metadata.uid)


def _begin(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    if not job.pending:
        return job
    ref = job.pod
    if not ref.namespace or not ref.name:
        return _failed(job, "InvalidPodRef", "Abort job caused by invalid PodRef", error=True)
    if state.pod is None:
        return _missing_pod(job, error=True)
    if not same_pod(job, state.pod):
        return _failed(job, "MissingPod", f'Pod "{ref.key}" is gone, another one has its name', error=True)
    reference = structs.replace(ref, uid=state.pod.metadata.uid)
    started = structs.replace(job, spec=structs.replace(job.spec, pod_ref=reference))
    return objects.with_status(started, phase=objects.RUNNING)


def _give_up_room(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    """Hold no place for a pod that waits once the others stay, or once it has a node: nobody makes room any more."""
    if not job.room_on:
        return job
    if state.pod is None or not same_pod(job, state.pod):
        return _missing_pod(job)
    place, node = state.reservation, state.pod.spec.node_name
    if node and (place is None or place.status.node_name != node):
        return _failed(job, "ForbiddenMigratePod", f'Pod "{job.pod.key}" has node "{node}" without its place')
    if state.others == "lost" and (place is None or not place.scheduled):
        return _failed(job, "ForbiddenMigratePod", "A Pod that would make room for it stays")
    return job


def _wait_for_limit(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    requested = objects.condition(job, "Eviction") is not None
    if not state.limited or requested or EVICT in job.annotations:
        return job
    return Step(job=job, again_seconds=AGAIN_SECONDS)


def _reserve(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    if job.reservation:
        return with_condition(job, "ReservationCreated", True, now=state.now)
    if state.pod_raw is None or not same_pod(job, state.pod):
        return _missing_pod(job, error=True)
    options = objects.options(job, state.pod_raw, now=state.now, drop_claims=state.drop_claims)
    named = structs.replace(job, spec=structs.replace(job.spec, reservation_options=options))
    body = {"apiVersion": objects.GROUP_VERSION, "kind": "Reservation", **(options.template or {})}
    return Step(job=named, create=body)


def _schedule(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    place = state.reservation
    if place is None:
        return _failed(job, "MissingReservation", f'Abort job caused by missing Reservation "{job.reservation}"')
    scheduled = place.condition("Scheduled")
    # Koordinator reads the reason alone, whatever the status is.
    refused = scheduled is not None and scheduled.reason == "Unschedulable"
    why = scheduled.message if scheduled is not None and refused else ""
    # What was scheduled once stays so: the refusal of a later attempt is not noted.
    if refused and not objects.holds(job, "ReservationScheduled"):
        job = with_condition(job, "ReservationScheduled", False, now=state.now, reason="Unschedulable", message=why)
    if place.pending:
        return Step(job=job, again_seconds=AGAIN_SECONDS)
    if place.expired:
        return _failed(job, "ReservationExpired", "Reservation expired")
    if not place.scheduled:
        return _failed(job, "Unschedulable", why)
    node = place.status.node_name
    here = state.pod is not None and same_pod(job, state.pod) and state.pod.spec.node_name == node
    if here and not place.for_one_pod and objects.condition(job, "Eviction") is None:
        why = f'Scheduler assignes the Reservation "{job.reservation}" on the same node as the Pod'
        return _failed(job, "ForbiddenMigratePod", why, error=True)
    job = objects.with_status(job, node_name=node)
    return with_condition(job, "ReservationScheduled", True, now=state.now)


def _assign_pending(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    """A pod that never started needs no eviction: it takes the place itself."""
    place = state.reservation
    if place is None or not place.for_one_pod:
        return job
    owner = place.bound
    if place.status.phase == objects.SUCCEEDED and owner is not None and not _is(job.pod, owner):
        return _failed(job, "ForbiddenMigratePod", "Reservation is already bound by another Pod")
    if state.pod is None or not same_pod(job, state.pod):
        return _missing_pod(job)
    scheduled = next((c for c in state.pod.status.conditions or () if c.type == "PodScheduled"), None)
    if scheduled is None or scheduled.status != "True":
        why = (scheduled.message if scheduled else None) or ""
        job = with_condition(job, "PodScheduled", False, now=state.now, reason="Unschedulable", message=why)
        return Step(job=job, again_seconds=AGAIN_SECONDS)
    text = f'Assign Pod "{job.pod.key}" to node "{state.pod.spec.node_name}"'
    return Step(job=objects.succeeded(with_condition(job, "PodScheduled", True, now=state.now), text))


def _evict(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    if objects.holds(job, "Eviction"):
        return job
    if state.pod is None or not same_pod(job, state.pod):
        # The pod is not there, or is another one: because of us, or before we asked?
        by_us = job.status.status == "Eviction"
        done = with_condition(job, "Eviction", True, now=state.now, reason="EvictComplete")
        return done if by_us else _missing_pod(job)
    if _under_way(job, state):
        return Step(job=job, again_seconds=AGAIN_SECONDS)
    place = state.reservation
    bound = place is not None and place.status.phase == objects.SUCCEEDED
    if bound or state.others == "lost":
        why = "Reservation is already bound by another Pod" if bound else "A Pod that it would go together with stays"
        return _failed(job, "ForbiddenMigratePod", why)
    # While another pod is on its way to the place, nobody knows whose it will be.
    waits = state.others == "wait" or (place is not None and hand_over.under_way(place) is not None)
    pause = max(state.turn_seconds, AGAIN_SECONDS if waits else 0.0)
    if pause > 0:
        return Step(job=job, again_seconds=pause)
    text = f'Pod "{job.pod.key}" evicted from node "{state.pod.spec.node_name}" by the reason "{job.reason}"'
    job = with_condition(job, "Eviction", False, now=state.now, reason="Evicting", message=text, refresh=True)
    return Step(job=job, evict=True, again_seconds=AGAIN_SECONDS)


def _eviction_requested(job: MigrationJob) -> bool:
    """Its eviction was asked for, and the server has not refused."""
    eviction = objects.condition(job, "Eviction")
    return eviction is not None and eviction.reason == "Evicting"


def _under_way(job: MigrationJob, state: ClusterState) -> bool:
    """Its eviction was asked for, and there is no sign that it was in vain."""
    eviction = objects.condition(job, "Eviction")
    if eviction is None or not _eviction_requested(job):
        return False
    going = state.pod is not None and state.pod.metadata.deletion_timestamp is not None
    since = times.parse_or_none(eviction.last_probe_time)
    return going or since is None or state.now - since < ASK_AGAIN_SECONDS


def _bind(job: MigrationJob, state: ClusterState) -> MigrationJob | Step:
    owner = state.reservation.bound if state.reservation is not None else None
    if owner is None:
        job = with_condition(job, "PodBoundReservation", False, now=state.now, reason="WaitForPodBindReservation")
        return Step(job=job, again_seconds=AGAIN_SECONDS)
    job = with_condition(job, "ReservationBound", True, now=state.now)
    return objects.with_status(job, pod_ref=owner)


def _end_bound(job: MigrationJob, state: ClusterState) -> Step:
    pod = state.bound_pod
    if pod is not None and not any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()):
        job = with_condition(job, "BoundPodReady", False, now=state.now, reason="WaitForBoundPodReady")
        return Step(job=job, again_seconds=AGAIN_SECONDS)
    job = with_condition(job, "BoundPodReady", True, now=state.now)
    owner = job.status.pod_ref or ObjectReference()
    text = f'Bind Pod "{owner.key}" in Reservation "{job.reservation}"'
    job = with_condition(job, "PodBoundReservation", True, now=state.now, message=text)
    return Step(job=objects.succeeded(job, text))


def eviction_refused(job: MigrationJob, why: str, *, now: float) -> MigrationJob:
    """The job whose eviction the server refused: nothing is under way, and it will be asked for again."""
    return with_condition(job, "Eviction", False, now=now, reason="FailedEvict", message=why)


def _failed(job: MigrationJob, reason: str, message: str, *, error: bool = False) -> Step:
    return Step(job=objects.failed(job, reason, message), error=message if error else "")


def _missing_pod(job: MigrationJob, *, error: bool = False) -> Step:
    return _failed(job, "MissingPod", f'Abort job caused by missing Pod "{job.pod.key}"', error=error)


def _is(one: ObjectReference, other: ObjectReference) -> bool:
    return one.uid == other.uid if one.uid and other.uid else one.key == other.key


_DIRECT: tuple[Stage, ...] = (_begin, _wait_for_limit, _evict)
_RESERVED: tuple[Stage, ...] = (
    _begin,
    _give_up_room,
    _wait_for_limit,
    _reserve,
    _schedule,
    _assign_pending,
    _evict,
    _bind,
    _end_bound,
)
