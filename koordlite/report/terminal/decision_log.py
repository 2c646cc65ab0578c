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
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from koordlite.model.decision import Decision
from koordlite.model.defaults import LONGEST_LOG_SECONDS
from koordlite.model.errors import UNREADABLE
from koordlite.report import units
from koordlite.report.history import DecisionEvent
from koordlite.report.log_levels import ALL, LEVELS, Level, LevelTable
from koordlite.report.present import Figures
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
        held = self._windows.get(subject)
        left_out = 0
        if held is None or now - held.began >= WINDOW_SECONDS:
            left_out = held.left_out if held else 0
            self._windows.pop(subject, None)
            held = self._windows[subject] = _Window(now)
            while len(self._windows) > MOST_SUBJECTS:
                del self._windows[next(iter(self._windows))]
        if held.lines >= MOST_LINES:
            held.left_out += 1
            return None
        held.lines += 1
        return left_out


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
        """Add a tick in which `news` decisions were new. Returns the line of the minute that ends with it, and of the
        first tick at once; else empty."""
        self._ticks.append(tick)
        self._news += news
        if self._ends is not None and tick.time + _EARLY_SECONDS < self._ends:
            return ""
        self._ends = (tick.time if self._ends is None else max(self._ends, tick.time - SECONDS)) + SECONDS
        return self.rest()

    def rest(self) -> str:
        """The line of the ticks that no line has told yet; empty where there are none."""
        shown = minute_line(self._ticks, self._news) if self._ticks else ""
        self._ticks, self._news = [], 0
        return shown


def minute_line(ticks: Sequence[Tick], news: int) -> str:
    """Status, CPU, limit, allocatable, decisions, writes of these ticks; two numbers where one varied."""
    last, figures = ticks[-1], ticks[-1].figures

    def between(get: Callable[[Figures], int | None]) -> str:
        known = [value for tick in ticks if (value := get(tick.figures)) is not None]
        return units.cores_between(min(known, default=None), max(known, default=None))

    refused = sum(not step.ok for tick in ticks for step in tick.applied)
    writes = sum(len(tick.applied) for tick in ticks) - refused
    would = "" if figures.would_limit is None else f" (would be limited to {between(lambda t: t.would_limit)})"
    offer = between(lambda t: t.batch_cpu) if figures.batch_cpu is not None else "nothing"
    if figures.would_batch_cpu is not None:
        offer += f" (would be offered {between(lambda t: t.would_batch_cpu)})"
    return (
        f"{last.status}  CPU node {between(lambda t: t.node_cpu)}"
        f"  LS {between(lambda t: t.prod_cpu)}  BE {between(lambda t: t.be_cpu)} of {between(lambda t: t.be_limit)}"
        f"{would}  may request {offer}  decisions {news} new  writes {writes}"
        f"{f'  refused {refused}' if refused else ''}"
    )


LOG = logging.getLogger("koordlite.decisions")
# What is written is settled here, whatever the level of the program's own messages.
LOG.setLevel(logging.DEBUG)
DEFAULT: Level = "warning"
_ALARMS = ("refuse", "evict")


class LevelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Body of `PUT /loglevel`: a level for one strategy, for one pod (`NAMESPACE/NAME` or NAME), or for the rest."""

    level: Level
    strategy: str = ""
    pod: str = ""
    for_seconds: float | None = None
    """After this time the level before holds again; null: until the agent ends."""


class Levels(LevelTable):
    """The levels of decisions, by strategy and by pod."""

    def __init__(self, strategies: Collection[str], *, now: Callable[[], float] = time.monotonic) -> None:
        """Names other than these are refused."""
        super().__init__(DEFAULT, now)
        self._strategies = frozenset(strategies)

    def put(self, body: bytes) -> LevelRequest:
        """Put the requested level in force. ValueError says what is wrong with the request."""
        try:
            request = msgspec.json.decode(body, type=LevelRequest)
        except UNREADABLE as error:
            raise ValueError(f'{error}; write for example {{"level": "debug", "strategy": "cpuSuppress"}}') from error
        if request.strategy and request.pod:
            raise ValueError("a level is for a strategy or for a pod, not for both")
        if request.strategy and request.strategy not in self._strategies:
            raise ValueError(
                f"there is no strategy {request.strategy!r}; there are {', '.join(sorted(self._strategies))}"
            )
        if request.for_seconds is not None and not 0 < request.for_seconds <= LONGEST_LOG_SECONDS:
            raise ValueError(
                f"forSeconds is {request.for_seconds:g}; it has to be more than 0 and at most {LONGEST_LOG_SECONDS}"
            )
        key = ("pod", request.pod) if request.pod else ("strategy", request.strategy) if request.strategy else ALL
        self.set_level(key, request.level, request.for_seconds)
        return request

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

        def shown(kind: str) -> dict[str, dict[str, Any]]:
            return {
                name: {
                    "level": each.level,
                    **({} if each.until is None else {"forSeconds": round(each.until - now, 1)}),
                }
                for name, each in self.in_force(kind).items()
            }

        named = dict(sorted(shown("strategy").items()))
        return {"default": shown("")[""], "strategies": named, "pods": shown("pod"), "levels": tuple(LEVELS)}

    @property
    def default(self) -> Level:
        """The level of what has none of its own."""
        return self.first()


class DecisionLog:
    """Writes the decisions of each tick."""

    def __init__(self, levels: Levels, log: logging.Logger = LOG) -> None:
        self._levels, self._log = levels, log
        self._limit = LineLimit(levels.now)
        self._minutes = Minutes()

    def write(self, tick: Tick, news: Iterable[DecisionEvent]) -> None:
        """`news` are the decisions of `tick` that are new. Cheap unless a level asks for more."""
        decisions, fresh = tick.decisions, [event.decision for event in news]
        loudest = self._levels.loudest
        if loudest == "off":
            return
        if self._levels.default in ("info", "debug"):
            minute = self._minutes.add(tick, len(fresh))
            if minute:
                self._log.info("%s", minute)
        # Most ticks repeat the one before, and only debug wants to read that.
        for decision in decisions if loudest == "debug" else fresh:
            self._write(decision, is_new=loudest != "debug" or any(decision is each for each in fresh))

    def _write(self, decision: Decision, *, is_new: bool) -> None:
        level = self._levels.of(decision)
        if level == "debug":
            numbers = " ".join(f"{name}={value}" for name, value in decision.explained.items())
            places = " ".join(str(change.place) for change in decision.changes)
            self._log.debug("%s %s | %s | %s", decision.strategy, headline(decision), numbers, places)
        elif is_new and (level == "info" or (level == "warning" and decision.verdict in _ALARMS)):
            severity = logging.WARNING if decision.verdict in _ALARMS else logging.INFO
            left_out = self._limit.take(decision.subject)
            if left_out:
                self._log.log(severity, "%s: %d more lines were left out", decision.subject, left_out)
            if left_out is not None:
                self._log.log(severity, "%s %s", decision.strategy, headline(decision))
