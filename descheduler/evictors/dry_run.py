"""The evictor that evicts nothing: it prepares every request the API would get, and says so."""

from __future__ import annotations

from typing import Any

from descheduler.migration import requests
from descheduler.plan import Attempt, EvictionPlan, Outcome
from koordlite.kube.publish import evictions

REQUESTED_BY = "sigs.k8s.io/descheduler"


SHOWN = 1000
"""So many requests are prepared: a plan may have a hundred thousand evictions."""


def evict(plan: EvictionPlan) -> tuple[Attempt, ...]:
    """Prepare the attempts in the order of the plan, the first `SHOWN` with their requests; none is sent."""
    first = (Attempt(o.pod.key, "WouldEvict", request(o, plan)) for o in plan.evict[:SHOWN])
    return (*first, *(Attempt(o.pod.key, "WouldEvict", {}) for o in plan.evict[SHOWN:]))


def request(outcome: Outcome, plan: EvictionPlan) -> dict[str, Any]:
    """The request for one pod: a PodMigrationJob where its profile has them, else an Eviction."""
    args, found = plan.migration.get(outcome.profile), outcome.main
    if args is None:
        return eviction(outcome, plan.grace_period_seconds)
    creator = requests.creator(outcome.profile)
    return requests.job(outcome.pod, reason=found.reason, trigger=found.plugin, creator=creator, args=args)


def eviction(outcome: Outcome, grace_period_seconds: int | None) -> dict[str, Any]:
    """The policy/v1 Eviction of one pod. The uid is a precondition: a pod that was created again since is left
    alone."""
    meta, found = outcome.pod.object.metadata, outcome.main
    options: dict[str, Any] = {"preconditions": {"uid": meta.uid}} if meta.uid else {}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    reason = f"triggered by {outcome.profile}/{found.plugin}: {found.reason}"
    notes = {"reason": reason, "requested-by": REQUESTED_BY}
    return evictions.eviction(meta.namespace, meta.name, options, notes)
