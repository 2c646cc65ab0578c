"""Carries plans out: pods of profiles with MigrationController get jobs, the others are asked for at once.

Jobs are worked on between the cycles, by a thread of its own, for as long as this process leads. One that has lost the
lease meanwhile sends nothing more.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.evictors import eviction_api, eviction_requests, marks
from descheduler.evictors.eviction_api import Wait
from descheduler.evictors.migration import Migrations, Progress
from descheduler.evictors.migration_api import Api, Cluster
from descheduler.framework import View
from descheduler.history.past_evictions import Requests
from descheduler.migration import objects
from descheduler.plan import Attempt, EvictionPlan, Outcome, Setup
from koordlite.kube.client.answers import Answer, ApiError, ApiUnreachable
from koordlite.kube.client.paging import Page
from koordlite.model import duration
from koordlite.threads import Worker


class LeaderApi:
    """An API server that is asked only while this process leads."""

    def __init__(self, api: Api, leads: Callable[[], bool]) -> None:
        self._api, self._leads = api, leads

    def request(self, method: str, path: str, **how: Any) -> Answer:
        """Ask, or ApiUnreachable with ECANCELED when another process may be the leader."""
        self._check(path)
        return self._api.request(method, path, **how)

    def collect(self, path: str, query: Any = ()) -> Page:
        """A whole list, with the same condition."""
        self._check(path)
        return self._api.collect(path, query)

    def _check(self, path: str) -> None:
        if not self._leads():
            raise ApiUnreachable(errno.ECANCELED, "not the leader any more: nothing was asked", path)


def waiting(wait: Callable[[float], bool], leads: Callable[[], bool]) -> Callable[[float], bool]:
    """Waits that a lost lease ends too, within a second."""

    def pass_time(seconds: float) -> bool:
        remaining = seconds
        while remaining > 0:
            if not leads() or wait(min(1.0, remaining)):
                return True
            remaining -= 1.0
        return False

    return pass_time


IDLE_SECONDS = 10.0
"""Time between two looks for a job that someone else made, while there is none."""
_FAILED_SECONDS = 10.0
WORK_SECONDS = 1800.0
"""A round takes less, also where each of many jobs waits for a slow server."""
_SHORTEST_SECONDS = 0.1
_STOP_SECONDS = 30.0

Rules = Mapping[str, MigrationControllerArgs]
"""Arguments by profile."""


class PlanExecutor:
    """`loop.Evict`, and the work on jobs that comes after it."""

    def __init__(
        self,
        api: Api,
        wait: Wait,
        *,
        wall: Callable[[], float],
        tell: Callable[[Progress], None],
        rules: Rules,
        stopped: Callable[[], bool] = lambda: False,
        leads: Callable[[], bool] = lambda: True,
        drop_claims: bool = False,
    ) -> None:
        """`rules` are those of the policy at the start: jobs of the time before wait to be worked on. `stopped` says
        that the process is to end: no further eviction is asked for. `drop_claims` is of the reservations."""
        self._api, self._wait, self._wall, self._tell, self._leads = api, wait, wall, tell, leads
        self._stopping = stopped
        self._drop_claims = drop_claims
        self._controllers: dict[str, Migrations] = {}
        self._lock = threading.Lock()
        self._woken, self._stopped = threading.Event(), False
        self._thread: Worker | None = None
        self._requests: Requests = {}
        self._no_requests: ApiError | ApiUnreachable | None = None
        """Error for which EvictionRequests cannot be read."""
        self._follow(rules)

    def __call__(self, plan: EvictionPlan) -> tuple[Attempt, ...]:
        """Carry the plan out; attempts come in the plan's order."""
        closed = marks.close(plan, self._api, self._tell)
        with self._lock:
            self._follow(plan.migration)
            by_uid = {attempt.uid: attempt for attempt in self._job_attempts(plan)}
        self._woken.set()
        eviction_requests.withdraw(plan, self._requests, self._api, self._tell)
        direct = [outcome for outcome in plan.evict if outcome.profile not in plan.migration]
        by_uid |= {outcome.pod.uid: attempt for outcome in direct if (attempt := self._request(outcome, plan))}
        at_once = tuple(outcome for outcome in direct if outcome.pod.uid not in by_uid)
        evictions = eviction_api.evict(
            msgspec.structs.replace(plan, evict=at_once), self._api, self._wait, stopped=self._stopping
        )
        by_uid |= {attempt.uid: attempt for attempt in evictions}
        attempts = tuple(by_uid[outcome.pod.uid] for outcome in plan.evict if outcome.pod.uid in by_uid)
        marks.settle(closed, plan, attempts, self._api, self._tell)
        marks.write_costs(plan, self._api, self._tell, stopped=self._stopping)
        return attempts

    def _follow(self, rules: Rules) -> None:
        """Controllers for the profiles of the policy as it is; the first one takes care of jobs that people make."""
        if {name: one.args for name, one in self._controllers.items()} == dict(rules):
            return
        self._controllers = {
            name: Migrations(
                self._api,
                args,
                creator=objects.creator(name),
                adopts=number == 0,
                drop_claims=self._drop_claims,
            )
            for number, (name, args) in enumerate(rules.items())
        }

    def _job_attempts(self, plan: EvictionPlan) -> Iterator[Attempt]:
        for name, controller in self._controllers.items():
            outcomes = [outcome for outcome in plan.evict if outcome.profile == name]
            try:
                yield from controller.ask(outcomes, plan.view, self._wall())
            except (ApiError, ApiUnreachable) as error:
                yield from (
                    Attempt(outcome.pod.key, "Failed", {}, text=str(error), uid=outcome.pod.uid) for outcome in outcomes
                )

    def requests(self, setup: Setup, view: View) -> Requests:
        """Standing of the EvictionRequests, by uid of their pods; empty when that cannot be read. Then no pod is
        asked."""
        self._requests, self._no_requests = {}, None
        if setup.eviction_requests.mode != "off" and self._leads():
            try:
                self._requests = eviction_requests.read(self._api, view, setup.eviction_requests, self._tell)
            except (ApiError, ApiUnreachable) as error:
                self._no_requests = error
        return self._requests

    def _request(self, outcome: Outcome, plan: EvictionPlan) -> Attempt | None:
        """Ask for a pod by an EvictionRequest; None when the Eviction API is to be asked. A pod whose request is there
        already has refused."""
        settings, pod = plan.eviction_requests, outcome.pod
        if settings.mode != "on" or not pod.asks_first or pod.uid in self._requests:
            return None
        unserved = isinstance(self._no_requests, ApiError) and self._no_requests.status == HTTPStatus.NOT_FOUND
        if unserved and settings.fallback:
            return None
        if self._no_requests is not None or self._stopping():
            text = "the run was stopped before it was asked for"
            if self._no_requests is not None:
                text = f"EvictionRequests cannot be read: {self._no_requests}"
            if unserved:
                text = f"{eviction_requests.VERSION} is not served, and fallback is false"
            return Attempt(pod.key, "NotTried", eviction_requests.request(pod), text=text, uid=pod.uid)
        return eviction_requests.ask(outcome, self._api)

    def moving(self) -> Mapping[str, str]:
        """Standing of the jobs that have not ended, by uid of their pods. Empty, and reported, when that cannot be
        read: then they are deferred."""
        if not self._controllers:
            return {}
        try:
            jobs = Cluster(self._api).jobs()
        except (ApiError, ApiUnreachable) as error:
            self._tell(Progress("", "", "Failed", f"migration jobs cannot be read: {error}"))
            return {}
        return {job.pod.uid: objects.standing(job) for job in jobs if not job.finished and job.pod.uid}

    def work(self) -> float:
        """Run a round of every controller; seconds until the next one is due. What went wrong is reported. Nothing is
        asked for while another process leads."""
        pause = IDLE_SECONDS
        if not self._leads():
            return pause
        with self._lock:
            for name, controller in self._controllers.items():
                try:
                    steps = controller.work(self._wall())
                except (ApiError, ApiUnreachable) as error:
                    self._tell(Progress("", "", "Failed", f"jobs of profile {name} cannot be read: {error}"))
                    pause = min(pause, _FAILED_SECONDS)
                    continue
                for progress in steps:
                    self._tell(progress)
                if controller.open:
                    interval = duration.seconds(controller.args.arbitration_args.interval)
                    pause = min(pause, max(interval, _SHORTEST_SECONDS))
        return pause

    def settle(self) -> None:
        """Work until no job is open, or until stopped: for a run of one cycle."""
        while self._controllers:
            pause = self.work()
            if not any(one.open for one in self._controllers.values()) or self._wait(pause):
                return

    def start(self) -> None:
        """Work in a thread until `stop`."""
        self._thread = Worker("migration", self._run)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the request that is under way."""
        self._stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopped:
            pause = self.work()
            if self._thread is not None:
                self._thread.beat(pause + WORK_SECONDS)
            self._woken.wait(pause)
            self._woken.clear()
