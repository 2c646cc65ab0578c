"""The Reservation that is made for a job: a place like the pod's own, on any node but the one it is to leave.

Source: Koordinator `CreateOrUpdateReservationOptions`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from descheduler.migration import objects
from descheduler.migration.objects import MigrationJob, ReservationOptions
from koordlite.model import keys
from koordlite.model.wire.reservation import ObjectReference

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
    """Who may take the place: the pod itself while it is pending, else pods of its controller; else nobody."""
    meta, status = pod.get("metadata", {}), pod.get("status", {})
    namespace = meta.get("namespace", "")
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    if status.get("phase") == "Pending" and conditions.get("PodScheduled") == "False":
        named = {"kind": "Pod", "namespace": namespace, "name": meta.get("name", ""), "uid": meta.get("uid", "")}
        return [{"object": {"apiVersion": "v1", **named}}]
    controllers = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    return [{"controller": {**owner, "namespace": namespace}} for owner in controllers[:1]]
