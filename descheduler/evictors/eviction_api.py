"""The evictor that asks the API server: one Eviction a pod, several at a time, none of them blind.

The pod's uid is a precondition, so that a pod of the same name created again is never the victim. A refusal that names
a time to come back is asked again then, within bounds. Disruption budgets stay the server's business: what it refuses
because of one is reported and left."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import msgspec

from descheduler.evictors import eviction_requests
from descheduler.history.past_evictions import REQUEST_ONLY, TRIGGERED
from descheduler.migration import objects
from descheduler.plan import Attempt, EvictionPlan, Outcome
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.publish import evictions
from koordlite.kube.publish.evictions import Api, EvictionClient

REQUESTED_BY = "sigs.k8s.io/descheduler"


SHOWN = 1000
"""Maximum number of requests prepared at once: a plan may have a hundred thousand evictions."""


def prepare(plan: EvictionPlan) -> tuple[Attempt, ...]:
    """Prepare the attempts in the order of the plan, the first `SHOWN` with their requests; none is sent."""
    first = (Attempt(o.pod.key, "WouldEvict", request(o, plan)) for o in plan.evict[:SHOWN])
    return (*first, *(Attempt(o.pod.key, "WouldEvict", {}) for o in plan.evict[SHOWN:]))


def request(outcome: Outcome, plan: EvictionPlan) -> dict[str, Any]:
    """The request for one pod: a PodMigrationJob where its profile has them, an EvictionRequest where it is asked
    first, else an Eviction."""
    args, finding = plan.migration.get(outcome.profile), outcome.main
    if args is None and plan.eviction_requests.mode == "on" and outcome.pod.asks_first:
        return eviction_requests.request(outcome.pod)
    if args is None:
        return eviction(outcome, plan.grace_period_seconds)
    creator = objects.creator(outcome.profile)
    return objects.job(outcome.pod, reason=finding.reason, trigger=finding.plugin, creator=creator, args=args)


def eviction(outcome: Outcome, grace_period_seconds: int | None) -> dict[str, Any]:
    """The policy/v1 Eviction of one pod. The uid is a precondition: a pod that was created again since is left
    alone."""
    meta, finding = outcome.pod.object.metadata, outcome.main
    options: dict[str, Any] = {"preconditions": {"uid": meta.uid}} if meta.uid else {}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    reason = f"triggered by {outcome.profile}/{finding.plugin}: {finding.reason}"
    notes = {"reason": reason, "requested-by": REQUESTED_BY}
    return evictions.eviction(meta.namespace, meta.name, options, notes)


AT_ONCE = 10
"""Requests under way at the same time."""
RETRY_SECONDS = 30.0
"""All waiting for one pod together; a server that asks for more is not waited for."""
TRIES = 5
"""Requests for one pod."""
Wait = Callable[[float], bool]
"""Pass so many seconds; True when the run was asked to stop meanwhile. `koordlite.ports.Clock.wait` is one."""


def evict(
    plan: EvictionPlan, api: Api, wait: Wait, *, stopped: Callable[[], bool] = lambda: False
) -> tuple[Attempt, ...]:
    """Carry the plan out. Attempts come in the plan's order; one that fails does not keep the others.

    Once `stopped` says so, pods that were not asked for yet are left alone: a process has little time to end in, and
    has to keep what it did.
    """
    one = functools.partial(
        evict_one,
        client=EvictionClient(api),
        wait=wait,
        grace_period_seconds=plan.grace_period_seconds,
        stopped=stopped,
    )
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="evict") as pool:
        return tuple(pool.map(one, plan.evict))


def evict_one(
    outcome: Outcome,
    *,
    client: EvictionClient,
    wait: Wait,
    grace_period_seconds: int | None,
    stopped: Callable[[], bool],
) -> Attempt:
    """Evict one pod, asked as often as the server wants and the limits allow."""
    pod = outcome.pod
    attempt = Attempt(pod.key, "NotTried", eviction(outcome, grace_period_seconds), uid=pod.uid)
    if not pod.object.metadata.uid:
        return msgspec.structs.replace(attempt, result="Failed", text="the pod has no uid: it could be another one")
    if stopped():
        return msgspec.structs.replace(attempt, text="the run was stopped before it was asked for")
    waited = 0.0
    while True:
        attempt, pause = _send(client, outcome, attempt)
        spent = attempt.tries >= TRIES or waited + pause > RETRY_SECONDS
        if not pause or spent or wait(pause):
            return attempt
        waited += pause


def _send(client: EvictionClient, outcome: Outcome, attempt: Attempt) -> tuple[Attempt, float]:
    """(what became of it, seconds after which the server wants to be asked again; 0: it is final)."""
    tried = msgspec.structs.replace(attempt, tries=attempt.tries + 1)
    try:
        answer = client.send(attempt.request)
    except ApiError as error:
        result = "Failed"
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            background = TRIGGERED in error.message and REQUEST_ONLY in outcome.pod.pod.annotations
            result = "InBackground" if background else "Blocked"
        retry_seconds = error.retry_after_seconds or 0.0 if result in ("Blocked", "Failed") else 0.0
        return msgspec.structs.replace(tried, result=result, text=error.message), retry_seconds
    except ApiUnreachable as error:
        # Whether the server has heard it is unknown. The uid makes asking again in the next cycle harmless.
        return msgspec.structs.replace(tried, result="Failed", text=str(error)), 0.0
    result, text = _ANSWERS[answer]
    return msgspec.structs.replace(tried, result=result, text=text), 0.0


_ANSWERS: Mapping[evictions.Outcome, tuple[str, str]] = {
    "accepted": ("Evicted", ""),
    "gone": ("Gone", "no pod has this name any more"),
    "replaced": ("Replaced", "another pod has this name by now"),
}
