"""Log levels that can be changed while a server runs: of all lines, of one flow, or of one pod.

A record names its pod and its flow in `extra`. Flows of the scheduler extender are its verbs; other servers have none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Literal

import msgspec

Level = Literal["off", "warning", "info", "debug"]
LEVELS: dict[Level, int] = {
    "off": logging.CRITICAL + 1,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}
EXTENDER = "koordlite.scheduler"
EXTENDER_FLOWS = ("filter", "prioritize", "preempt", "bind")
MOST_PODS = 100
LONGEST_SECONDS = 86_400.0
Key = tuple[str, str]
"""Kind and name of what has a level of its own: `pod` and the pod, `flow` and the flow."""
ALL: Key = ("", "")


class TimedLevel(msgspec.Struct, frozen=True):
    """A level, and how long it holds."""

    level: Level
    until: float | None = None
    """None: until the program ends."""
    before: Level | None = None
    """The level that returns at `until`; None: there was none."""


class LevelTable:
    """Levels in force, of all and of some. Written by one thread, read by others."""

    def __init__(self, default: Level, now: Callable[[], float]) -> None:
        self.now, self._lock = now, threading.Lock()
        self._levels: dict[Key, TimedLevel] = {ALL: TimedLevel(default)}

    def set_level(self, key: Key, level: Level, for_seconds: float | None) -> None:
        """Put a level in force. One that holds for a while itself is not what holds again; of many pods the newest
        stay."""
        until = None if for_seconds is None else self.now() + for_seconds
        with self._lock:
            held = self._levels.get(key)
            before = None if until is None or held is None else held.level if held.until is None else held.before
            self._levels[key] = TimedLevel(level, until, before)
            pods = [each for each in self._levels if each[0] == "pod"]
            for each in pods[: max(0, len(pods) - MOST_PODS)]:
                del self._levels[each]

    def in_force(self, kind: str) -> dict[str, TimedLevel]:
        """Levels by name, of one kind, in the order in which they were first set."""
        with self._lock:
            self._expire()
            return {name: each for (of, name), each in self._levels.items() if of == kind}

    def first(self, *keys: Key) -> Level:
        """The level of the first of these that has one of its own, else that of all."""
        with self._lock:
            self._expire()
            return next(each.level for key in (*keys, ALL) if (each := self._levels.get(key)))

    def _expire(self) -> None:
        now = self.now()
        for key, each in list(self._levels.items()):
            if each.until is not None and each.until <= now:
                if each.before is None:
                    del self._levels[key]
                else:
                    self._levels[key] = TimedLevel(each.before)

    @property
    def loudest(self) -> Level:
        """The most that any level asks for."""
        with self._lock:
            return min((each.level for each in self._levels.values()), key=LEVELS.__getitem__)


class _Request(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    level: Level
    pod: str = ""
    flow: str = ""
    for_seconds: float | None = None


class LogLevels(LevelTable, logging.Filter):
    """A filter for the handler that writes the log."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        default: Level = "info",
        logger: str = EXTENDER,
        flows: tuple[str, ...] = EXTENDER_FLOWS,
    ) -> None:
        """`logger`: whose lines they are, with all below it. Without `flows` there is one level for all lines."""
        LevelTable.__init__(self, default, now)
        logging.Filter.__init__(self)
        self._logger, self._names = logger, flows
        self._apply()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is written: by the level of its pod, else of its flow, else of all."""
        if not (record.name == self._logger or record.name.startswith(f"{self._logger}.")):
            return True
        level = self.first(("pod", getattr(record, "pod", "")), ("flow", getattr(record, "flow", "")))
        return record.levelno >= LEVELS[level]

    def put(self, body: bytes) -> None:
        """Put a requested level in force. ValueError says what is wrong with the request."""
        try:
            asked = msgspec.json.decode(body, type=_Request)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            example = '"level": "debug", "flow": "bind"' if self._names else '"level": "debug", "forSeconds": 600'
            raise ValueError(f"{error}; write for example {{{example}}}") from error
        if (asked.pod or asked.flow) and not self._names:
            raise ValueError("here is one level for all lines; leave pod and flow out")
        if asked.pod and asked.flow:
            raise ValueError("a level is for a pod or for a flow, not for both")
        if asked.flow and asked.flow not in self._names:
            raise ValueError(f"there is no flow {asked.flow!r}; there are {', '.join(self._names)}")
        if asked.for_seconds is not None and not 0 < asked.for_seconds <= LONGEST_SECONDS:
            raise ValueError(
                f"forSeconds is {asked.for_seconds:g}; it has to be more than 0, at most {LONGEST_SECONDS:g}"
            )
        key = ("pod", asked.pod) if asked.pod else ("flow", asked.flow) if asked.flow else ALL
        self.set_level(key, asked.level, asked.for_seconds)
        self._apply()

    def document(self) -> dict[str, Any]:
        """The levels in force."""
        flows, pods = ({n: each.level for n, each in self.in_force(kind).items()} for kind in ("flow", "pod"))
        return {"default": self.first(), "flows": flows, "pods": pods}

    def _apply(self) -> None:
        """Records below the loudest level are not even made."""
        logging.getLogger(self._logger).setLevel(LEVELS[self.loudest])
