"""The outcome of a replay, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.replay.compare import Comparison, Side
from koordlite.replay.verify import Verification
from koordlite.report import present, units
from koordlite.report.sentence import sentence
from koordlite.strategies import limiting

_LIMITING = ", ".join(rule.name for rule in limiting())
ONLY_OBSERVED = f"{_LIMITING} only observes here, so no limit moves: --mode enforce shows what it would have done"
MOST_TURNS = 20
_WIDTH = 34


def check(found: Verification, problems: Iterable[Problem] = ()) -> str:
    """Tell whether the record can be judged again to the letter."""
    return _lines(_check(found), problems)


def comparison(found: Comparison, problems: Iterable[Problem] = ()) -> str:
    """List what would have differed."""
    return _lines(_comparison(found), problems)


def _lines(lines: Iterable[str], problems: Iterable[Problem]) -> str:
    return "".join(f"{line}\n" for line in (*lines, *(f"not read: {problem}" for problem in problems)))


def decided(decision: Decision | None) -> str:
    """A decision in one line."""
    return "nothing" if decision is None else f"{decision.verdict} {decision.reason}: {sentence(decision)}"


def seconds(amount: float) -> str:
    """CPU-seconds, in hours of one CPU where there are many."""
    return f"{amount:,.0f} CPU-s" if amount < 36_000 else f"{amount / 3600:,.1f} CPU-h"


def above(side: Side) -> str:
    """Time above the threshold; two numbers where it depends on what work would have used."""
    return _from_to(side.seconds_above_threshold, side.seconds_above_threshold_most)


def used(side: Side) -> str:
    """CPU time of best effort; two numbers where it depends on what work would have used that was held down."""
    low, high = side.be_cpu_seconds_least, side.be_cpu_seconds_most
    return seconds(low) if high - low < 0.5 else f"{seconds(low)} to {seconds(high)}"


def of_budget(side: Side) -> str:
    """The same as a part of what the formula left best effort."""
    if not side.be_cpu_seconds_budget:
        return "–"
    low, high = (
        100 * part / side.be_cpu_seconds_budget for part in (side.be_cpu_seconds_least, side.be_cpu_seconds_most)
    )
    return f"{low:.0f} %" if high - low < 0.5 else f"{low:.0f} to {high:.0f} %"


def well_above(side: Side) -> str:
    """The part of it that rounding does not explain."""
    return _from_to(side.seconds_well_above_threshold, side.seconds_well_above_threshold_most)


def limits(side: Side) -> str:
    """The lowest and the highest limit of best effort, in cores."""
    return f"{units.cores(side.be_limit_min)} – {units.cores(side.be_limit_max)}"


FACTS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("BE used", used),
    ("of its budget by the formula", of_budget),
    ("BE was allowed", lambda side: seconds(side.be_cpu_seconds_allowed)),
    ("limit of BE, cores", limits),
    ("node above the threshold", above),
    (present.WELL, well_above),
)
"""Names of a side's sums, and how each is shown."""


def _from_to(low: float, high: float) -> str:
    return units.span(low) if high - low < 0.5 else f"{units.span(low)} to {units.span(high)}"


def _check(found: Verification) -> Iterator[str]:
    if found.first is None or found.last is None:
        yield "the record is empty"
        return
    when = f"from {units.moment(found.first)} to {units.moment(found.last)}"
    yield f"{found.rounds} rounds {when}, {found.decisions} decisions"
    if found.same:
        yield "every decision is the same as recorded"
        return
    yield f"{found.wrong} decisions differ from the record:"
    for each in found.mismatches:
        yield f"  {units.moment(each.wall)} {each.strategy} {each.subject}"
        yield f"    recorded: {decided(each.recorded)}"
        yield f"    again:    {decided(each.again)}"


def _comparison(found: Comparison) -> Iterator[str]:
    recorded, other = found.recorded, found.other
    yield f"{found.rounds} rounds, {units.span(found.seconds)}; use is as recorded, limits are as they would have been"
    yield ""
    yield f"{'':{_WIDTH}}{'recorded':>18}{'changed':>24}"
    for name, show in FACTS:
        words = f"  {name}" if show in (of_budget, well_above) else name
        yield f"{words:{_WIDTH}}{show(recorded):>18}{show(other):>24}"
    yield f"{'writes':{_WIDTH}}{recorded.writes:>18}{other.writes:>24}"
    yield f"{'evictions':{_WIDTH}}{len(recorded.evictions):>18}{len(other.evictions):>24}"
    yield ""
    yield f"BE used {seconds(found.be_cpu_seconds_used)}; with the changed settings it would have"
    yield f"  lost   {seconds(found.be_cpu_seconds_lost)} that it was no longer allowed"
    yield f"  gained {seconds(found.be_cpu_seconds_gained)} at most, while it was limited"
    alone = units.span(found.ls_seconds_above_threshold)
    yield "above the threshold by less than a CPU is due to rounding: limits are whole CPUs"
    yield f"LS alone was above the threshold for {alone}: no limit on BE could change that"
    if not found.limits_enforced:
        yield ONLY_OBSERVED
    yield from _turns(found)


def _turns(found: Comparison) -> Iterator[str]:
    shown = found.turns[:MOST_TURNS]
    yield ""
    if not shown:
        yield "no subject was decided for a different reason"
        return
    yield f"{len(shown)} of {found.turns_seen} times a subject's reason began or ceased to differ:"
    for turn in shown:
        yield f"  {units.moment(turn.wall)} {turn.strategy} {turn.subject}"
        yield f"    recorded:  {decided(turn.recorded)}"
        yield f"    changed:   {decided(turn.other)}"
