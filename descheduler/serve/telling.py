"""Which Events a cycle writes: what became of evictions, and what limits left undone where the policy asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from descheduler.evictors import events as words
from descheduler.evictors.events import EvictionEvent
from descheduler.plan.outcome import Outcome
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
        found = words.of_attempt(outcome, attempt, tell_failures=tell_failures)
        if found:
            yield _event(outcome, found)
    if tell_failures:
        for outcome in told.plan.spare:
            found = words.of_limit(outcome, told.setup.limits)
            if found:
                yield _event(outcome, found)


def _event(outcome: Outcome, found: EvictionEvent) -> Event:
    pod = outcome.pod
    about = Regarding(kind="Pod", namespace=pod.pod.namespace, name=pod.pod.name, uid=pod.object.metadata.uid)
    return Event(regarding=about, reason=found.reason, note=found.note, action=found.action, type=found.type)
