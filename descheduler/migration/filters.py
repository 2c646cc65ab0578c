"""Rules on which pods get a job, and which jobs begin. Each says why not; empty when it has no objection.

Source: Koordinator's filters and object limiters of MigrationController. Unlike there, pods of all ReplicaSets of a
Deployment count together, and which jobs were let through, and which pods went, is read from the jobs themselves, so
that a restart forgets nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from descheduler.arguments.migration import MigrationControllerArgs, ObjectLimiter
from descheduler.filters.default_evictor import EVICT
from descheduler.framework import PodView, Refusal
from descheduler.migration import objects
from descheduler.migration.objects import RUNNING, MigrationJob
from descheduler.utilization import levels
from koordlite.model import duration, times
from koordlite.model.wire.reservation import ObjectReference

_DEFAULT_SCHEDULER = "default-scheduler"


class Workload(msgspec.Struct, frozen=True):
    """A Deployment, StatefulSet or the like with its pods."""

    replicas: int
    """Replicas of the spec, not of the status."""
    pods: tuple[PodView, ...] = ()


class Traffic(msgspec.Struct):
    """Pods that are on the move, by what limits count. Grows while jobs are made or let through."""

    uids: dict[str, str] = msgspec.field(default_factory=dict)
    """State of the jobs that have not ended, by uid of the pod."""
    keys: dict[str, str] = msgspec.field(default_factory=dict)
    """The same by `namespace/name`."""
    moving: dict[str, PodView] = msgspec.field(default_factory=dict)
    """Pods of jobs that count, by uid, as far as they are there."""
    jobs: dict[str, ObjectReference] = msgspec.field(default_factory=dict)
    """Pod of each job that counts, gone or not, by uid or name of the job."""
    nodes: Counter[str] = msgspec.field(default_factory=Counter)
    """Moving pods by node."""
    controllers: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """Keys of moving pods by the uid of their controller."""

    @classmethod
    def of(cls, jobs: Iterable[MigrationJob], pods: Iterable[PodView], *, arbitrating: bool = False) -> Traffic:
        """The jobs that have not ended, with their pods. `arbitrating`: of those that nobody has begun with, only the
        ones that were let through count."""
        traffic, pods_there = cls(), list(pods)
        by_uid = {pod.uid: pod for pod in pods_there}
        by_key = {pod.key: pod for pod in pods_there}
        for job in jobs:
            if not job.finished:
                # The job of a pod that waits moves none: it is there, and counts for no limit.
                pod = by_uid.get(job.pod.uid) if job.pod.uid else by_key.get(job.pod.key)
                counts = not job.room_on and (not arbitrating or job.passed or job.status.phase == RUNNING)
                traffic.add(job, pod, counts=counts)
        return traffic

    def add(self, job: MigrationJob, pod: PodView | None, *, counts: bool = True) -> None:
        """Add a job; `counts` says whether its pod is on the move, or its job only waits."""
        standing = objects.standing(job)
        self.uids |= {job.pod.uid: standing} if job.pod.uid else {}
        self.keys |= {job.pod.key: standing} if job.pod.name else {}
        if not counts:
            return
        self.jobs[job.metadata.uid or job.name] = job.pod
        if pod is not None and pod.uid not in self.moving:
            self.moving[pod.uid] = pod
            self.nodes[pod.node] += 1
            self.controllers.setdefault(objects.controller_uid(pod), set()).add(pod.key)


Guard = Callable[[PodView, Traffic, Workload | None, MigrationControllerArgs], str]
"""Says why not; empty when it has no objection."""


def permanent(pod: PodView, workload: Workload | None, args: MigrationControllerArgs) -> Refusal | None:
    """The refusal that no waiting cures, beside the guards: its scheduler, its workload's size."""
    words = [word for word in _PERMANENT if word not in _OVERRULED or EVICT not in pod.pod.annotations]
    return _first({word: _PERMANENT[word](pod, _NOTHING_MOVES, workload, args) for word in words})


def passing(pod: PodView, traffic: Traffic, workload: Workload | None, args: MigrationControllerArgs) -> Refusal | None:
    """The refusal that will pass when others have moved. The evict annotation overrules it."""
    if EVICT in pod.pod.annotations:
        return None
    return _first({word: guard(pod, traffic, workload, args) for word, guard in _PASSING.items()})


def _first(objections: Mapping[str, str]) -> Refusal | None:
    return next((Refusal(reason, text) for reason, text in objections.items() if text), None)


def job_exists(pod: PodView, traffic: Traffic) -> str:
    """The pod, or one of its name, is on the move already."""
    return traffic.uids.get(pod.uid) or traffic.keys.get(pod.key, "")


def scheduler(pod: PodView, _traffic: Traffic, _workload: Workload | None, args: MigrationControllerArgs) -> str:
    """Its scheduler would not honour the reservation."""
    name = pod.object.spec.scheduler_name or _DEFAULT_SCHEDULER
    if args.default_job_mode == "EvictDirectly" or name in args.scheduler_names:
        return ""
    return f"its scheduler {name} is none of schedulerNames, which honour reservations"


def globally(pod: PodView, traffic: Traffic, _workload: Workload | None, args: MigrationControllerArgs) -> str:
    """Too many jobs at once."""
    most, skipped = args.max_migrating_globally, "MaxMigratingGlobally" in args.skip_eviction_gates
    count = sum(other.uid != pod.uid for other in traffic.jobs.values())
    return (
        f"{count} jobs are under way, maxMigratingGlobally is {most}" if most and not skipped and count >= most else ""
    )


def per_node(pod: PodView, traffic: Traffic, _workload: Workload | None, args: MigrationControllerArgs) -> str:
    """Too many pods of its node at once."""
    most, skipped = args.max_migrating_per_node, "MaxMigratingPerNode" in args.skip_eviction_gates
    if not most or skipped or not pod.node:
        return ""
    count = traffic.nodes[pod.node] - (pod.uid in traffic.moving)
    return f"{count} pods of {pod.node} are on the move, maxMigratingPerNode is {most}" if count >= most else ""


def per_namespace(pod: PodView, traffic: Traffic, _workload: Workload | None, args: MigrationControllerArgs) -> str:
    """Too many jobs for pods of its namespace at once. The pod that a job has evicted still counts."""
    most, skipped = args.max_migrating_per_namespace, "MaxMigratingPerNamespace" in args.skip_eviction_gates
    if not most or skipped:
        return ""
    where = pod.pod.namespace
    count = sum(other.namespace == where and other.uid != pod.uid for other in traffic.jobs.values())
    return f"{count} pods of {where} are on the move, maxMigratingPerNamespace is {most}" if count >= most else ""


def per_workload(pod: PodView, traffic: Traffic, workload: Workload | None, args: MigrationControllerArgs) -> str:
    """Too many pods of its workload on the move, or missing, at once. The pod itself counts when it is not ready."""
    owner = objects.controller(pod)
    if owner is None or {"MaxMigratingPerWorkload", "MaxUnavailablePerWorkload"} <= set(args.skip_eviction_gates):
        return ""
    if workload is None:
        return f"how many pods its {owner.kind} wants is unknown"
    # Keys of other pods of the workload that are on the move, of whichever of its ReplicaSets.
    siblings = {one.uid for one in workload.pods}
    of_siblings = frozenset(traffic.moving[one].key for one in siblings if one in traffic.moving)
    moving = (of_siblings | traffic.controllers.get(owner.uid, set())) - {pod.key}
    most = allowed(workload.replicas, args.max_migrating_per_workload)
    if moving and len(moving) >= most and "MaxMigratingPerWorkload" not in args.skip_eviction_gates:
        return f"{len(moving)} pods of its {owner.kind} are on the move, {most} may be"
    missing = moving | {one.key for one in workload.pods if not objects.available(one)}
    most = allowed(workload.replicas, args.max_unavailable_per_workload)
    if len(missing) >= most and "MaxUnavailablePerWorkload" not in args.skip_eviction_gates:
        return f"{len(missing)} pods of its {owner.kind} are missing or on the move, {most} may be"
    return ""


def expected_replicas(pod: PodView, _traffic: Traffic, workload: Workload | None, args: MigrationControllerArgs) -> str:
    """Its workload is so small that all of it would be missing at once."""
    owner = objects.controller(pod)
    skipped = args.skip_check_expected_replicas or "ExpectedReplicas" in args.skip_eviction_gates
    if owner is None or skipped:
        return ""
    if workload is None:
        return f"how many pods its {owner.kind} wants is unknown"
    count = workload.replicas
    most_moving = allowed(count, args.max_migrating_per_workload)
    most_missing = allowed(count, args.max_unavailable_per_workload)
    if count in (1, most_moving, most_missing):
        return f"its {owner.kind} has {count} replicas, all of which could be missing at once"
    return ""


_NOTHING_MOVES = Traffic()
_PERMANENT: dict[str, Guard] = {"SchedulerIgnoresReservations": scheduler, "TooFewReplicas": expected_replicas}
_OVERRULED = frozenset(("TooFewReplicas",))
"""Rules that are not asked about a pod with the evict annotation."""
_PASSING: dict[str, Guard] = {
    "MaxMigratingGlobally": globally,
    "MaxMigratingPerNode": per_node,
    "MaxMigratingPerNamespace": per_namespace,
    "MaxUnavailablePerWorkload": per_workload,
}


def allowed(replicas: int, value: int | str | None) -> int:
    """⌊replicas × percent⌋ or the number itself, at least 1 and at most `replicas`; 0 for a workload without replicas.

    >>> [allowed(6, value) for value in ("80%", "150%", 0, 7)]
    [4, 6, 1, 6]

    Without a value: a tenth of more than 10 replicas, 2 of 4 to 10, 1 of fewer.

    >>> [allowed(replicas, None) for replicas in (50, 10, 4, 3, 0)]
    [5, 2, 2, 1, 0]

    Source: Koordinator `GetMaxUnavailable` and `GetMaxMigrating`.
    """
    if isinstance(value, str):
        value = replicas * int(value.removesuffix("%")) // 100
    if value is None:
        value = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    return min(replicas, value or 1)


_EPSILON = 1e-9


class Rate(msgspec.Struct, frozen=True):
    """Tokens per second, and the most that there are."""

    tokens_per_second: float
    burst: int = 1

    def tokens(self, withdrawals: Iterable[float], now: float) -> float:
        """Tokens at time `now`, after one was taken at each of these times; full to begin with.

        >>> Rate(2 / 300).tokens([0.0], 75.0)
        0.5
        """
        tokens, last = float(self.burst), 0.0
        for instant in sorted(t for t in withdrawals if t <= now):
            tokens = min(self.burst, tokens + (instant - last) * self.tokens_per_second) - 1
            last = instant
        return min(float(self.burst), tokens + (now - last) * self.tokens_per_second)

    def refusal(self, withdrawals: Iterable[float], now: float) -> str:
        """The reason why no further pod may go; empty when one may."""
        if self.tokens(withdrawals, now) - 1 >= -_EPSILON:
            return ""
        return f"one pod in {duration.brief(1 / self.tokens_per_second)} may go, the last one went too lately"


def pace_refusal(
    args: MigrationControllerArgs,
    jobs: Collection[MigrationJob],
    *,
    pod: PodView,
    workload: Workload | None,
    now: float,
) -> str:
    """The reason why no pod of this workload or namespace may go yet; empty when one may. `jobs` are all there are."""
    uid = objects.controller_uid(pod)
    paces = [(of_namespace(args), {"namespace": pod.pod.namespace})]
    if uid and workload is not None:
        paces.append((of_workload(args, workload.replicas), {"controller": uid}))
    refusals = (rate.refusal(objects.evicted_at(jobs, **whose), now) for rate, whose in paces if rate is not None)
    return next((text for text in refusals if text), "")


def of_workload(args: MigrationControllerArgs, replicas: int) -> Rate | None:
    """The rate for pods of a workload; None when it is not limited."""
    limiter = args.object_limiters.get("workload")
    if limiter is None:
        return None
    value = limiter.max_migrating if limiter.max_migrating is not None else args.max_migrating_per_workload
    return _rate(limiter, allowed(replicas, value))


def of_namespace(args: MigrationControllerArgs) -> Rate | None:
    """The rate for pods of a namespace; None when it is not limited. A percentage of a namespace is none."""
    limiter = args.object_limiters.get("namespace")
    if limiter is None or not isinstance(limiter.max_migrating, int):
        return None
    return _rate(limiter, limiter.max_migrating)


def _rate(limiter: ObjectLimiter, count: int) -> Rate | None:
    span = duration.seconds(limiter.duration)
    return Rate(count / span, limiter.burst or 1) if span > 0 and count > 0 else None


class Waiting(msgspec.Struct, frozen=True):
    """A job that waits, with its pod, if that is there."""

    job: MigrationJob
    pod: PodView | None


def sort_waiting(waiting: Iterable[Waiting], begun: Mapping[str, int]) -> list[Waiting]:
    """Sort waiting jobs into the order in which they are judged. `begun`: jobs under way by the uid of their pods'
    controller.

    Four sorts one after the other, each keeping the order of the one before where it sees no difference; so the last
    one counts most.
    """
    return begun_first(together(by_pod(newest_first(waiting))), begun)


def newest_first(waiting: Iterable[Waiting]) -> list[Waiting]:
    """The youngest job first, in whole seconds."""
    return sorted(waiting, key=lambda entry: -int(times.parse_or_none(entry.job.metadata.creation_timestamp) or 0.0))


def by_pod(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Jobs without a pod first, then the pod that is most easily evicted."""
    return sorted(waiting, key=pod_key)


def pod_key(entry: Waiting) -> tuple[object, ...]:
    """Sort key of `by_pod`. Names are left out of it: of equal pods the younger job stays first."""
    return (True, *_BY_POD(entry.pod)[:-1]) if entry.pod else (False,)


_BY_POD = levels.sort_key(lambda _pod: None)


def together(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Pods of one batch Job gathered where the first of them stands: such a Job is hurt once, or not at all."""
    groups: dict[str, list[Waiting]] = {}
    for number, entry in enumerate(waiting):
        groups.setdefault(_batch_job(entry) or f"#{number}", []).append(entry)
    return [entry for group in groups.values() for entry in group]


def begun_first(waiting: Iterable[Waiting], begun: Mapping[str, int]) -> list[Waiting]:
    """Pods of batch Jobs that have most pods on the move already come first."""
    return sorted(waiting, key=lambda entry: -begun.get(_batch_job(entry), 0))


def _batch_job(entry: Waiting) -> str:
    owner = objects.controller(entry.pod) if entry.pod else None
    return owner.uid if owner and owner.kind == "Job" else ""


def count_begun(jobs: Iterable[MigrationJob], pods: Mapping[str, PodView]) -> Mapping[str, int]:
    """Jobs let through or running, by the uid of their pods' controller. `pods`: by uid."""
    begun = [job.pod.uid for job in jobs if not job.finished and (job.passed or not job.pending)]
    return Counter(objects.controller_uid(pods[uid]) for uid in begun if uid in pods)
