"""Reports as plain text: a decision, the summary of a run, the undo list."""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.model import times
from koordlite.report import paragraph, present, units
from koordlite.report.history import DecisionEvent
from koordlite.report.sentence import headline
from koordlite.report.summary import Summary


def event(decision_event: DecisionEvent) -> str:
    """One line for a recent decision."""
    return f"{moment(decision_event.time, decision_event.wall)}  {headline(decision_event.decision)}"


def moment(time: float, wall: float) -> str:
    """Beginning of a line, in the form of the log; by the clock of the run where no wall clock is known."""
    return times.show(wall) if wall else f"{units.clock(time):>7}"


def summary(numbers: Summary) -> str:
    """The summary of a run, for its end."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in numbers.writes_by_kind.items())
    reasons = ", ".join(f"{reason} {count}" for reason, count in numbers.decisions.items())
    written = f"{numbers.writes}{f' ({kinds})' if kinds else ''}, {numbers.refusals} refused"
    cost = f"{units.span(numbers.tick_seconds_mean)} each, {units.span(numbers.tick_seconds_max)} at most"
    well = f"{units.span(numbers.seconds_well_above_threshold)} {present.WELL} ({present.WHY})"
    alone = f"{units.span(numbers.prod_seconds_above_threshold)} by LS alone"
    late = f"{units.span(numbers.seconds_late)} of that before BE was at the two CPUs it keeps"
    facts = [
        ("ran for", f"{units.span(numbers.seconds)}, {numbers.ticks} ticks, {cost}"),
        ("above threshold", f"{units.span(numbers.seconds_above_threshold)}, of which {well}, {late}, and {alone}"),
        ("limit of BE", _cores(numbers.be_limit_min, numbers.be_limit_max)),
        ("BE used", f"{numbers.be_core_hours_used:.2f} of {numbers.be_core_hours_allowed:.2f} core hours allowed"),
        ("writes", written),
        ("changed by others", str(numbers.foreign_writes)),
        ("decisions", reasons or "none"),
    ]
    if numbers.would_limit_min is not None:
        would = _cores(numbers.would_limit_min, numbers.would_limit_max)
        facts.insert(3, ("would limit BE to", f"{would}; cpuSuppress only observed"))
    return "".join(f"{paragraph.fill(f'  {name:<19}{value}', 100, hanging=' ' * 21)}\n" for name, value in facts)


def _cores(least: int | None, most: int | None) -> str:
    return "unknown" if least is None else f"{units.cores_between(least, most)} cores"


def undo(entries: Iterable[tuple[str, str, str]]) -> str:
    """Steps of restore: for each (place, value there at present, value before our first write) of the undo list."""
    rows = []
    for path, value, before in entries:
        now, then = value.strip(), before.strip()
        rows.append((path, f"stays {then!r}" if now == then else f"{now!r} → {then!r}"))
    lines = paragraph.columns(rows, "<") or ["nothing to restore: no file holds a value of ours"]
    return "\n".join([*lines, ""])
