"""What is written to the cluster's events about an eviction, in upstream's words, so that people's searches find it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from descheduler.evictors.dry_run import REQUESTED_BY
from descheduler.filters import limits
from descheduler.plan.outcome import Attempt, Outcome

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
