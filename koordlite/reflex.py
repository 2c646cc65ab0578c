"""An extra round between two ticks: which rules it asks, what they may do, and when none is needed.

Only limits move, and only down. Growth, pods that came, and everything else wait for the tick, whose pace the steps and
windows of the rules are made for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from koordlite.model.decision import CPULimit, Decision
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot, has_node
from koordlite.model.status.outcome import AppliedStep
from koordlite.model.status.reaction import FreshUse
from koordlite.observe import glance
from koordlite.strategies import Strategy, limiting


def sight(strategy: Strategy, seen: Snapshot, recent: FreshUse | None) -> Snapshot:
    """What `strategy` judges. After a surge the rule that answered it looks at the time since.

    The whole time since the last tick would show too little of the surge, and give back what was just taken.
    """
    return glance.with_fresh_use(seen, recent) if recent and strategy.surge_edge_milli else seen


def edge_milli(
    decisions: Sequence[Decision],
    applied: Iterable[AppliedStep],
    seen: Snapshot,
    *,
    modes: Mapping[str, str],
    band_percent: float,
) -> int | None:
    """Use of everything but best effort above which a limit in force is too high; None when none can shrink.

    `seen` is the picture that `decisions` are about, `applied` the writes that followed.
    """
    if not has_node(seen):
        return None
    refused = {step.place for step in applied if not step.ok}
    edges = [
        rule.surge_edge_milli(seen, limit, band_percent=band_percent)
        for rule in limiting()
        if rule.surge_edge_milli and modes.get(rule.name) == "enforce"
        for decision in decisions
        if decision.strategy == rule.name and (limit := _in_force(decision, refused))
    ]
    return min((edge for edge in edges if edge is not None), default=None)


def _in_force(decision: Decision, refused: Collection[Place]) -> CPULimit | None:
    """The limit that a decision left; the one before it when a write of it was refused."""
    limit = decision.outcome
    if not isinstance(limit, CPULimit):
        return None
    if any(change.place in refused for change in decision.changes):
        return dataclasses.replace(limit, limit_milli=limit.present_milli)
    return limit


def allowed(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Those that make a limit tighter."""
    return tuple(decision for decision in decisions if decision.verdict == "shrink")


def merged(before: Sequence[Decision], fresh: Iterable[Decision]) -> tuple[Decision, ...]:
    """The decisions in force: those of the last tick, replaced where a later one is about the same subject."""
    latest = {(decision.strategy, decision.subject): decision for decision in fresh}
    kept = tuple(latest.pop((decision.strategy, decision.subject), decision) for decision in before)
    return (*kept, *latest.values())
