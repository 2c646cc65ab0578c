"""`koordlite status`: the node on one screen, a line for each strategy that has something to say."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.report import paragraph, units, view
from koordlite.report.sentence import sentence
from koordlite.report.tick import Tick

_WHOLE = ("node", "evict")
"""Subjects of strategies that say by one `hold` that they have nothing to do."""
_WEIGHT = tuple(view.VERDICT_TONES)
"""Verdicts, the weightiest first; the others follow."""
_ANSI = {"good": "32", "info": "36", "warn": "33", "bad": "1;31"}


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
    return printable.lines("\n".join(lines), colors=color) + "\n"


def _header(tick: Tick, color: bool) -> str:
    return f"{view.node(tick)}: {_painted(tick.status, view.STATUS_TONES.get(tick.status), color)}{view.because(tick)}"


def _painted(word: str, tone: str | None, color: bool) -> str:
    return f"\x1b[{_ANSI[tone]}m{word}\x1b[0m" if color and tone else word


def _facts(tick: Tick) -> Iterator[tuple[str, str]]:
    facts = (*view.limits(tick), *view.pressure(tick), *view.inputs(tick))
    yield from ((fact.name, fact.value) for fact in view.paused(tick))
    yield from _cpu(tick)
    yield from ((fact.name, fact.value) for fact in facts)


def _cpu(tick: Tick) -> Iterator[tuple[str, str]]:
    for name, used, of in view.use(tick):
        yield name, f"{units.cores(used):>5} of {units.cores(of):>5} cores  {units.share(used, of):>6}"
    if view.threshold(tick):
        yield "threshold", view.threshold(tick)


def _strategies(tick: Tick, width: int, color: bool) -> Iterator[str]:
    """Strategies at work, one line each; then the others by their names."""
    found_by = {name: [d for d in tick.decisions if d.strategy == name] for name in tick.modes}
    at_work = {name: found for name, found in found_by.items() if found and not _idle(found)}
    wide = max(map(len, at_work), default=0)
    for name, found in at_work.items():
        yield _strategy(f"  {name:<{wide}}  {tick.modes[name]:<7}", found, width, color)
    for title, names in (
        ("nothing to do", [name for name, found in found_by.items() if found and _idle(found)]),
        ("off", [name for name, mode in tick.modes.items() if mode == "off"]),
    ):
        if names:
            listed = ", ".join(names)
            short = listed if len(listed) <= width else f"{len(names)} strategies, see koordlite explain NAME"
            yield from _wrapped(f"  {title:<{max(wide, 13)}}  ", short, width)


def _strategy(head: str, found: list[Decision], width: int, color: bool) -> str:
    """The weightiest answer of a strategy, and how many more there are."""
    first = min(found, key=lambda d: _WEIGHT.index(d.verdict) if d.verdict in _WEIGHT else len(_WEIGHT))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    left = max(20, width - len(head) - len(first.verdict) - len(more) - 2)
    subject = printable.one_line(first.subject)
    why = textwrap.shorten(f"{subject}: {sentence(first)}", left, placeholder=" …")
    return f"{head} {_painted(first.verdict, view.VERDICT_TONES.get(first.verdict), color)} {why}{more}"


def _idle(found: list[Decision]) -> bool:
    return len(found) == 1 and found[0].verdict == "hold" and found[0].subject in _WHOLE


def _wrapped(head: str, value: str, width: int) -> list[str]:
    indent = " " * len(head)
    return paragraph.wrap(printable.lines(value), max(width, len(head) + 20), first=head, rest=indent) or [head]


def _trouble(tick: Tick) -> Iterator[str]:
    for title, rows in view.troubles(tick):
        yield f"\n  {title}"
        yield from (f"    {row}" for row in rows)
