"""Liveness and readiness of the agent as a list of checks, each with its reason in words.

Alive means that rounds come, and end without a fault of our own: a restart helps against nothing else. Ready means
that it sees what it has to see. Degraded is an agent that works with less than its configuration asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.changes import eviction
from koordlite.model.decision import Decision, Lacking
from koordlite.model.snapshot import OF_OUR_REPORTS, Snapshot
from koordlite.model.status import AppliedStep, Faults, NRIState, Reaction
from koordlite.report.tick import Tick

LATE_PERIODS = 3
"""A tick that is later than this many periods makes the agent unhealthy."""


class Check(msgspec.Struct, frozen=True):
    """One question; `why` is empty when all is well."""

    name: str
    why: str = ""


_WELL = Faults()


def alive(*, age_seconds: float | None, period_seconds: float, faults: Faults = _WELL) -> tuple[Check, ...]:
    """Check that the loop turns. `age_seconds` is since the last tick ended; None before the first."""
    if age_seconds is None:
        return (Check("ticks", "no tick has ended yet"),)
    late = age_seconds > LATE_PERIODS * period_seconds
    why = f"the last tick ended {age_seconds:.1f} s ago; one is due every {period_seconds:g} s" if late else ""
    return Check("ticks", why), Check("faults", faults.why)


def ready(tick: Tick, *, stale_seconds: float) -> tuple[Check, ...]:
    """Check that the last tick saw what it needs, and was judged and written without error."""
    # A refused pod of one strategy is no reason to call the whole agent unready; a rule that crashes is.
    crashed = (f"{d.strategy}: {d.evidence.get('error', '')}" for d in tick.decisions if d.reason == "StrategyFailed")
    return (
        Check("node", "" if tick.node else "the Node object has not been seen yet"),
        Check("inputs", _stale(tick.snapshot.ages, stale_seconds)),
        Check("strategies", "; ".join(crashed)),
        Check("hardware", next(iter(_lacking(tick.decisions)), "")),
        Check("picture", tick.because if tick.because.startswith("no picture") else ""),
    )


def failing(checks: Iterable[Check]) -> str:
    """The first reason, or nothing."""
    return next((check.why for check in checks if check.why), "")


def text(checks: Iterable[Check]) -> str:
    """Every check as a line, in the form of the API server's `?verbose`."""
    return "".join(f"[{'-' if c.why else '+'}]{c.name} {c.why or 'ok'}\n" for c in checks)


def refusals(applied: Iterable[AppliedStep]) -> str:
    """The first refused write and how many there were; empty where all went well.

    A pod that may not go at present is no fault: a budget did its work, and the decisions tell it.
    """
    refused = [step for step in applied if not step.ok and step.place.kind is not eviction.PLACE]
    return f"{len(refused)} writes refused, first {refused[0].place}: {refused[0].error}" if refused else ""


def degradation(snapshot: Snapshot, decisions: Iterable[Decision], reaction: Reaction, stale_seconds: float, /) -> str:
    """Name what the configuration asks for and this machine lacks, else inputs older than the limit."""
    lacking, stale = "; ".join(_lacking(decisions)), _stale(snapshot.ages, stale_seconds)
    blind = f"agent.reaction is required, and not possible: {reaction.why}" if reaction.missing else ""
    return lacking or stale or blind


def without_nri(nri: NRIState) -> str:
    """Say that no runtime asks by NRI where one has to; empty otherwise."""
    return f"agent.nri is required, and no runtime asks: {nri.missing}" if nri.missing else ""


def _lacking(decisions: Iterable[Decision]) -> list[str]:
    return [f"{d.strategy} is required: {d.outcome.why}" for d in decisions if isinstance(d.outcome, Lacking)]


def _stale(ages: Mapping[str, float], limit_seconds: float) -> str:
    old = {name: age for name, age in sorted(ages.items()) if age > limit_seconds and name not in OF_OUR_REPORTS}
    return "; ".join(f"{name} not confirmed for {age:.0f} s" for name, age in old.items())
