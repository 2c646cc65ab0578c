"""Events that a cycle writes: what became of evictions, and what limits left undone where the policy asks for it.

The words are upstream's, so that people's searches find them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from descheduler.evictors.eviction_api import REQUESTED_BY
from descheduler.filters import limits
from descheduler.plan import Attempt, Outcome
from descheduler.serve.loop import CycleResult
from koordlite.kube.publish.events import Event, Regarding

CONTROLLER = "sigs.k8s.io.descheduler"
"""What upstream calls itself in events."""


def events(result: CycleResult) -> Iterator[Event]:
    """Events of a round that was meant to evict; none of a dry run."""
    if result.plan is None or result.dry_run:
        return
    by_uid = {outcome.pod.uid: outcome for outcome in result.plan.evict}
    failure_events = result.setup.failure_events
    for attempt in result.attempts:
        outcome = by_uid[attempt.uid]
        found = of_attempt(outcome, attempt, failure_events=failure_events)
        if found:
            yield _event(outcome, found)
    if failure_events:
        for outcome in result.plan.kept:
            found = of_limit(outcome, result.setup.limits)
            if found:
                yield _event(outcome, found)


def _event(outcome: Outcome, found: EvictionEvent) -> Event:
    pod = outcome.pod
    about = Regarding(kind="Pod", namespace=pod.pod.namespace, name=pod.pod.name, uid=pod.object.metadata.uid)
    return Event(regarding=about, reason=found.reason, note=found.note, action=found.action, type=found.type)


ACTION = "Descheduled"


class EvictionEvent(msgspec.Struct, frozen=True):
    """An event that regards one pod."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    action: str = ACTION


def of_attempt(outcome: Outcome, attempt: Attempt, *, failure_events: bool) -> EvictionEvent | None:
    """The event for what became of an eviction; None when there is nothing to tell, as in a dry run.

    Source: upstream `EvictPod`: the reason is the plugin, failures are reported only where the policy asks for it.
    """
    if attempt.goes:
        return EvictionEvent("Normal", outcome.main.plugin or "NotSet", _note(outcome.pod.node))
    if attempt.result in ("WouldEvict", "Deferred", "NotTried") or not failure_events:
        return None
    return _failure(outcome.pod.node, attempt.text)


def of_limit(outcome: Outcome, most: limits.Limits) -> EvictionEvent | None:
    """The event for a pod kept only by a limit; None when something else did."""
    words = {
        limits.TOTAL: f"total eviction limit exceeded ({most.total})",
        limits.PER_NODE: f"node eviction limit exceeded ({most.per_node})",
        limits.PER_NAMESPACE: f"namespace eviction limit exceeded ({most.per_namespace})",
    }
    reason = outcome.reasons[0].reason if outcome.reasons else ""
    return _failure(outcome.pod.node, words[reason]) if reason in words else None


def _failure(node: str, cause: str) -> EvictionEvent:
    return EvictionEvent("Warning", "EvictionFailed", f"{_note(node)} failed: {cause}")


def _note(node: str) -> str:
    return f"pod eviction from {node} node by {REQUESTED_BY}"
