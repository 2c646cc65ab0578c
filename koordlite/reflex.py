"""A round before its time: which rule it asks, what it may do, and up to where none is needed.

Only the limit of best effort moves, and only down. Growth, pods that came, and everything else wait for the tick, whose
pace the steps and windows of the rules are made for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordlite import strategies
from koordlite.formulas import reaction, suppress
from koordlite.model.decision import Decision
from koordlite.model.snapshot import Snapshot
from koordlite.model.status.reaction import FreshUse
from koordlite.observe import glance
from koordlite.report.tick import Tick
from koordlite.strategies import Strategy

RULE = "cpuSuppress"


def rule() -> Strategy:
    """The strategy that is asked."""
    return next(found for found in strategies.discover() if found.name == RULE)


def sight(strategy: Strategy, seen: Snapshot, recent: FreshUse | None) -> Snapshot:
    """What `strategy` judges. After a surge the rule that answered it looks at the time since.

    The whole time since the last tick would show too little of the surge, and give back what was just taken.
    """
    return glance.with_fresh_use(seen, recent) if recent and strategy.name == RULE else seen


def edge_milli(tick: Tick, seen: Snapshot, *, band_percent: float) -> int | None:
    """Use of all others above which the limit that `tick` left is too high; None when it cannot shrink.

    `seen` is the picture that `tick` judged. Source: `formulas.reaction.upper_edge_milli`.
    """
    others = glance.others_milli(seen.usage)
    if tick.modes.get(RULE) != "enforce" or others is None or tick.be_budget is None or tick.be_limit is None:
        return None
    by_quota = tick.be_policy == "cfsQuota" or any(d.reason == "SetIsLeast" for d in tick.decisions)
    least = suppress.MIN_QUOTA_US * 1000 // suppress.PERIOD_US if by_quota else suppress.MIN_CPUS * 1000
    if tick.be_limit <= least or not any(pod.is_best_effort for pod in seen.pods):
        return None
    return reaction.upper_edge_milli(
        others_milli=others,
        budget_milli=tick.be_budget,
        limit_milli=tick.be_limit,
        shrink_step_milli=reaction.shrink_step_milli(by_quota=by_quota, capacity_milli=tick.capacity_milli),
        band_milli=round(tick.capacity_milli * band_percent / 100),
    )


def allowed(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Those that make a limit tighter."""
    return tuple(decision for decision in decisions if decision.verdict == "shrink")


def merged(before: Sequence[Decision], fresh: Iterable[Decision]) -> tuple[Decision, ...]:
    """The decisions in force: those of the last tick, replaced where a later one is about the same subject."""
    latest = {(decision.strategy, decision.subject): decision for decision in fresh}
    kept = tuple(latest.pop((decision.strategy, decision.subject), decision) for decision in before)
    return (*kept, *latest.values())
