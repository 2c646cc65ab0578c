"""The ticks of a minute in one line: what a log keeps of a run whose decisions stay the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from koordlite.report import units
from koordlite.report.tick import Tick

SECONDS = 60.0
_EARLY_SECONDS = 0.05
"""A tick may come this much before its second and still be that second's."""


class Minutes:
    """Collects ticks until a minute is over."""

    def __init__(self) -> None:
        self._ticks: list[Tick] = []
        self._news = 0
        self._ends: float | None = None

    def add(self, tick: Tick, news: int) -> str:
        """One more tick, in which `news` decisions were new. The line of a minute that ends with it, and of the first
        tick at once; else empty."""
        self._ticks.append(tick)
        self._news += news
        if self._ends is not None and tick.time + _EARLY_SECONDS < self._ends:
            return ""
        self._ends = (tick.time if self._ends is None else max(self._ends, tick.time - SECONDS)) + SECONDS
        return self.rest()

    def rest(self) -> str:
        """The line of what has not been in a line; empty where that is nothing."""
        shown = line(self._ticks, self._news) if self._ticks else ""
        self._ticks, self._news = [], 0
        return shown


def line(ticks: Sequence[Tick], news: int) -> str:
    """Time, CPU, limit, allocatable, decisions, writes of these ticks; two numbers where one varied."""
    last = ticks[-1]

    def between(get: Callable[[Tick], int | None]) -> str:
        known = [value for value in map(get, ticks) if value is not None]
        return units.cores_between(min(known, default=None), max(known, default=None))

    refused = sum(not step.ok for tick in ticks for step in tick.applied)
    writes = sum(len(tick.applied) for tick in ticks) - refused
    would = "" if last.would_limit is None else f" (would be limited to {between(lambda t: t.would_limit)})"
    offer = between(lambda t: t.batch_cpu) if last.batch_cpu is not None else "nothing"
    if last.would_batch_cpu is not None:
        offer += f" (would be offered {between(lambda t: t.would_batch_cpu)})"
    return (
        f"{units.clock(last.time):>7}  {last.status}  CPU node {between(lambda t: t.node_cpu)}"
        f"  LS {between(lambda t: t.prod_cpu)}  BE {between(lambda t: t.be_cpu)} of {between(lambda t: t.be_limit)}"
        f"{would}  may request {offer}  decisions {news} new  writes {writes}"
        f"{f'  refused {refused}' if refused else ''}"
    )
