"""Events that a cycle writes: what became of evictions, and what limits left undone where the policy asks for it.

The words are upstream's, so that people's searches find them.
"""

from __future__ import annotations

from collections.abc import Iterator

from descheduler.evictors.eviction_api import REQUESTED_BY
from descheduler.filters import limits
from descheduler.plan import Attempt, Outcome
from descheduler.serve.loop import CycleResult
from koordlite.kube.publish.events import Event
from koordlite.model.wire.reservation import ObjectReference

CONTROLLER = "sigs.k8s.io.descheduler"
"""Name of upstream in its events."""


def events(result: CycleResult) -> Iterator[Event]:
    """Events of a round that was meant to evict; none of a dry run."""
    if result.plan is None or result.dry_run:
        return
    by_uid = {outcome.pod.uid: outcome for outcome in result.plan.evict}
    failure_events = result.setup.failure_events
    for attempt in result.attempts:
        if event := of_attempt(by_uid[attempt.uid], attempt, failure_events=failure_events):
            yield event
    for outcome in result.plan.kept:
        if outcome.reasons[0].reason == "RequestRefused" and outcome.pod.uid in result.plan.withdrawals:
            yield _failure(outcome, outcome.reasons[0].text)
    for outcome in result.plan.kept if failure_events else ():
        if event := of_limit(outcome, result.setup.limits):
            yield event


ACTION = "Descheduled"


def of_attempt(outcome: Outcome, attempt: Attempt, *, failure_events: bool) -> Event | None:
    """The event for what became of an eviction; None when there is nothing to tell, as in a dry run.

    Source: upstream `EvictPod`: the reason is the plugin, failures are reported only where the policy asks for it.
    """
    if attempt.goes:
        request = f": {attempt.text}" if attempt.result == "Requested" else ""
        return _event(outcome, outcome.main.plugin or "NotSet", more=request)
    if attempt.result in ("WouldEvict", "Deferred", "NotTried") or not failure_events:
        return None
    return _failure(outcome, attempt.text)


def of_limit(outcome: Outcome, most: limits.Limits) -> Event | None:
    """The event for a pod kept only by a limit; None when something else did."""
    words = {
        limits.TOTAL: f"total eviction limit exceeded ({most.total})",
        limits.PER_NODE: f"node eviction limit exceeded ({most.per_node})",
        limits.PER_NAMESPACE: f"namespace eviction limit exceeded ({most.per_namespace})",
    }
    reason = outcome.reasons[0].reason if outcome.reasons else ""
    return _failure(outcome, words[reason]) if reason in words else None


def _failure(outcome: Outcome, cause: str) -> Event:
    return _event(outcome, "EvictionFailed", failure=f" failed: {cause}")


def _event(outcome: Outcome, reason: str, *, failure: str = "", more: str = "") -> Event:
    pod = outcome.pod
    return Event(
        regarding=ObjectReference(
            kind="Pod", namespace=pod.pod.namespace, name=pod.pod.name, uid=pod.object.metadata.uid
        ),
        reason=reason,
        note=f"pod eviction from {pod.node} node by {REQUESTED_BY}{failure}{more}",
        action=ACTION,
        type="Warning" if failure else "Normal",
    )
