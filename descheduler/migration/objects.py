"""PodMigrationJob and Reservation of scheduling.koordinator.sh/v1alpha1, as far as a rule uses them, and their pods.

Both are written by patches of what changed, so that fields which are not here stay as they are. How far a job has come
is in its conditions, and the last of them is its word.

Source: Koordinator `util.UpdateCondition` and the aborts of its PodMigrationJob controller.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import structs

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.framework import PodView
from koordlite.model import duration, keys, times
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects as wire
from koordlite.model.wire.objects import KubeObject, WireObject
from koordlite.model.wire.reservation import Condition, ObjectReference, ReservationObject

GROUP_VERSION = "scheduling.koordinator.sh/v1alpha1"
JOBS = f"/apis/{GROUP_VERSION}/podmigrationjobs"
RESERVATIONS = f"/apis/{GROUP_VERSION}/reservations"

PENDING, RUNNING, SUCCEEDED, FAILED, ABORTED = "Pending", "Running", "Succeeded", "Failed", "Aborted"
"""Phases of a job."""


class ReservationOptions(WireObject, frozen=True):
    """The reservation of a place for a job."""

    reservation_ref: ObjectReference | None = None
    template: dict[str, Any] | None = None
    """metadata and spec of the Reservation."""


class JobSpec(WireObject, frozen=True):
    """spec of a PodMigrationJob."""

    paused: bool = False
    ttl: str | None = None
    mode: str = ""
    pod_ref: ObjectReference | None = None
    reservation_options: ReservationOptions | None = None
    delete_options: dict[str, Any] | None = None


class JobStatus(WireObject, frozen=True):
    """status of a PodMigrationJob."""

    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    conditions: tuple[Condition, ...] = ()


class MigrationJob(KubeObject, frozen=True):
    """A PodMigrationJob: one pod is to go, and maybe a place is reserved for its successor first."""

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
        """Tell whether arbitration let it through."""
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
    def first_reservation(self) -> str:
        """Name of the reservation that was made for it, also after it has exchanged it for another job's."""
        options = self.spec.reservation_options
        template = (options.template if options else None) or {}
        return (template.get("metadata") or {}).get("name") or self.reservation

    @property
    def held_first(self) -> frozenset[str]:
        """uids of the pods that must have a place before this one goes; where it waits (`room_on`), of all that make
        its room."""
        return frozenset(filter(None, self.annotations.get(HELD_FIRST, "").split(",")))

    @property
    def waiting(self) -> str:
        """Name of the job that holds the room which this job's pod makes; empty for none."""
        return self.annotations.get(WAITING, "")

    @property
    def room_on(self) -> str:
        """Node on which others make room for the job's pod, which waits; empty for the job of a pod that moves."""
        return self.annotations.get(keys.ROOM_WANTED, "")

    @property
    def reason(self) -> str:
        """Reason of the eviction in the word of the plugin, else the plugin."""
        return self.annotations.get(keys.EVICT_REASON) or self.annotations.get(keys.EVICT_TRIGGER) or "NotSet"


class Reservation(ReservationObject, frozen=True):
    """A place on a node that only its owners' pods take, as a migration looks at it."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type."""
        return next((c for c in self.status.conditions or () if c.type == kind), None)

    @property
    def keeps_room(self) -> bool:
        """Tell whether what becomes free on the node that it waits for (`keys.ROOM_WANTED`) is kept for it."""
        notes = self.metadata.annotations or {}
        return notes.get(keys.ROOM_KEPT, "") == notes.get(keys.ROOM_WANTED)

    @property
    def pending(self) -> bool:
        """The scheduler has not looked at it yet."""
        return self.status.phase in ("", PENDING)

    @property
    def scheduled(self) -> bool:
        """Tell whether it has a node."""
        condition = self.condition("Scheduled")
        done = condition is not None and (condition.status, condition.reason) == ("True", "Scheduled")
        return done and bool(self.status.node_name)

    @property
    def expired(self) -> bool:
        """Its time ran out before a pod took it; whatever status its condition has, as in Koordinator."""
        condition = self.condition("Ready")
        return self.status.phase == FAILED and condition is not None and condition.reason == "Expired"

    @property
    def bound(self) -> ObjectReference | None:
        """The pod that took it."""
        return next(iter(self.status.current_owners or ()), None)

    @property
    def for_one_pod(self) -> bool:
        """Tell whether it waits for one given pod that is pending, not for a pod of a workload."""
        owners = self.spec.owners or ()
        return bool(owners) and all(
            owner.object is not None and owner.controller is None and owner.label_selector is None for owner in owners
        )


def pod_view(obj: wire.PodObject) -> PodView:
    """The pod; one without a uid has its name instead."""
    value = pod_reader.from_wire(obj)
    if not value.uid:
        value = msgspec.structs.replace(value, uid=value.key)
    created = times.parse_or_none(obj.metadata.creation_timestamp)
    return PodView(value, obj, obj.spec.node_name, created)


def controller(pod_view: PodView) -> wire.OwnerReference | None:
    """The controlling owner; None for a bare pod."""
    return next((owner for owner in pod_view.object.metadata.owner_references or () if owner.controller), None)


def controller_uid(pod_view: PodView) -> str:
    """Its uid; empty for a bare pod."""
    owner = controller(pod_view)
    return owner.uid if owner else ""


def available(pod_view: PodView) -> bool:
    """Tell whether it has not ended, is not going, and is ready to serve."""
    value = pod_view.pod
    conditions = pod_view.object.status.conditions or ()
    serves = any(c.type == "Ready" and c.status == "True" for c in conditions)
    return not value.finished and not value.deleting and serves


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
    current = condition(job, kind)
    return current is not None and current.status == "True"


def with_condition(
    job: MigrationJob,
    kind: Kind,
    is_true: bool,
    *,
    now: float,
    reason: str = "",
    message: str = "",
    refresh: bool = False,
) -> MigrationJob:
    """The job with a condition. The status speaks of what changed last.

    Unchanged when it says so already, except with `refresh`: then the time of the last check is this one.
    """
    value: Literal["True", "False"] = "True" if is_true else "False"
    old = condition(job, kind)
    same = old is not None and (old.status, old.reason, old.message) == (value, reason, message)
    if same and not refresh:
        return job
    time = times.show(now)
    since = old.last_transition_time if old is not None and old.status == value else time
    entry = Condition(
        type=kind, status=value, reason=reason, message=message, last_probe_time=time, last_transition_time=since
    )
    entries = job.status.conditions
    entries = tuple(entry if c is old else c for c in entries) if old is not None else (*entries, entry)
    return with_status(job, status=kind, reason=reason, message=message, conditions=entries)


def standing(job: MigrationJob) -> str:
    """Describe the progress of a job that has not ended, and the reservation it counts on, for people."""
    if job.reservation:
        node = f"node {job.status.node_name}" if job.status.node_name else "no node yet"
        counts_on = f"counts on reservation {job.reservation}, on {node}"
    elif job.spec.mode == "EvictDirectly":
        counts_on = "reserves no place"
    else:
        counts_on = "has no reservation yet"
    status = job.status
    word = status.status or status.phase or PENDING
    why = ": ".join(text for text in (status.reason, status.message) if text)
    return f"migration job {job.name} {counts_on}; {word}{f', {why}' if why else ''}"


def with_status(job: MigrationJob, **changes: object) -> MigrationJob:
    """The job with parts of its status replaced."""
    return structs.replace(job, status=structs.replace(job.status, **changes))


def with_reservation(job: MigrationJob, name: str) -> MigrationJob:
    """The job with another reservation; its options still tell which one was made for it."""
    options = job.spec.reservation_options or ReservationOptions()
    ref = structs.replace(options.reservation_ref or ObjectReference(), name=name, uid="")
    return structs.replace(
        job, spec=structs.replace(job.spec, reservation_options=structs.replace(options, reservation_ref=ref))
    )


def failed(job: MigrationJob, reason: str, message: str) -> MigrationJob:
    """The job given up, and why. What it had reached stays to be read."""
    return with_status(job, phase=FAILED, reason=reason, message=message)


def succeeded(job: MigrationJob, message: str) -> MigrationJob:
    """The job done."""
    return with_status(job, phase=SUCCEEDED, status=COMPLETE, reason="", message=message)


CONTROLLER = "migration.koordlite.io/controller"
"""uid of the controller of a job's pod: the limit of a workload's pace needs it when the pod is long gone."""
_LONGEST_PREFIX = 50
KEPT_SECONDS = 30 * 60.0
"""Time for which an ended job without a time to live is kept."""
KEPT_AFTER_SECONDS = 5 * 60.0
"""Time for which any other job is kept when its time is over."""


def creator(profile: str) -> str:
    """The creator that jobs of a profile name: the same for every copy of this program and after every restart, unlike
    Koordinator's, so that no job is orphaned."""
    return f"koordlite-descheduler/{profile}"


HELD_FIRST = "descheduler.koordlite.io/held-first"
"""Annotation of a job whose pod goes together with others: uids of the pods that must have a place before it goes. On
the job of a pod that waits: uids of all that make room for it."""

WAITING = "descheduler.koordlite.io/makes-room-for"
"""Annotation of a job whose pod makes room: name of the job that holds it for the pod that waits."""


def place_of_waiting(
    pod: PodView, node: str, makers: Iterable[str], *, creator: str, args: MigrationControllerArgs, name: str
) -> dict[str, Any]:
    """The job of a pod that waits until `makers`, pods by uid, have left `node`: it evicts nothing, asks no limit,
    holds the place."""
    placeholder = job(
        pod, reason="MakesRoom", trigger="MakeRoom", creator=creator, args=args, name=name, held_first=makers
    )
    placeholder["metadata"]["annotations"] |= {keys.ROOM_WANTED: node, keys.PASSED_ARBITRATION: "true"}
    return placeholder


def job(
    pod: PodView,
    *,
    reason: str,
    trigger: str,
    creator: str,
    args: MigrationControllerArgs,
    name: str = "",
    held_first: Iterable[str] = (),
    waiting: str = "",
) -> dict[str, Any]:
    """A PodMigrationJob for this very pod. `trigger` is the plugin, `creator` who will work on it. Without a name the
    server makes one up. `held_first`: see `HELD_FIRST`; `waiting`: see `WAITING`."""
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
        CONTROLLER: controller_uid(pod),
        HELD_FIRST: ",".join(held_first),
        WAITING: waiting,
    }
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PodMigrationJob",
        "metadata": {**named, "annotations": {key: text for key, text in notes.items() if text}},
        "spec": spec,
        "status": {"phase": PENDING},
    }


def ours(one: MigrationJob, creator: str, *, adopts: bool = True) -> bool:
    """Tell whether the job is ours to work on. Those that people make name no creator."""
    made_by = one.annotations.get(keys.CREATED_BY, "")
    return made_by == creator or (adopts and not made_by)


def is_outlived(one: MigrationJob, now: float) -> bool:
    """The job can be removed. One that has not ended and has no time to live stays."""
    created = times.parse_or_none(one.metadata.creation_timestamp)
    if created is None:
        return False
    ttl = duration.seconds(one.spec.ttl or "0")
    if ttl > 0:
        return now - created >= ttl + KEPT_AFTER_SECONDS
    return one.finished and now - created >= KEPT_SECONDS


def evicted_at(jobs: Iterable[MigrationJob], *, controller: str = "", namespace: str = "") -> list[float]:
    """Times at which jobs evicted pods of the controller, or of the namespace, in seconds since the epoch."""
    instants = []
    for one in jobs:
        eviction = next((c for c in one.status.conditions if c.type == "Eviction" and c.reason != "FailedEvict"), None)
        instant = times.parse_or_none(eviction.last_transition_time) if eviction else None
        same = controller_of(one) == controller if controller else one.pod.namespace == namespace
        if instant is not None and same:
            instants.append(instant)
    return instants


def controller_of(one: MigrationJob) -> str:
    """uid of the controller of a job's pod, as the job remembers it."""
    noted = one.annotations.get(CONTROLLER, "")
    options = one.spec.reservation_options
    if noted or options is None or options.template is None:
        return noted
    template = (options.template.get("spec") or {}).get("template") or {}
    owners = (template.get("metadata") or {}).get("ownerReferences") or ()
    return next((owner.get("uid", "") for owner in owners if owner and owner.get("controller")), "")


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
    own = job.spec.reservation_options or ReservationOptions()
    template = copy.deepcopy(own.template or {})
    meta, spec = (dict(template.get(part) or {}) for part in ("metadata", "spec"))
    template |= {"metadata": meta, "spec": spec}
    if job.metadata.uid:
        meta.setdefault("name", job.metadata.uid)
    labels = meta["labels"] = dict(meta.get("labels") or {})
    labels[CREATED_BY_LABEL] = CREATOR
    labels.setdefault(keys.RESERVATION_ORDER, str(int(now * 1000)))
    node = pod.get("spec", {}).get("nodeName", "")
    spec["template"] = _place(spec.get("template") or pod, away_from=node, drop_claims=drop_claims)
    if job.room_on:
        meta["annotations"] = {**(meta.get("annotations") or {}), keys.ROOM_WANTED: job.room_on}
        spec["template"]["spec"]["nodeName"] = job.room_on
    if not spec.get("owners") and (owners := _owners(pod)):
        spec["owners"] = owners
    spec["allocateOnce"] = True
    if duration.seconds(job.spec.ttl or "0") > 0 and "ttl" not in spec and "expires" not in spec:
        spec["ttl"] = job.spec.ttl
    name = meta.get("name") or meta.get("generateName", "")
    ref = ObjectReference(api_version=GROUP_VERSION, kind="Reservation", name=name)
    return ReservationOptions(reservation_ref=ref, template=template)


def _place(template: Raw, *, away_from: str, drop_claims: bool) -> dict[str, Any]:
    """The pod template of the reservation: that of the job, or the pod itself, on any node but `away_from`."""
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if key not in _OF_THE_SERVER}
    spec = copy.deepcopy(dict(template.get("spec") or {}))
    spec.pop("nodeName", None)
    if away_from:
        # Required node affinity against the node; terms are alternatives, so each of them gets it.
        line = {"key": "metadata.name", "operator": "NotIn", "values": [away_from]}
        affinity = spec.get("affinity") or {}
        of_nodes = affinity.get("nodeAffinity") or {}
        rule = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = [term or {} for term in (of_nodes.get(rule) or {}).get("nodeSelectorTerms") or [{}]]
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
        # Without an apiVersion: the pods that koord-scheduler compares it with have none.
        return [{"object": named}]
    controllers = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    return [{"controller": {**owner, "namespace": namespace}} for owner in controllers[:1]]
