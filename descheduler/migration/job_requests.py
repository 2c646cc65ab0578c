"""The job that is made for a pod of the plan, and how long jobs are kept.

Source: Koordinator's MigrationController `Evict` and its scavenger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.framework import PodView
from descheduler.migration import objects, pods
from descheduler.migration.objects import MigrationJob
from koordlite.model import duration, keys, times

CONTROLLER = "migration.koordlite.io/controller"
"""uid of the controller of a job's pod: the limit of a workload's pace needs it when the pod is long gone."""
_LONGEST_PREFIX = 50
KEPT_SECONDS = 30 * 60.0
"""How long an ended job without a time to live is kept."""
KEPT_AFTER_SECONDS = 5 * 60.0
"""How long any other job is kept when its time is over."""


def creator(profile: str) -> str:
    """Who works on the jobs of a profile: the same for every copy of this program and after every restart, unlike
    Koordinator's, so that no job is orphaned."""
    return f"koordlite-descheduler/{profile}"


def job(
    pod: PodView, *, reason: str, trigger: str, creator: str, args: MigrationControllerArgs, name: str = ""
) -> dict[str, Any]:
    """A PodMigrationJob for this very pod. `trigger` is the plugin, `creator` who will work on it. Without a name the
    server makes one up."""
    ref = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.pod.namespace, "name": pod.pod.name, "uid": pod.uid}
    spec: dict[str, Any] = {"podRef": ref, "mode": args.default_job_mode or "ReservationFirst"}
    if duration.seconds(args.default_job_ttl) > 0:
        spec["ttl"] = args.default_job_ttl
    if args.default_delete_options:
        spec["deleteOptions"] = dict(args.default_delete_options)
    named = {"name": name} if name else {"generateName": f"{pod.pod.name[:_LONGEST_PREFIX]}-"}
    notes = {
        keys.EVICT_REASON: reason,
        keys.EVICT_TRIGGER: trigger,
        keys.CREATED_BY: creator,
        CONTROLLER: pods.controller_uid(pod),
    }
    return {
        "apiVersion": objects.GROUP_VERSION,
        "kind": "PodMigrationJob",
        "metadata": {**named, "annotations": {key: text for key, text in notes.items() if text}},
        "spec": spec,
        "status": {"phase": objects.PENDING},
    }


def ours(one: MigrationJob, creator: str, *, adopts: bool = True) -> bool:
    """Is the job ours to work on? Those that people make name no creator."""
    made_by = one.annotations.get(keys.CREATED_BY, "")
    return made_by == creator or (adopts and not made_by)


def outlived(one: MigrationJob, now: float) -> bool:
    """The job can be removed. One that has not ended and has no time to live stays."""
    made = times.parse_or_none(one.metadata.creation_timestamp)
    if made is None:
        return False
    ttl = duration.seconds(one.spec.ttl or "0")
    if ttl > 0:
        return now - made >= ttl + KEPT_AFTER_SECONDS
    return one.finished and now - made >= KEPT_SECONDS


def evicted_at(jobs: Iterable[MigrationJob], *, controller: str = "", namespace: str = "") -> list[float]:
    """When pods of the controller, or of the namespace, were evicted by jobs, seconds since the epoch."""
    found = []
    for one in jobs:
        asked = next((c for c in one.status.conditions if c.type == "Eviction" and c.reason != "FailedEvict"), None)
        moment = times.parse_or_none(asked.last_transition_time) if asked else None
        same = controller_of(one) == controller if controller else one.pod.namespace == namespace
        if moment is not None and same:
            found.append(moment)
    return found


def controller_of(one: MigrationJob) -> str:
    """uid of the controller of a job's pod, as the job remembers it."""
    noted = one.annotations.get(CONTROLLER, "")
    options = one.spec.reservation_options
    if noted or options is None or options.template is None:
        return noted
    owners = options.template.get("spec", {}).get("template", {}).get("metadata", {}).get("ownerReferences") or ()
    return next((owner.get("uid", "") for owner in owners if owner.get("controller")), "")
