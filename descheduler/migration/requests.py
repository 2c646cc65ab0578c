"""The job that is made for a pod of the plan, the Reservation that is made for a job, and how long jobs are kept.

Source: Koordinator's MigrationController `Evict`, its scavenger, and `CreateOrUpdateReservationOptions`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.framework import PodView
from descheduler.migration import objects
from descheduler.migration.objects import MigrationJob, ReservationOptions
from koordlite.model import duration, keys, times
from koordlite.model.wire.reservation import ObjectReference

CONTROLLER = "migration.koordlite.io/controller"
"""uid of the controller of a job's pod: the limit of a workload's pace needs it when the pod is long gone."""
_LONGEST_PREFIX = 50
KEPT_SECONDS = 30 * 60.0
"""How long an ended job without a time to live is kept."""
KEPT_AFTER_SECONDS = 5 * 60.0
"""How long any other job is kept when its time is over."""


def creator(profile: str) -> str:
    """The creator that jobs of a profile name: the same for every copy of this program and after every restart, unlike
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
        CONTROLLER: objects.controller_uid(pod),
    }
    return {
        "apiVersion": objects.GROUP_VERSION,
        "kind": "PodMigrationJob",
        "metadata": {**named, "annotations": {key: text for key, text in notes.items() if text}},
        "spec": spec,
        "status": {"phase": objects.PENDING},
    }


def ours(one: MigrationJob, creator: str, *, adopts: bool = True) -> bool:
    """Tell whether the job is ours to work on. Those that people make name no creator."""
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
    """Times at which jobs evicted pods of the controller, or of the namespace, in seconds since the epoch."""
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


CREATED_BY_LABEL = "app.kubernetes.io/created-by"
CREATOR = "koord-descheduler"
_OF_THE_SERVER = ("resourceVersion", "managedFields", "generation", "selfLink")
_HOLDERS = ("persistentVolumeClaim", "ephemeral")

Raw = Mapping[str, Any]
"""An object as the API server writes it."""


def options(job: MigrationJob, pod: Raw, *, now: float, drop_claims: bool = False) -> ReservationOptions:
    """The job's options completed: template, and the name under which the reservation is made, which is the job's uid
    unless the template names one. The same job gives the same name, so that a second try finds what the first made.

    `drop_claims` leaves volumes with claims out of the place (gate DisablePVCReservation).
    """
    given = job.spec.reservation_options or ReservationOptions()
    template = copy.deepcopy(given.template or {})
    meta, spec = template.setdefault("metadata", {}), template.setdefault("spec", {})
    if job.metadata.uid:
        meta.setdefault("name", job.metadata.uid)
    labels = meta.setdefault("labels", {})
    labels[CREATED_BY_LABEL] = CREATOR
    labels.setdefault(keys.RESERVATION_ORDER, str(int(now * 1000)))
    spec.setdefault("template", _place(pod, drop_claims=drop_claims))
    owners = _owners(pod)
    if owners:
        spec.setdefault("owners", owners)
    spec["allocateOnce"] = True
    if job.spec.ttl and "ttl" not in spec and "expires" not in spec:
        spec["ttl"] = job.spec.ttl
    name = meta.get("name") or meta.get("generateName", "")
    ref = ObjectReference(api_version=objects.GROUP_VERSION, kind="Reservation", name=name)
    return ReservationOptions(reservation_ref=ref, template=template)


def reservation(chosen: ReservationOptions) -> dict[str, Any]:
    """The object to create."""
    return {"apiVersion": objects.GROUP_VERSION, "kind": "Reservation", **(chosen.template or {})}


def _place(pod: Raw, *, drop_claims: bool) -> dict[str, Any]:
    meta = {key: value for key, value in pod.get("metadata", {}).items() if key not in _OF_THE_SERVER}
    spec = copy.deepcopy(dict(pod.get("spec", {})))
    node = spec.pop("nodeName", "")
    if node:
        # Required node affinity against the node; terms are alternatives, so each of them gets it.
        line = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
        affinity = spec.get("affinity") or {}
        of_nodes = affinity.get("nodeAffinity") or {}
        rule = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = (of_nodes.get(rule) or {}).get("nodeSelectorTerms") or [{}]
        bound = [{**term, "matchFields": [*(term.get("matchFields") or ()), line]} for term in terms]
        spec["affinity"] = {**affinity, "nodeAffinity": {**of_nodes, rule: {"nodeSelectorTerms": bound}}}
    if drop_claims and spec.get("volumes"):
        spec["volumes"] = [volume for volume in spec["volumes"] if not any(key in volume for key in _HOLDERS)]
    return {"metadata": meta, "spec": spec}


def _owners(pod: Raw) -> list[dict[str, Any]]:
    """Owners that may take the place: the pod itself while it is pending, else pods of its controller; else nobody."""
    meta, status = pod.get("metadata", {}), pod.get("status", {})
    namespace = meta.get("namespace", "")
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    if status.get("phase") == "Pending" and conditions.get("PodScheduled") == "False":
        named = {"kind": "Pod", "namespace": namespace, "name": meta.get("name", ""), "uid": meta.get("uid", "")}
        return [{"object": {"apiVersion": "v1", **named}}]
    controllers = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    return [{"controller": {**owner, "namespace": namespace}} for owner in controllers[:1]]
