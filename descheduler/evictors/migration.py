"""The evictor that asks for migration jobs: a pod goes when its turn comes, and when a place was reserved for it.

The plan of a cycle becomes jobs (`ask`). Jobs are worked on between the cycles (`work`), a round at a time; whichever
process does it knows all it needs from the objects.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

import msgspec

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.evictors.job_rate import Pace
from descheduler.evictors.job_round import Round
from descheduler.evictors.migration_api import Api, Cluster
from descheduler.evictors.workloads import Finder
from descheduler.framework import Refusal, View
from descheduler.migration import filters, job_requests, object_limiter
from descheduler.migration.filters import Traffic
from descheduler.migration.objects import MigrationJob
from descheduler.plan import Attempt, Outcome
from koordlite.kube.client.answers import ApiError, ApiUnreachable


class Progress(msgspec.Struct, frozen=True):
    """What became of one job in a round, for logs and events."""

    job: str
    pod: str
    """`namespace/name`."""
    reason: str
    """Its phase, or a word for what was done: `PassedArbitration`, `Waiting`, `Evicting`, `Removed`, `Failed`, …"""
    text: str = ""


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
        self._args = args
        self._creator, self._adopts = creator, adopts
        self._pace = Pace.of(args)
        self.open = 0
        """Jobs that had not ended when they were last looked at."""

    def ask(self, outcomes: Iterable[Outcome], view: View, now: float) -> tuple[Attempt, ...]:
        """Make a job for each pod of the plan that may have one. ApiError and ApiUnreachable when the jobs that there
        are cannot be read; what goes wrong with a single job is in its attempt."""
        asked = list(outcomes)
        if not asked:
            return ()
        jobs = self._cluster.jobs()
        desk = _Desk(self, self._cluster, Finder(self._api), jobs, view, now)
        return tuple(desk.attempts(asked))

    def work(self, now: float) -> list[Progress]:
        """One round: let waiting jobs through, take a step with those under way, remove what has outlived its use.

        ApiError and ApiUnreachable when the jobs cannot be read; what goes wrong with a single job is reported, and
        does not keep the others."""
        find = Finder(self._api)
        one = Round(self._cluster, self._args, self._pace, find, now, drop_claims=self._drop_claims)
        ours = [job for job in self._cluster.jobs() if job_requests.ours(job, self._creator, adopts=self._adopts)]
        self.open = sum(not job.finished for job in ours)
        return [Progress(*entry) for entry in one.run(ours)] if ours else []

    @property
    def args(self) -> MigrationControllerArgs:
        """The profile's arguments."""
        return self._args

    @property
    def creator(self) -> str:
        """Who works on the jobs."""
        return self._creator


class _Desk(msgspec.Struct):
    """Where the pods of one plan ask for jobs, one after the other."""

    of: Migrations
    cluster: Cluster
    find: Finder
    jobs: list[MigrationJob]
    view: View
    now: float

    def attempts(self, outcomes: list[Outcome]) -> Iterator[Attempt]:
        known = {pod.uid: pod for pod in self.view.pods()}
        traffic = Traffic.of(self.jobs, (known[job.pod.uid] for job in self.jobs if job.pod.uid in known))
        for outcome in outcomes:
            attempt = self._attempt(outcome, traffic)
            if attempt.result == "JobCreated":
                # The job that was just made, to be counted with those there are.
                self.jobs.append(msgspec.convert(attempt.request, MigrationJob))
                traffic.add(self.jobs[-1], outcome.pod)
            yield attempt

    def _attempt(self, outcome: Outcome, traffic: Traffic) -> Attempt:
        pod, found = outcome.pod, outcome.main
        wanted = job_requests.job(
            pod,
            name=str(uuid.uuid4()),
            reason=found.reason,
            trigger=found.plugin,
            creator=self.of.creator,
            args=self.of.args,
        )
        attempt = Attempt(pod.key, "Deferred", wanted, uid=pod.uid)
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
        text = object_limiter.refusal(args, self.jobs, pod=pod, workload=workload, now=self.now)
        return Refusal("ObjectLimiter", text) if text else None
