"""Why the agent is degraded; empty where it is not."""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.changes import eviction
from koordlite.model.decision import Decision, Lacking
from koordlite.model.snapshot import OF_OUR_REPORTS, Snapshot
from koordlite.model.status import AppliedStep, Reaction


def refusals(applied: Iterable[AppliedStep]) -> str:
    """A pod that may not go at present is no fault: a budget did its work, and the decisions tell it."""
    refused = [step for step in applied if not step.ok and step.place.kind is not eviction.PLACE]
    return f"{len(refused)} writes refused, first {refused[0].place}: {refused[0].error}" if refused else ""


def why(seen: Snapshot, decisions: Iterable[Decision], reaction: Reaction, stale_seconds: float, /) -> str:
    """What the configuration asks for and this machine does not have, and inputs that are older than the limit."""
    return _lacking(decisions) or _stale(seen, stale_seconds) or _cannot_react(reaction)


def _lacking(decisions: Iterable[Decision]) -> str:
    found = ((d.strategy, d.outcome.why) for d in decisions if isinstance(d.outcome, Lacking))
    return "; ".join(f"{strategy} is required: {why}" for strategy, why in found)


def _stale(seen: Snapshot, limit_seconds: float) -> str:
    old = {name: age for name, age in seen.ages.items() if age > limit_seconds and name not in OF_OUR_REPORTS}
    return "; ".join(f"{name} not confirmed for {age:.0f} s" for name, age in sorted(old.items()))


def _cannot_react(reaction: Reaction) -> str:
    return f"agent.reaction is required, and not possible: {reaction.why}" if reaction.missing else ""
