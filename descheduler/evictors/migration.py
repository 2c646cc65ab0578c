"""The evictor that asks for migration jobs: a pod goes when its turn comes, and when a place was reserved for it.

The plan of a cycle becomes jobs (`Migrations.ask`). Jobs are worked on between the cycles (`Migrations.work`), one
`Round` at a time: arbitration of those that wait, a step with those under way, removal of old ones. Whichever process
does it knows all it needs from the objects. They are read once at the beginning of a round; what is written is counted
at once, so that limits hold within a round too.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import structs

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.evictors.migration_api import Api, Cluster, Find, Finder
from descheduler.filters.default_evictor import Guards
from descheduler.framework import PodView, Refusal, View
from descheduler.migration import filters, objects, reconcile
from descheduler.migration.filters import Rate, Traffic, Waiting
from descheduler.migration.objects import MigrationJob, Reservation
from descheduler.migration.reconcile import ClusterState, Step
from descheduler.plan import Attempt, Outcome
from koordlite.kube.client import backoff
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.model import isolation, keys, times
from koordlite.model.wire import objects as wire

_KEPT_MOMENTS = 1000


class Progress(msgspec.Struct, frozen=True):
    """A step of a job in a round, for logs and events."""

    job: str
    pod: str
    """`namespace/name`."""
    reason: str
    """Its phase, or a word for what was done: `PassedArbitration`, `Waiting`, `Evicting`, `Removed`, `Failed`, …"""
    text: str = ""


class Pace(msgspec.Struct):
    """The pace of requests for evictions. A restart forgets it, which lets `burst` pods go sooner."""

    rate: Rate
    requests: list[float] = msgspec.field(default_factory=list)
    refusals: dict[str, tuple[int, float]] = msgspec.field(default_factory=dict)
    """Number of refusals in a row of a job's eviction, and until when it is not asked again, by uid."""
    rests: dict[str, tuple[str, float]] = msgspec.field(default_factory=dict)
    """Resource version after the last step, and the time of the next one, of jobs that wait for something, by uid."""

    @classmethod
    def of(cls, args: MigrationControllerArgs) -> Pace:
        """Build the pace from evictQPS and evictBurst."""
        return cls(Rate(float(args.evict_qps), args.evict_burst))

    def turn_seconds(self, job: MigrationJob, now: float) -> float:
        """Seconds that the job has to wait for its eviction; 0 when it need not."""
        _, until = self.refusals.get(job.metadata.uid, (0, now))
        missing = 1 - self.rate.tokens(self.requests, now)
        return max(until - now, missing / self.rate.tokens_per_second, 0.0)

    def rest(self, job: MigrationJob, seconds: float, now: float) -> None:
        """Leave the job alone for so long, or until somebody changes it."""
        self.rests[job.metadata.uid] = (job.metadata.resource_version, now + seconds)

    def resting(self, job: MigrationJob, now: float) -> bool:
        """The job waits, and nobody has changed it since its last step."""
        version, until = self.rests.get(job.metadata.uid, ("", now))
        return now < until and version == job.metadata.resource_version

    def take(self, now: float) -> None:
        """An eviction is asked for."""
        self.requests = [*self.requests[-_KEPT_MOMENTS:], now]

    def refuse(self, job: MigrationJob, asked_seconds: float | None, now: float) -> None:
        """The server refused: each further refusal makes the wait longer."""
        times_refused = self.refusals.get(job.metadata.uid, (0, now))[0] + 1
        pause = backoff.pause(times_refused, backoff.uniform, retry_after=asked_seconds)
        self.refusals[job.metadata.uid] = (times_refused, now + pause)


class Round:
    """A round at one moment."""

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
        self._exchanges: dict[str, str] = {}
        self._pods: dict[str, PodView] = {}
        self._traffic = Traffic()
        # What guards of single pods read beside the pod: the priority that a name stands for.
        named = args.priority_threshold is not None and bool(args.priority_threshold.name)
        classes = cluster.priority_classes() if named else {}
        self._guards = Guards(
            View(time=times.show(now), time_source="this machine's clock", nodes={}, priority_classes=classes),
            (args.evictor_args(),),
        )

    def run(self, jobs: Iterable[MigrationJob]) -> list[Progress]:
        """Everything that can be done now."""
        self._jobs = {job.name: job for job in jobs}
        events = list[Progress]()
        for job in [one for one in self._jobs.values() if objects.is_outlived(one, self._now)]:
            events += self._safely(self._remove(job), job.name)
        reservations = self._cluster.reservations()
        self._exchanges = reconcile.exchanges(
            self._jobs.values(), reservations, lambda job: not reconcile.same_pod(job, self._cluster.pod(job.pod))
        )
        for job in list(self._jobs.values()):
            events += self._safely(self._release(job, reservations), job.name)
        events += self._safely(self._arbitrate(), "")
        for job in list(self._jobs.values()):
            if job.finished or (job.pending and not job.passed and self._args.arbitration_args.enabled):
                continue
            if job.name in self._exchanges or not self._pace.resting(job, self._now):
                events += self._safely(self._advance(job, reservations), job.name)
        waiting = {job.metadata.uid for job in self._jobs.values() if not job.finished}
        self._pace.rests = {uid: pause for uid, pause in self._pace.rests.items() if uid in waiting}
        return events

    def _safely(self, work: Iterator[Progress], job: str) -> Iterator[Progress]:
        """Yield the work's reports, and at last what went wrong: a refusal, a server that does not answer, or a fault
        of the program, which costs this job and no other."""
        try:
            yield from work
        except ApiError as error:
            word = "ChangedMeanwhile" if error.status == HTTPStatus.CONFLICT else "Failed"
            yield Progress(job, "", word, str(error))
        except ApiUnreachable as error:
            yield Progress(job, "", "Failed", str(error))
        except Exception as error:  # noqa: BLE001 - as said
            yield Progress(job, "", "Failed", isolation.fault(error))

    def _remove(self, job: MigrationJob) -> Iterator[Progress]:
        if job.reservation:
            self._cluster.delete_reservation(job.reservation)
        self._cluster.delete_job(job)
        del self._jobs[job.name]
        yield Progress(job.name, job.pod.key, "Removed", "its time to be kept is over")

    def _release(self, job: MigrationJob, reservations: Mapping[str, Reservation]) -> Iterator[Progress]:
        """A job that failed keeps no place, and one that ended by another's place does not keep that of its own."""
        if not job.finished or not job.reservation:
            return
        own = {job.reservation} if job.status.phase == objects.FAILED else set()
        names = ({job.first_reservation} - {job.reservation}) | own
        for name in sorted(names - self._reservations_in_use()):
            place = reservations.get(name)
            if place is not None and place.bound is None:
                self._cluster.delete_reservation(name)
                yield Progress(job.name, job.pod.key, "ReservationReleased", f"{name} is not needed any more")

    def _reservations_in_use(self) -> set[str]:
        """Reservations of jobs that have not ended, after all exchanges."""
        jobs = (job for job in self._jobs.values() if not job.finished)
        return {self._exchanges.get(job.name) or job.reservation for job in jobs}

    def _arbitrate(self) -> Iterator[Progress]:
        """Let waiting jobs through, in their order, as long as the limits allow it."""
        waiting = [job for job in self._jobs.values() if job.pending and not job.passed and not job.spec.paused]
        if not waiting or not self._args.arbitration_args.enabled:
            return
        open_ = [job for job in self._jobs.values() if not job.finished]
        self._pods = {pod.uid: pod for pod in self._pods_of(open_)}
        self._traffic = Traffic.of(open_, self._pods.values(), arbitrating=True)
        by_key = {pod.key: pod for pod in self._pods.values()}
        by_job = [
            Waiting(job, self._pods.get(job.pod.uid) if job.pod.uid else by_key.get(job.pod.key)) for job in waiting
        ]
        begun = filters.count_begun(open_, self._pods)
        for entry in filters.sort_waiting(by_job, begun):
            yield from self._safely(self._rule(entry), entry.job.name)

    def _pods_of(self, jobs: list[MigrationJob]) -> Iterator[PodView]:
        """The pods of these jobs: one by one, or the whole namespace at once where many are asked for."""
        by_namespace: dict[str, dict[str, MigrationJob]] = {}
        for job in jobs:
            by_namespace.setdefault(job.pod.namespace, {})[job.pod.name] = job
        for namespace, named in by_namespace.items():
            refs = [job.pod for job in named.values()]
            for pod in self._cluster.pods(namespace, refs):
                if reconcile.same_pod(named[pod.metadata.name], pod):
                    yield objects.pod_view(pod)

    def _rule(self, entry: Waiting) -> Iterator[Progress]:
        job, pod = entry.job, entry.pod
        if reconcile.timed_out(job, self._now):
            yield from self._write(job, reconcile.step(job, ClusterState(now=self._now)).job)
            return
        if pod is not None:
            refusals = self._guards.refusals(pod)
            refusal = refusals[0] if refusals else filters.permanent(pod, self._find(pod), self._args)
            if refusal:
                yield from self._write(job, objects.failed(job, "ForbiddenMigratePod", refusal.text))
                return
            waits = filters.passing(pod, self._traffic, self._find(pod), self._args)
            if waits:
                yield Progress(job.name, job.pod.key, "Waiting", f"{waits.reason}: {waits.text}")
                return
        notes = {**job.annotations, keys.PASSED_ARBITRATION: "true"}
        passed = structs.replace(job, metadata=structs.replace(job.metadata, annotations=notes))
        self._jobs[job.name] = self._cluster.write_job(job, passed)
        self._traffic.add(job, pod)
        yield Progress(job.name, job.pod.key, "PassedArbitration", "its turn has come")

    def _advance(self, job: MigrationJob, reservations: Mapping[str, Reservation]) -> Iterator[Progress]:
        """Take a step with a job."""
        before = job
        if job.name in self._exchanges:
            job = objects.with_reservation(job, self._exchanges[job.name])
            yield Progress(job.name, job.pod.key, "ReservationExchanged", f"it counts on {job.reservation} now")
        state = self._state(job, reservations)
        step = reconcile.step(job, state)
        if step.create is not None:
            self._cluster.create_reservation(step.create)
        yield from self._write(before, step.job)
        # Its pod and its place are looked at every few seconds, also where its turn is minutes away.
        self._pace.rest(self._jobs[job.name], min(step.again_seconds, reconcile.AGAIN_SECONDS), self._now)
        if step.evict:
            yield from self._evict(step, state)
        if step.remove and step.remove not in self._reservations_in_use():
            self._cluster.delete_reservation(step.remove)

    def _state(self, job: MigrationJob, reservations: Mapping[str, Reservation]) -> ClusterState:
        pod = self._cluster.pod(job.pod)
        reserving = not job.reservation and (job.spec.mode or self._args.default_job_mode) != "EvictDirectly"
        # Of a pod that waits it is read after the pod: from an older one it would seem to have its node without it.
        place = reservations.get(job.reservation) if not job.room_on else None
        if place is None and job.reservation:
            place = self._cluster.reservation(job.reservation)
        bound, limited = place.bound if place is not None else None, ""
        if pod is not None and not job.room_on and objects.condition(job, "Eviction") is None:
            view, jobs = objects.pod_view(pod), self._jobs.values()
            limited = filters.pace_refusal(self._args, jobs, pod=view, workload=self._find(view), now=self._now)
        return ClusterState(
            now=self._now,
            pod=pod,
            pod_raw=self._cluster.whole_pod(job.pod) if reserving and pod is not None else None,
            reservation=place,
            bound_pod=self._cluster.pod(bound) if bound is not None else None,
            others=self._standing_of_makers(job) if job.room_on else self._standing_of_others(job, reservations),
            limited=limited,
            turn_seconds=self._pace.turn_seconds(job, self._now),
            default_mode=self._args.default_job_mode or "ReservationFirst",
            drop_claims=self._drop_claims,
        )

    def _standing_of_makers(self, job: MigrationJob) -> Literal["", "lost"]:
        """ "lost" when one of those that are to make room for the job's pod cannot any more: it has no job, or failed
        before its pod went."""
        makers = {
            one.pod.uid
            for one in self._jobs.values()
            if one.waiting == job.name
            and (one.status.phase not in (objects.FAILED, objects.ABORTED) or objects.holds(one, "Eviction"))
        }
        return "" if job.held_first <= makers else "lost"

    def _standing_of_others(
        self, job: MigrationJob, reservations: Mapping[str, Reservation]
    ) -> Literal["", "wait", "lost"]:
        """Standing of the pods that must have a place before the job's goes, the one that waits for its room among
        them. A job that evicts directly needs none."""
        if job.waiting:
            of_waiting = self._jobs.get(job.waiting)
            pod = self._cluster.pod(of_waiting.pod) if of_waiting is not None and not of_waiting.finished else None
            # Asked now, since its own job may rest, or come later in this round.
            if of_waiting is None or pod is None or pod.spec.node_name or not reconcile.same_pod(of_waiting, pod):
                return "lost"
            place = reservations.get(of_waiting.reservation)
            # A place that it has by now needs no room any more, and room that others do not make is none.
            if self._standing_of_makers(of_waiting) or (place is not None and place.scheduled):
                return "lost"
            if place is None or not place.keeps_room:
                return "wait"
        uids = job.held_first - {job.pod.uid}
        # Of an earlier set jobs may still be kept: the last one of a pod is of this set.
        in_order = sorted(
            self._jobs.values(), key=lambda one: (one.metadata.creation_timestamp or "", not one.finished)
        )
        several = list({one.pod.uid: one for one in in_order if one.pod.uid in uids}.values())
        if len(several) < len(uids) or any(one.status.phase in (objects.FAILED, objects.ABORTED) for one in several):
            return "lost"
        default = self._args.default_job_mode
        have_places = (
            one.finished or (one.spec.mode or default) == "EvictDirectly" or objects.holds(one, "ReservationScheduled")
            for one in several
        )
        return "" if all(have_places) else "wait"

    def _write(self, before: MigrationJob, after: MigrationJob) -> Iterator[Progress]:
        if after == before:
            return
        self._jobs[after.name] = self._cluster.write_job(before, after)
        status = after.status
        yield Progress(after.name, after.pod.key, status.reason or status.status or status.phase, status.message)

    def _evict(self, step: Step, state: ClusterState) -> Iterator[Progress]:
        """Ask for the eviction. What the server refuses is noted on the job; without an answer nobody knows."""
        job, pod = self._jobs[step.job.name], state.pod
        assert pod is not None, "a step that evicts has seen the pod"
        self._pace.take(self._now)
        try:
            options = job.spec.delete_options or {}
            way: Mapping[str, Callable[[], None]] = {
                "Eviction": lambda: self._cluster.evict(job.pod, options),
                "Delete": lambda: self._cluster.delete_pod(job.pod, options),
                "SoftEviction": lambda: self._ask_softly(job, pod),
            }
            policies = (
                labels.get(keys.EVICT_POLICY) for meta in (pod.metadata, job.metadata) if (labels := meta.labels)
            )
            policy = next((word for word in policies if word), self._args.eviction_policy)
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


class Migrations:
    """Jobs of one profile's MigrationController.

    `creator` tells them from those of others. `adopts`: jobs without a creator, which people make, are ours as well.
    `drop_claims`: reservations leave out volumes with claims (Koordinator's gate DisablePVCReservation).
    """

    def __init__(
        self,
        api: Api,
        args: MigrationControllerArgs,
        *,
        creator: str,
        adopts: bool = True,
        drop_claims: bool = False,
    ) -> None:
        self._api, self._drop_claims = api, drop_claims
        self._cluster = Cluster(api)
        self.args, self.creator, self._adopts = args, creator, adopts
        self._pace = Pace.of(args)
        self.open = 0
        """Jobs that had not ended when they were last looked at."""

    def ask(self, outcomes: Iterable[Outcome], view: View, now: float) -> tuple[Attempt, ...]:
        """Make a job for each pod of the plan that may have one. ApiError and ApiUnreachable when the jobs that there
        are cannot be read; what goes wrong with a single job is in its attempt."""
        leaving = list(outcomes)
        if not leaving:
            return ()
        jobs = self._cluster.jobs()
        desk = _Desk(self, self._cluster, Finder(self._api), jobs, view, now)
        return tuple(desk.attempts(leaving))

    def work(self, now: float) -> list[Progress]:
        """Run a round: let waiting jobs through, take a step with those under way, remove what has outlived its use.

        ApiError and ApiUnreachable when the jobs cannot be read; what goes wrong with a single job is reported, and
        does not keep the others."""
        find = Finder(self._api)
        one = Round(self._cluster, self.args, self._pace, find, now, drop_claims=self._drop_claims)
        ours = [job for job in self._cluster.jobs() if objects.ours(job, self.creator, adopts=self._adopts)]
        self.open = sum(not job.finished for job in ours)
        return one.run(ours) if ours else []


class _Desk(msgspec.Struct):
    """Makes jobs for the pods of one plan, one after the other."""

    of: Migrations
    cluster: Cluster
    find: Finder
    jobs: list[MigrationJob]
    view: View
    now: float
    rooms: dict[tuple[str, ...], str] = msgspec.field(default_factory=dict)
    """The job that holds the place of a pod that waits, by uids of the pods that make room."""

    def attempts(self, outcomes: list[Outcome]) -> Iterator[Attempt]:
        pods = {pod.uid: pod for pod in self.view.pods()}
        traffic = Traffic.of(self.jobs, (pods[job.pod.uid] for job in self.jobs if job.pod.uid in pods))
        deferred: dict[tuple[str, ...], str] = {}
        for outcome in outcomes:
            if outcome.together and outcome.together not in deferred:
                several = [one for one in outcomes if one.together == outcome.together]
                scratch = Traffic.of(self.jobs, (pods[job.pod.uid] for job in self.jobs if job.pod.uid in pods))
                deferred[outcome.together] = self._deferral(several, scratch) or self._keep_room(outcome, scratch)
            if deferred.get(outcome.together):
                text = deferred[outcome.together]
                yield Attempt(outcome.pod.key, "Deferred", self._job(outcome), uid=outcome.pod.uid, text=text)
                continue
            attempt = self._attempt(outcome, traffic)
            if attempt.result == "JobCreated":
                # The job that was just made, to be counted with those there are.
                self.jobs.append(msgspec.convert(attempt.request, MigrationJob))
                traffic.add(self.jobs[-1], outcome.pod)
            yield attempt

    def _deferral(self, outcomes: list[Outcome], traffic: Traffic) -> str:
        """The reason why one of the pods that go together has to wait, and so all of them; empty when none has."""
        for outcome in outcomes:
            try:
                refusal = self._refusal(outcome, traffic)
            except (ApiError, ApiUnreachable) as error:
                return f"{outcome.pod.key}: {error}"
            if refusal is not None:
                return f"OthersStay: {outcome.pod.key} waits: {refusal.reason}: {refusal.text}"
            traffic.add(msgspec.convert(self._job(outcome), MigrationJob), outcome.pod)
        return ""

    def _keep_room(self, outcome: Outcome, traffic: Traffic) -> str:
        """Make the job that holds the place of the pod that waits. Reason why it cannot be held, and so all stay."""
        if outcome.waiting is None or self.of.args.default_job_mode == "EvictDirectly":
            return ""
        pod, node = outcome.waiting
        if exists := filters.job_exists(pod, traffic):
            return f"MigrationJobExists: {pod.key}, which waits for room: {exists}"
        name = self.rooms[outcome.together] = str(uuid.uuid4())
        job = objects.place_of_waiting(
            pod, node, outcome.together, creator=self.of.creator, args=self.of.args, name=name
        )
        if self.of.args.dry_run:
            return ""
        try:
            self.cluster.create_job(job)
        except (ApiError, ApiUnreachable) as error:
            return f"the place of {pod.key} on {node} cannot be held: {error}"
        self.jobs.append(msgspec.convert(job, MigrationJob))
        return ""

    def _job(self, outcome: Outcome) -> dict[str, Any]:
        return objects.job(
            outcome.pod,
            name=str(uuid.uuid4()),
            reason=outcome.main.reason,
            trigger=outcome.main.plugin,
            creator=self.of.creator,
            args=self.of.args,
            held_first=outcome.held_first,
            waiting=self.rooms.get(outcome.together, ""),
        )

    def _attempt(self, outcome: Outcome, traffic: Traffic) -> Attempt:
        pod = outcome.pod
        attempt = Attempt(pod.key, "Deferred", self._job(outcome), uid=pod.uid)
        if not pod.object.metadata.uid:
            return msgspec.structs.replace(attempt, result="Failed", text="the pod has no uid: it could be another one")
        try:
            refusal = self._refusal(outcome, traffic)
            if refusal is not None:
                return msgspec.structs.replace(attempt, text=f"{refusal.reason}: {refusal.text}")
            if self.of.args.dry_run:
                return msgspec.structs.replace(attempt, result="WouldEvict")
            self.cluster.create_job(attempt.request)
            text = "" if attempt.request["spec"]["mode"] == "EvictDirectly" else "a place is reserved for it first"
            return msgspec.structs.replace(attempt, result="JobCreated", tries=1, text=text)
        except ApiError as error:
            return msgspec.structs.replace(attempt, result="Failed", text=error.message, tries=1)
        except ApiUnreachable as error:
            return msgspec.structs.replace(attempt, result="Failed", text=str(error), tries=1)

    def _refusal(self, outcome: Outcome, traffic: Traffic) -> Refusal | None:
        pod, args = outcome.pod, self.of.args
        exists = filters.job_exists(pod, traffic)
        if exists:
            return Refusal("MigrationJobExists", exists)
        workload = self.find(pod)
        refusal = filters.permanent(pod, workload, args) or filters.passing(pod, traffic, workload, args)
        if refusal is not None:
            return refusal
        text = filters.pace_refusal(args, self.jobs, pod=pod, workload=workload, now=self.now)
        return Refusal("ObjectLimiter", text) if text else None
