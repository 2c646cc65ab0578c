"""`koordlite status`: the node on one screen, a line for each strategy that has something to say."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from koordlite.model.decision import Decision
from koordlite.model.pressure import Pressure
from koordlite.model.status.outcome import FileTrouble
from koordlite.report import pausing, units
from koordlite.report.sentence import sentence
from koordlite.report.terminal import text
from koordlite.report.tick import Tick

MAX_TROUBLES = 5
"""Places with trouble on the screen; `/state` has more of them."""
_WHOLE = ("node", "evict")
"""Subjects of strategies that say by one `hold` that they have nothing to do."""
_TONES = {"enforcing": "32", "observing": "36", "paused": "33", "degraded": "1;31"}
_VERDICTS = {"shrink": "31", "grow": "32", "release": "32", "refuse": "1;31", "evict": "1;31", "skip": "33"}


def screen(tick: Tick, *, width: int = 100, color: bool = False) -> str:
    """The screen as text of at most `width` columns where words allow it; `color` adds ANSI colours."""
    facts = list(_facts(tick))
    wide = max(len(name) for name, _ in facts) + 2
    lines = [
        _header(tick, color),
        "",
        *(line for name, value in facts for line in _wrapped(f"  {name:<{wide}}", value, width)),
        "",
        *_strategies(tick, width, color),
        *_trouble(tick),
    ]
    return "\n".join(lines) + "\n"


def _header(tick: Tick, color: bool) -> str:
    status = _painted(tick.status, _TONES.get(tick.status, ""), color)
    return f"{tick.node or 'node not seen yet'}: {status}{f' ({tick.because})' if tick.because else ''}"


def _painted(word: str, tone: str, color: bool) -> str:
    return f"\x1b[{tone}m{word}\x1b[0m" if color and tone else word


def _facts(tick: Tick) -> Iterator[tuple[str, str]]:
    if tick.pause:
        yield "paused", pausing.words(tick.pause, wall=tick.wall)
    yield from _cpu(tick)
    yield "BE may request", text.allocatable(tick)
    yield "BE runs on", tick.be_cpuset or "unknown"
    yield "shared pools", f"LS {tick.ls_pool or 'none'}, BE {tick.be_pool or 'none'}"
    yield from schemata(tick)
    if tick.pressure:
        yield "pressure", pressure(tick)
    yield "between ticks", text.between_ticks(tick.reaction)
    if tick.faults.total:
        yield "faults", f"{tick.faults.total} of the agent itself, the last: {tick.faults.error} at {tick.faults.place}"
    yield "age of input", _oldest(tick.ages)
    yield from ((f"watch of {watch.name}", text.watched(watch)) for watch in tick.watches)


def schemata(tick: Tick) -> Iterator[tuple[str, str]]:
    """What resctrl groups have, those that have the same in one line."""
    for line in dict.fromkeys(tick.schemata.values()):
        yield f"resctrl {', '.join(group for group, held in tick.schemata.items() if held == line)}", line


def inputs(ages: Mapping[str, float]) -> Mapping[str, float]:
    """The ages of what the agent is told; that of its own report of placement is none of them."""
    return {name: age for name, age in ages.items() if name != "placement"}


def _oldest(ages: Mapping[str, float]) -> str:
    ages = inputs(ages)
    if not ages:
        return "unknown"
    name = max(ages, key=lambda name: ages[name])
    return f"{ages[name]:.1f} s at most ({name})"


def pressure(tick: Tick) -> str:
    """How much of the last ten seconds the node and best effort waited, by what they waited for."""
    known = {"node": "node", "besteffort": "BE"}
    return "; ".join(f"{word} {waits(tick.pressure[who])}" for who, word in known.items() if who in tick.pressure)


def waits(found: Mapping[str, Pressure]) -> str:
    """Percent of the last ten seconds in which something waited, by what for; what nobody waited for is left out."""
    shares = {name: round(one.some.avg10) for name, one in found.items()}
    return ", ".join(f"{name} {share} %" for name, share in shares.items() if share) or "not at all"


def _cpu(tick: Tick) -> Iterator[tuple[str, str]]:
    shown = (
        ("CPU of node", tick.node_cpu, tick.capacity_milli),
        ("CPU of LS", tick.prod_cpu, tick.capacity_milli),
        ("CPU of BE", tick.be_cpu, tick.be_limit),
    )
    for name, used, of in shown:
        yield name, f"{units.cores(used):>5} of {units.cores(of):>5} cores  {units.share(used, of):>6}"
    if tick.threshold_milli is not None and tick.modes.get("cpuSuppress") != "off":
        yield "BE gives way", f"when the node uses more than {units.cores(tick.threshold_milli)} cores"


def _strategies(tick: Tick, width: int, color: bool) -> Iterator[str]:
    """Those at work, one line each; then the others by their names."""
    said = {name: [d for d in tick.decisions if d.strategy == name] for name in tick.modes}
    at_work = {name: found for name, found in said.items() if found and not _idle(found)}
    wide = max(map(len, at_work), default=0)
    for name, found in at_work.items():
        yield _strategy(f"  {name:<{wide}}  {tick.modes[name]:<7}", found, width, color)
    for title, names in (
        ("nothing to do", [name for name, found in said.items() if found and _idle(found)]),
        ("off", [name for name, mode in tick.modes.items() if mode == "off"]),
    ):
        if names:
            listed = ", ".join(names)
            short = listed if len(listed) <= width else f"{len(names)} strategies, see koordlite explain NAME"
            yield from _wrapped(f"  {title:<{max(wide, 13)}}  ", short, width)


def _strategy(head: str, found: list[Decision], width: int, color: bool) -> str:
    """The weightiest answer of a strategy, and how many more there are."""
    first = min(found, key=lambda d: list(_VERDICTS).index(d.verdict) if d.verdict in _VERDICTS else len(_VERDICTS))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    room = max(20, width - len(head) - len(first.verdict) - len(more) - 2)
    why = textwrap.shorten(f"{first.subject}: {sentence(first)}", room, placeholder=" …")
    return f"{head} {_painted(first.verdict, _VERDICTS.get(first.verdict, ''), color)} {why}{more}"


def _idle(found: list[Decision]) -> bool:
    return len(found) == 1 and found[0].verdict == "hold" and found[0].subject in _WHOLE


def _wrapped(head: str, value: str, width: int) -> list[str]:
    indent = " " * len(head)
    return textwrap.wrap(value, max(width, len(head) + 20), initial_indent=head, subsequent_indent=indent) or [head]


def _told(trouble: FileTrouble) -> str:
    refused = f"refused {trouble.refused} times, last {trouble.last_error}" if trouble.refused else ""
    foreign = f"changed by others {trouble.foreign} times" if trouble.foreign else ""
    wait = f"corrected again in {trouble.kept_off_seconds:.0f} s" if trouble.kept_off_seconds else ""
    return f"{trouble.place}: {'; '.join(part for part in (refused, foreign, wait) if part)}"


def _trouble(tick: Tick) -> Iterator[str]:
    refused = [step for step in tick.applied if not step.ok]
    for title, rows in (
        ("problems", [str(problem) for problem in tick.problems]),
        ("refused writes", [f"{step.place} ← {step.value}: {step.error}" for step in refused]),
        ("changed by others", [f"{w.place}: ours was {w.ours}, found {w.found}" for w in tick.foreign]),
        ("in this run", [_told(trouble) for trouble in tick.troubles[:MAX_TROUBLES]]),
    ):
        if rows:
            yield f"\n  {title}"
            yield from (f"    {row}" for row in rows)
