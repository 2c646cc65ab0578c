"""Which Events a cycle writes: what became of evictions, and what limits left undone where the policy asks for it.

The words are upstream's, so that people's searches find them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from descheduler.evictors.dry_run import REQUESTED_BY
from descheduler.filters import limits
from descheduler.plan import Attempt, Outcome
from descheduler.serve.loop import Round
from koordlite.kube.publish.event_series import Event, Regarding

CONTROLLER = "sigs.k8s.io.descheduler"
"""What upstream calls itself in events."""


def events(told: Round) -> Iterator[Event]:
    """Events of a round that was meant to evict; none of a dry run."""
    if told.plan is None or told.dry_run:
        return
    by_uid = {outcome.pod.uid: outcome for outcome in told.plan.evict}
    tell_failures = told.setup.tell_failures
    for attempt in told.attempts:
        outcome = by_uid[attempt.uid]
        found = of_attempt(outcome, attempt, tell_failures=tell_failures)
        if found:
            yield _event(outcome, found)
    if tell_failures:
        for outcome in told.plan.spare:
            found = of_limit(outcome, told.setup.limits)
            if found:
                yield _event(outcome, found)


def _event(outcome: Outcome, found: EvictionEvent) -> Event:
    pod = outcome.pod
    about = Regarding(kind="Pod", namespace=pod.pod.namespace, name=pod.pod.name, uid=pod.object.metadata.uid)
    return Event(regarding=about, reason=found.reason, note=found.note, action=found.action, type=found.type)


ACTION = "Descheduled"


@dataclasses.dataclass(frozen=True, slots=True)
class EvictionEvent:
    """An event that regards one pod."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    action: str = ACTION


def of_attempt(outcome: Outcome, attempt: Attempt, *, tell_failures: bool) -> EvictionEvent | None:
    """The event for what became of an eviction; None when there is nothing to tell, as in a dry run.

    Source: upstream `EvictPod`: the reason is the plugin, failures are told only where the policy asks for it.
    """
    if attempt.goes:
        return EvictionEvent("Normal", outcome.main.plugin or "NotSet", _note(outcome.pod.node))
    if attempt.result in ("WouldEvict", "Deferred", "NotTried") or not tell_failures:
        return None
    return _failure(outcome.pod.node, attempt.text)


def of_limit(outcome: Outcome, most: limits.Limits) -> EvictionEvent | None:
    """The event for a pod that only a limit spared; None when something else did."""
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
