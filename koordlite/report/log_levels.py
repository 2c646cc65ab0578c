"""Log levels that can be changed while a server runs: of all lines, of one flow, or of one pod.

A record names its pod and its flow in `extra`. Flows of the scheduler extender are its verbs; other servers have none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from koordlite.model.defaults import LONGEST_LOG_SECONDS
from koordlite.model.errors import UNREADABLE

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
Key = tuple[str, str]
"""Kind and name of what has a level of its own: `pod` and the pod, `flow` and the flow, `strategy` and the strategy."""
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

    def __init__(self, default: Level, now: Callable[[], float], kind: str, names: Sequence[str], example: str) -> None:
        """Besides pods these `names` of one `kind` may have a level of their own, such as `example`."""
        self.now, self._lock = now, threading.Lock()
        self._levels: dict[Key, TimedLevel] = {ALL: TimedLevel(default)}
        self._kind, self._names, self._example = kind, names, example
        # A level for one name, for one pod (`NAMESPACE/NAME` or NAME), or for the rest; after `for_seconds` the level
        # before holds again.
        self._request = msgspec.defstruct(
            "LevelRequest",
            [("level", Level), ("pod", str, ""), (kind, str, ""), ("for_seconds", float | None, None)],
            forbid_unknown_fields=True,
            rename="camel",
        )

    def put(self, body: bytes) -> None:
        """Put a requested level in force. ValueError says what is wrong with the request."""
        try:
            request: Any = msgspec.json.decode(body, type=self._request)
        except UNREADABLE as error:
            raise ValueError(f'{error}; write for example {{"level": "debug", {self._example}}}') from error
        pod, name, seconds = request.pod, getattr(request, self._kind), request.for_seconds
        if pod and name and self._names:
            raise ValueError(f"a level is for a {self._kind} or for a pod, not for both")
        if name and self._names and name not in self._names:
            raise ValueError(f"there is no {self._kind} {name!r}; there are {', '.join(self._names)}")
        if seconds is not None and not 0 < seconds <= LONGEST_LOG_SECONDS:
            raise ValueError(f"forSeconds is {seconds:g}; it has to be more than 0 and at most {LONGEST_LOG_SECONDS}")
        self.set_level(("pod", pod) if pod else (self._kind, name) if name else ALL, request.level, seconds)

    def set_level(self, key: Key, level: Level, for_seconds: float | None) -> None:
        """Put a level in force. One that holds for a while itself is not what holds again; of many pods the newest
        stay."""
        until = None if for_seconds is None else self.now() + for_seconds
        with self._lock:
            last = self._levels.get(key)
            before = None if until is None or last is None else last.level if last.until is None else last.before
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
        example = '"flow": "bind"' if flows else '"forSeconds": 600'
        LevelTable.__init__(self, default, now, "flow", flows, example)
        logging.Filter.__init__(self)
        self._logger = logger
        self._apply()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is written: by the level of its pod, else of its flow, else of all."""
        if not (record.name == self._logger or record.name.startswith(f"{self._logger}.")):
            return True
        level = self.first(("pod", getattr(record, "pod", "")), ("flow", getattr(record, "flow", "")))
        return record.levelno >= LEVELS[level]

    def set_level(self, key: Key, level: Level, for_seconds: float | None) -> None:
        """The same, for lines of this log. ValueError where there is one level for all."""
        if key != ALL and not self._names:
            raise ValueError("here is one level for all lines; leave pod and flow out")
        super().set_level(key, level, for_seconds)
        self._apply()

    def document(self) -> dict[str, Any]:
        """The levels in force."""
        flows, pods = ({n: each.level for n, each in self.in_force(kind).items()} for kind in ("flow", "pod"))
        return {"default": self.first(), "flows": flows, "pods": pods}

    def _apply(self) -> None:
        """Records below the loudest level are not even made."""
        logging.getLogger(self._logger).setLevel(LEVELS[self.loudest])
