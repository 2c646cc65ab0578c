"""The outcome of a replay, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from koordlite.model.errors import Problem
from koordlite.replay.compare import Comparison, Side
from koordlite.replay.verify import Divergence, Verification
from koordlite.report import node_figures, units
from koordlite.report.sentence import sentence
from koordlite.strategies import limiting

_LIMITING = ", ".join(rule.name for rule in limiting())
ONLY_OBSERVED = f"{_LIMITING} only observes here, so no limit moves: --mode enforce shows what it would have done"
MOST_TURNS = 20
_WIDTH = 34


def text(outcome: Verification | Comparison, problems: Iterable[Problem] = ()) -> str:
    """Text of the answer: that the record was judged again to the letter, or what would have differed."""
    lines = _check(outcome) if isinstance(outcome, Verification) else _comparison(outcome)
    return "".join(f"{line}\n" for line in (*lines, *(f"not read: {problem}" for problem in problems)))


def seconds(amount: float) -> str:
    """CPU-seconds, in hours of one CPU where there are many."""
    return f"{amount:,.0f} CPU-s" if amount < 36_000 else f"{amount / 3600:,.1f} CPU-h"


def above(side: Side) -> str:
    """Time above the threshold; two numbers where it depends on what work would have used."""
    return _from_to(side.seconds_above_threshold, side.seconds_above_threshold_most)


def of_budget(side: Side) -> str:
    """CPU time of best effort as a part of what the formula left it."""
    if not side.be_cpu_seconds_budget:
        return "–"
    percent = 100 / side.be_cpu_seconds_budget
    low, high = side.be_cpu_seconds_least * percent, side.be_cpu_seconds_most * percent
    return f"{_from_to(low, high, lambda part: f'{part:.0f}')} %"


def well_above(side: Side) -> str:
    """The part of it that rounding does not explain."""
    return _from_to(side.seconds_well_above_threshold, side.seconds_well_above_threshold_most)


def _from_to(low: float, high: float, show: Callable[[float], str] = units.span) -> str:
    """Two numbers where they differ: by what work would have used that was held down."""
    return show(low) if high - low < 0.5 else f"{show(low)} to {show(high)}"


FACTS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("BE used", lambda side: _from_to(side.be_cpu_seconds_least, side.be_cpu_seconds_most, seconds)),
    ("of its budget by the formula", of_budget),
    ("BE was allowed", lambda side: seconds(side.be_cpu_seconds_allowed)),
    ("limit of BE, cores", lambda side: f"{units.cores(side.be_limit_min)} – {units.cores(side.be_limit_max)}"),
    ("node above the threshold", above),
    (node_figures.WELL, well_above),
)
"""Names of a side's sums, and how each is shown."""


def _check(outcome: Verification) -> Iterator[str]:
    if outcome.first is None or outcome.last is None:
        yield "the record is empty"
        return
    when = f"from {units.moment(outcome.first)} to {units.moment(outcome.last)}"
    yield f"{outcome.rounds} rounds {when}, {outcome.decisions} decisions"
    if outcome.same:
        yield "every decision is the same as recorded"
        return
    yield f"{outcome.wrong} decisions differ from the record:"
    yield from _divergences(outcome.mismatches, "again:    ")


def _comparison(outcome: Comparison) -> Iterator[str]:
    recorded, other, turns = outcome.recorded, outcome.other, outcome.turns[:MOST_TURNS]
    during = f"{outcome.rounds} rounds, {units.span(outcome.seconds)}"
    yield f"{during}; use is as recorded, limits are as they would have been"
    yield ""
    rows = [("", "recorded", "changed")]
    for name, show in FACTS:
        rows.append((f"  {name}" if show in (of_budget, well_above) else name, show(recorded), show(other)))
    rows.append(("writes", str(recorded.writes), str(other.writes)))
    rows.append(("evictions", str(len(recorded.evictions)), str(len(other.evictions))))
    yield from (f"{name:{_WIDTH}}{mine:>18}{theirs:>24}" for name, mine, theirs in rows)
    yield ""
    yield f"BE used {seconds(outcome.be_cpu_seconds_used)}; with the changed settings it would have"
    yield f"  lost   {seconds(outcome.be_cpu_seconds_lost)} that it was no longer allowed"
    yield f"  gained {seconds(outcome.be_cpu_seconds_gained)} at most, while it was limited"
    alone = units.span(outcome.ls_seconds_above_threshold)
    yield "above the threshold by less than a CPU is due to rounding: limits are whole CPUs"
    yield f"LS alone was above the threshold for {alone}: no limit on BE could change that"
    if not outcome.limits_enforced:
        yield ONLY_OBSERVED
    yield ""
    if not turns:
        yield "no subject was decided for a different reason"
        return
    yield f"{len(turns)} of {outcome.turns_seen} times a subject's reason began or ceased to differ:"
    yield from _divergences(turns, "changed:   ")


def _divergences(divergences: Iterable[Divergence], head: str) -> Iterator[str]:
    """`head` stands before the other decision, and is as wide as what stands before the recorded one."""
    for each in divergences:
        yield f"  {units.moment(each.wall)} {each.strategy} {each.subject}"
        for begin, decision in ((f"{'recorded:':{len(head)}}", each.recorded), (head, each.other)):
            words = f"{decision.verdict} {decision.reason}: {sentence(decision)}" if decision else "nothing"
            yield f"    {begin}{words}"
