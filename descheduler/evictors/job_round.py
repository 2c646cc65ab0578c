"""One round over all migration jobs: arbitration of those that wait, a step with those under way, removal of old ones.

The objects are read once at the beginning; what is written is counted at once, so that limits hold within a round too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from msgspec import structs

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.evictors.job_rate import Pace
from descheduler.evictors.migration_api import Cluster
from descheduler.evictors.workloads import Find
from descheduler.filters.default_evictor import Guards
from descheduler.framework import PodView
from descheduler.migration import arbitration, filters, job_requests, object_limiter, objects, pods, progress, reconcile
from descheduler.migration.arbitration import Waiting
from descheduler.migration.filters import Traffic
from descheduler.migration.objects import MigrationJob, Reservation
from descheduler.migration.reconcile import Seen, Step
from descheduler.picture.cluster import View
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.model import keys, times
from koordlite.model.wire import objects as wire

JobEvent = tuple[str, str, str, str]
"""Job, pod, word, sentence."""


class Round:
    """One round at one moment."""

    def __init__(
        self,
        cluster: Cluster,
        args: MigrationControllerArgs,
        pace: Pace,
        find: Find,
        now: float,
        *,
        drop_claims: bool = False,
    ) -> None:
        """`drop_claims`: reservations leave out volumes with claims."""
        self._drop_claims = drop_claims
        self._cluster, self._args, self._pace, self._find, self._now = cluster, args, pace, find, now
        self._jobs: dict[str, MigrationJob] = {}
        self._pods: dict[str, PodView] = {}
        self._traffic = Traffic()
        # What guards of single pods read beside the pod: the priority that a name stands for.
        named = args.priority_threshold is not None and bool(args.priority_threshold.name)
        classes = cluster.priority_classes() if named else {}
        self._guards = Guards(
            View(time=times.show(now), time_source="this machine's clock", nodes={}, priority_classes=classes),
            (args.evictor_args(),),
        )

    def run(self, jobs: Iterable[MigrationJob]) -> list[JobEvent]:
        """Everything that can be done now."""
        self._jobs = {job.name: job for job in jobs}
        events = [*self._safely(self._swept(), "")]
        held = self._cluster.reservations()
        for job in list(self._jobs.values()):
            events += self._safely(self._released(job, held), job.name)
        events += self._safely(self._arbitrated(), "")
        for job in list(self._jobs.values()):
            if job.finished or (job.pending and not job.passed and self._args.arbitration_args.enabled):
                continue
            events += self._safely(self._advanced(job, held), job.name)
        return events

    def _safely(self, work: Iterator[JobEvent], job: str) -> Iterator[JobEvent]:
        """What is reported, and at last what went wrong: a refusal, or a server that does not answer."""
        try:
            yield from work
        except ApiError as error:
            word = "ChangedMeanwhile" if error.status == HTTPStatus.CONFLICT else "Failed"
            yield job, "", word, str(error)
        except ApiUnreachable as error:
            yield job, "", "Failed", str(error)

    def _swept(self) -> Iterator[JobEvent]:
        for job in [one for one in self._jobs.values() if job_requests.outlived(one, self._now)]:
            yield from self._safely(self._removed(job), job.name)

    def _removed(self, job: MigrationJob) -> Iterator[JobEvent]:
        if job.reservation:
            self._cluster.delete_reservation(job.reservation)
        self._cluster.delete_job(job)
        del self._jobs[job.name]
        yield job.name, job.pod.key, "Removed", "its time to be kept is over"

    def _released(self, job: MigrationJob, held: Mapping[str, Reservation]) -> Iterator[JobEvent]:
        """A job that failed keeps no place."""
        place = held.get(job.reservation) if job.status.phase == objects.FAILED and job.reservation else None
        if place is not None and place.bound is None:
            self._cluster.delete_reservation(job.reservation)
            yield job.name, job.pod.key, "ReservationReleased", f"{job.reservation} is not needed any more"

    def _arbitrated(self) -> Iterator[JobEvent]:
        """Let waiting jobs through, in their order, as long as the limits allow it."""
        waiting = [job for job in self._jobs.values() if job.pending and not job.passed and not job.spec.paused]
        if not waiting or not self._args.arbitration_args.enabled:
            return
        open_ = [job for job in self._jobs.values() if not job.finished]
        self._pods = {pod.uid: pod for pod in self._pods_of(open_)}
        self._traffic = Traffic.of(open_, self._pods.values(), arbitrating=True)
        by_job = [Waiting(job, self._pods.get(job.pod.uid) or self._pod_of_no_uid(job)) for job in waiting]
        begun = arbitration.count_begun(open_, self._pods)
        for entry in arbitration.ordered(by_job, begun):
            yield from self._safely(self._ruled(entry), entry.job.name)

    def _pods_of(self, jobs: list[MigrationJob]) -> Iterator[PodView]:
        """The pods of these jobs: one by one, or the whole namespace at once where many are asked for."""
        by_namespace: dict[str, dict[str, MigrationJob]] = {}
        for job in jobs:
            by_namespace.setdefault(job.pod.namespace, {})[job.pod.name] = job
        for namespace, named in by_namespace.items():
            refs = [job.pod for job in named.values()]
            for found in self._cluster.pods(namespace, refs):
                if reconcile.same_pod(named[found.metadata.name], found):
                    yield pods.view(found)

    def _pod_of_no_uid(self, job: MigrationJob) -> PodView | None:
        return next((pod for pod in self._pods.values() if not job.pod.uid and pod.key == job.pod.key), None)

    def _ruled(self, entry: Waiting) -> Iterator[JobEvent]:
        job, pod = entry.job, entry.pod
        if reconcile.timed_out(job, self._now):
            yield from self._write(job, reconcile.step(job, Seen(now=self._now)).job)
            return
        refusal = self._permanent(pod) if pod is not None else None
        if refusal:
            yield from self._write(job, progress.failed(job, "ForbiddenMigratePod", refusal))
            return
        waits = self._passing(pod) if pod is not None else ""
        if waits:
            yield job.name, job.pod.key, "Waiting", waits
            return
        notes = {**job.annotations, keys.PASSED_ARBITRATION: "true"}
        passed = structs.replace(job, metadata=structs.replace(job.metadata, annotations=notes))
        self._jobs[job.name] = self._cluster.write_job(job, passed)
        self._traffic.add(job, pod)
        yield job.name, job.pod.key, "PassedArbitration", "its turn has come"

    def _permanent(self, pod: PodView) -> str:
        refusals = self._guards.refusals(pod)
        if refusals:
            return refusals[0].text
        refusal = filters.permanent(pod, self._find(pod), self._args)
        return refusal.text if refusal else ""

    def _passing(self, pod: PodView) -> str:
        refusal = filters.passing(pod, self._traffic, self._find(pod), self._args)
        return f"{refusal.reason}: {refusal.text}" if refusal else ""

    def _advanced(self, job: MigrationJob, held: Mapping[str, Reservation]) -> Iterator[JobEvent]:
        """One step with a job."""
        seen = self._seen(job, held)
        step = reconcile.step(job, seen)
        if step.create is not None:
            self._cluster.create_reservation(step.create)
        yield from self._write(job, step.job)
        if step.evict:
            yield from self._evicted(step, seen)
        if step.remove:
            self._cluster.delete_reservation(step.remove)

    def _seen(self, job: MigrationJob, held: Mapping[str, Reservation]) -> Seen:
        pod = self._cluster.pod(job.pod)
        reserving = not job.reservation and (job.spec.mode or self._args.default_job_mode) != "EvictDirectly"
        place = (held.get(job.reservation) or self._cluster.reservation(job.reservation)) if job.reservation else None
        bound = place.bound if place is not None else None
        return Seen(
            now=self._now,
            pod=pod,
            pod_raw=self._cluster.whole_pod(job.pod) if reserving and pod is not None else None,
            reservation=place,
            bound_pod=self._cluster.pod(bound) if bound is not None else None,
            limited=self._limited(job, pod),
            turn_seconds=self._pace.turn_seconds(job, self._now),
            default_mode=self._args.default_job_mode or "ReservationFirst",
            drop_claims=self._drop_claims,
        )

    def _limited(self, job: MigrationJob, pod: wire.PodObject | None) -> str:
        if pod is None or progress.condition(job, "Eviction") is not None:
            return ""
        view = pods.view(pod)
        return object_limiter.refusal(
            self._args, self._jobs.values(), pod=view, workload=self._find(view), now=self._now
        )

    def _write(self, before: MigrationJob, after: MigrationJob) -> Iterator[JobEvent]:
        if after == before:
            return
        self._jobs[after.name] = self._cluster.write_job(before, after)
        status = after.status
        yield after.name, after.pod.key, status.reason or status.status or status.phase, status.message

    def _evicted(self, step: Step, seen: Seen) -> Iterator[JobEvent]:
        """Ask for the eviction. What the server refuses is noted on the job; without an answer nobody knows."""
        job, pod = self._jobs[step.job.name], seen.pod
        assert pod is not None, "a step that evicts has seen the pod"
        self._pace.take(self._now)
        try:
            options = job.spec.delete_options or {}
            way: Mapping[str, Callable[[], None]] = {
                "Eviction": lambda: self._cluster.evict(job.pod, options),
                "Delete": lambda: self._cluster.delete_pod(job.pod, options),
                "SoftEviction": lambda: self._ask_softly(job, pod),
            }
            wanted = (labels.get(keys.EVICT_POLICY) for meta in (pod.metadata, job.metadata) if (labels := meta.labels))
            policy = next((word for word in wanted if word), self._args.eviction_policy)
            way.get(policy, way[self._args.eviction_policy])()
        except ApiError as error:
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT) or error.other_uid:
                return  # Gone, or another one: the next round sees it.
            self._pace.refuse(job, error.retry_after_seconds, self._now)
            yield from self._write(job, reconcile.eviction_refused(job, str(error), now=self._now))

    def _ask_softly(self, job: MigrationJob, pod: wire.PodObject) -> None:
        """Note on the pod that it should go; whoever watches for that deletes it."""
        if keys.SOFT_EVICTION in (pod.metadata.annotations or {}):
            return
        request: dict[str, Any] = {
            "timestamp": times.show(self._now),
            "deleteOptions": job.spec.delete_options,
            "initiator": job.annotations.get(keys.EVICT_TRIGGER, ""),
            "reason": job.reason,
        }
        text = json.dumps({key: value for key, value in request.items() if value})
        self._cluster.annotate_pod(job.pod, {keys.SOFT_EVICTION: text})
