"""`koordlite status`: the node on one screen, a line for each strategy that has something to say."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from koordlite.model import printable
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
    facts, figures = [(fact.name, fact.value) for fact in view.paused(tick)], tick.figures
    for name, used, of in (
        ("CPU of node", figures.node_cpu, figures.capacity_milli),
        ("CPU of LS", figures.prod_cpu, figures.capacity_milli),
        ("CPU of BE", figures.be_cpu, figures.be_limit),
    ):
        facts.append((name, f"{units.cores(used):>5} of {units.cores(of):>5} cores  {units.share(used, of):>6}"))
    if view.threshold(tick):
        facts.append(("threshold", view.threshold(tick)))
    facts += ((fact.name, fact.value) for fact in (*view.limits(tick), *view.pressure(tick), *view.inputs(tick)))
    name_width = max(len(name) for name, _ in facts) + 2
    status = _painted(tick.status, view.STATUS_TONES.get(tick.status), color)
    lines = [f"{view.node(tick)}: {status}{view.because(tick)}", ""]
    for name, value in facts:
        lines += _wrapped(f"  {name:<{name_width}}", value, width)
    lines += ["", *_strategies(tick, width, color)]
    for title, rows in view.troubles(tick):
        lines += [f"\n  {title}", *(f"    {row}" for row in rows)]
    return printable.lines("\n".join(lines), colors=color) + "\n"


def _painted(word: str, tone: str | None, color: bool) -> str:
    return f"\x1b[{_ANSI[tone]}m{word}\x1b[0m" if color and tone else word


def _wrapped(head: str, value: str, width: int) -> list[str]:
    indent = " " * len(head)
    return paragraph.wrap(printable.lines(value), max(width, len(head) + 20), first=head, hanging=indent) or [head]


def _strategies(tick: Tick, width: int, color: bool) -> Iterator[str]:
    """Strategies at work, one line each: the weightiest answer, and how many more there are. Then the others by their
    names."""
    by_strategy = {name: [d for d in tick.decisions if d.strategy == name] for name in tick.modes}
    idle = [
        name
        for name, each in by_strategy.items()
        if len(each) == 1 and each[0].verdict == "hold" and each[0].subject in _WHOLE
    ]
    at_work = {name: decisions for name, decisions in by_strategy.items() if decisions and name not in idle}
    name_width = max(map(len, at_work), default=0)
    for name, decisions in at_work.items():
        head = f"  {name:<{name_width}}  {tick.modes[name]:<7}"
        first = min(decisions, key=lambda d: _WEIGHT.index(d.verdict) if d.verdict in _WEIGHT else len(_WEIGHT))
        more = f" (and {len(decisions) - 1} more)" if len(decisions) > 1 else ""
        room = max(20, width - len(head) - len(first.verdict) - len(more) - 2)
        why = textwrap.shorten(f"{printable.one_line(first.subject)}: {sentence(first)}", room, placeholder=" …")
        yield f"{head} {_painted(first.verdict, view.VERDICT_TONES.get(first.verdict), color)} {why}{more}"
    for title, names in (
        ("nothing to do", idle),
        ("off", [name for name, mode in tick.modes.items() if mode == "off"]),
    ):
        if names:
            listed = ", ".join(names)
            short = listed if len(listed) <= width else f"{len(names)} strategies, see koordlite explain NAME"
            yield from _wrapped(f"  {title:<{max(name_width, 13)}}  ", short, width)
