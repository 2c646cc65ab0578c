"""Whether the agent lives and whether it is ready, as a list of checks, each with its reason in words.

Alive means that rounds come, and end without a fault of our own: a restart helps against nothing else. Ready means
that it sees what it has to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from koordlite.model.decision import Lacking
from koordlite.model.snapshot import OF_OUR_REPORTS
from koordlite.model.status import Faults
from koordlite.report.tick import Tick

LATE_PERIODS = 3
"""A tick that is later than this many periods makes the agent unhealthy."""


class Check(msgspec.Struct, frozen=True):
    """One question; `why` is empty when all is well."""

    name: str
    why: str = ""


_WELL = Faults()


def alive(*, age_seconds: float | None, period_seconds: float, faults: Faults = _WELL) -> tuple[Check, ...]:
    """Whether the loop turns. `age_seconds` is since the last tick ended; None before the first."""
    if age_seconds is None:
        return (Check("ticks", "no tick has ended yet"),)
    late = age_seconds > LATE_PERIODS * period_seconds
    why = f"the last tick ended {age_seconds:.1f} s ago; one is due every {period_seconds:g} s" if late else ""
    return Check("ticks", why), Check("faults", faults.why)


def ready(tick: Tick, *, stale_seconds: float) -> tuple[Check, ...]:
    """Whether the last tick saw what it needs, and was judged and written without error."""
    # A refused pod of one strategy is no reason to call the whole agent unready; a rule that crashes is.
    crashed = (f"{d.strategy}: {d.evidence.get('error', '')}" for d in tick.decisions if d.reason == "StrategyFailed")
    lacking = (f"{d.strategy} is required: {d.outcome.why}" for d in tick.decisions if isinstance(d.outcome, Lacking))
    return (
        Check("node", "" if tick.node else "the Node object has not been seen yet"),
        Check("inputs", "; ".join(_stale(tick, stale_seconds))),
        Check("strategies", "; ".join(crashed)),
        Check("hardware", next(lacking, "")),
        Check("picture", _blind(tick)),
    )


def failing(checks: Iterable[Check]) -> str:
    """The first reason, or nothing."""
    return next((check.why for check in checks if check.why), "")


def text(checks: Iterable[Check]) -> str:
    """Every check as a line, in the form of the API server's `?verbose`."""
    return "".join(f"[{'-' if c.why else '+'}]{c.name} {c.why or 'ok'}\n" for c in checks)


def _stale(tick: Tick, limit: float) -> Iterator[str]:
    for name, age in sorted(tick.ages.items()):
        if age > limit and name not in OF_OUR_REPORTS:
            yield f"{name} not confirmed for {age:.0f} s"


def _blind(tick: Tick) -> str:
    return tick.because if tick.because.startswith("no picture") else ""
