"""Decisions in the log, as much of them as was asked for: by default, by strategy, by pod, changed while it runs.

A level says what is written: `off` nothing; `warning` what was refused, and evictions, when they come up; `info` every
decision that says something else than the one before, and by default one line a minute about the node; `debug` every
decision of every tick with its numbers. A pod's level goes before that of a strategy, and that before the default.

What a pod's owner can repeat must not fill the disk: one subject may fill so many lines (`LineLimit`). Of a run whose
decisions stay the same the log keeps one line a minute (`Minutes`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from koordlite.model.decision import Decision
from koordlite.report import units
from koordlite.report.history import DecisionEvent
from koordlite.report.log_levels import LEVELS, Level, LevelTable
from koordlite.report.node_figures import Figures
from koordlite.report.sentence import headline
from koordlite.report.tick import Tick

MOST_LINES = 10
WINDOW_SECONDS = 60.0
MOST_SUBJECTS = 2000


class _Window(msgspec.Struct):
    began: float
    lines: int = 0
    left_out: int = 0


class LineLimit:
    """At most `MOST_LINES` for each subject in `WINDOW_SECONDS`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._windows: dict[str, _Window] = {}

    def take(self, subject: str) -> int | None:
        """None when the line must be left out; else how many were left out in the window that has just ended."""
        now = self._now()
        window = self._windows.get(subject)
        left_out = 0
        if window is None or now - window.began >= WINDOW_SECONDS:
            left_out = window.left_out if window else 0
            self._windows.pop(subject, None)
            window = self._windows[subject] = _Window(now)
            while len(self._windows) > MOST_SUBJECTS:
                del self._windows[next(iter(self._windows))]
        if window.lines >= MOST_LINES:
            window.left_out += 1
            return None
        window.lines += 1
        return left_out


SECONDS = 60.0
_EARLY_SECONDS = 0.05
"""A tick may come this much before its second and still be that second's."""


class Minutes:
    """Collects ticks until a minute is over."""

    def __init__(self) -> None:
        self._ticks: list[Tick] = []
        self._count = 0
        self._ends: float | None = None

    def add(self, tick: Tick, count: int) -> str:
        """Add a tick in which `count` decisions were new. Returns the line of the minute that ends with it, and of the
        first tick at once; else empty."""
        self._ticks.append(tick)
        self._count += count
        if self._ends is not None and tick.time + _EARLY_SECONDS < self._ends:
            return ""
        self._ends = (tick.time if self._ends is None else max(self._ends, tick.time - SECONDS)) + SECONDS
        return self.rest()

    def rest(self) -> str:
        """The line of the ticks that no line has told yet, empty where there are none: status, CPU, limit, allocatable,
        decisions, writes; two numbers where one varied."""
        ticks, count = self._ticks, self._count
        self._ticks, self._count = [], 0
        if not ticks:
            return ""
        last, figures = ticks[-1], ticks[-1].figures

        def between(get: Callable[[Figures], int | None]) -> str:
            values = [value for tick in ticks if (value := get(tick.figures)) is not None]
            return units.cores_between(min(values, default=None), max(values, default=None))

        refused = sum(not step.ok for tick in ticks for step in tick.applied)
        writes = sum(len(tick.applied) for tick in ticks) - refused
        would = "" if figures.would_limit is None else f" (would be limited to {between(lambda t: t.would_limit)})"
        offer = between(lambda t: t.batch_cpu) if figures.batch_cpu is not None else "nothing"
        if figures.would_batch_cpu is not None:
            offer += f" (would be offered {between(lambda t: t.would_batch_cpu)})"
        return (
            f"{last.status}  CPU node {between(lambda t: t.node_cpu)}"
            f"  LS {between(lambda t: t.prod_cpu)}  BE {between(lambda t: t.be_cpu)} of {between(lambda t: t.be_limit)}"
            f"{would}  may request {offer}  decisions {count} new  writes {writes}"
            f"{f'  refused {refused}' if refused else ''}"
        )


LOG = logging.getLogger("koordlite.decisions")
# What is written is settled here, whatever the level of the program's own messages.
LOG.setLevel(logging.DEBUG)
DEFAULT: Level = "warning"


class Levels(LevelTable):
    """The levels of decisions, by strategy and by pod."""

    def __init__(self, strategies: Collection[str], *, now: Callable[[], float] = time.monotonic) -> None:
        """Names other than these are refused."""
        super().__init__(DEFAULT, now, "strategy", sorted(strategies), '"strategy": "cpuSuppress"')

    def of(self, decision: Decision) -> Level:
        """The level in force for this decision."""
        pods = self.in_force("pod")
        if pods:
            from koordlite.report.explain import pod  # Not loaded until a pod is asked for.

            for name, each in pods.items():
                if pod.decisions(name, [decision]):
                    return each.level
        return self.first(("strategy", decision.strategy))

    def document(self) -> dict[str, Any]:
        """The levels as plain values for JSON."""
        now = self.now()
        every, named, pods = (
            {
                name: {"level": each.level} | ({} if each.until is None else {"forSeconds": round(each.until - now, 1)})
                for name, each in self.in_force(kind).items()
            }
            for kind in ("", "strategy", "pod")
        )
        return {"default": every[""], "strategies": dict(sorted(named.items())), "pods": pods, "levels": tuple(LEVELS)}

    @property
    def default(self) -> Level:
        """The level of what has none of its own."""
        return self.first()


class DecisionLog:
    """Writes the decisions of each tick."""

    def __init__(self, levels: Levels) -> None:
        self._levels, self._limit = levels, LineLimit(levels.now)
        self._minutes = Minutes()

    def write(self, tick: Tick, events: Iterable[DecisionEvent]) -> None:
        """Write those of the decisions of `tick` that a level asks for; `events` are the new ones. Cheap unless a level
        asks for more."""
        fresh = [event.decision for event in events]
        loudest = self._levels.loudest
        if loudest == "off":
            return
        if self._levels.default in ("info", "debug"):
            minute = self._minutes.add(tick, len(fresh))
            if minute:
                LOG.info("%s", minute)
        # Most ticks repeat the one before, and only debug wants to read that.
        for decision in tick.decisions if loudest == "debug" else fresh:
            level = self._levels.of(decision)
            is_new = loudest != "debug" or any(decision is each for each in fresh)
            is_alarm = decision.verdict in ("refuse", "evict")
            if level == "debug":
                numbers = " ".join(f"{name}={value}" for name, value in decision.explained.items())
                places = " ".join(str(change.place) for change in decision.changes)
                LOG.debug("%s %s | %s | %s", decision.strategy, headline(decision), numbers, places)
            elif is_new and (level == "info" or (level == "warning" and is_alarm)):
                severity = logging.WARNING if is_alarm else logging.INFO
                left_out = self._limit.take(decision.subject)
                if left_out:
                    LOG.log(severity, "%s: %d more lines were left out", decision.subject, left_out)
                if left_out is not None:
                    LOG.log(severity, "%s %s", decision.strategy, headline(decision))
