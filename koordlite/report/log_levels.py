"""Log levels that can be changed while a server runs: of all lines, of one flow, or of one pod.

A record names its pod and its flow in `extra`. Flows of the scheduler extender are its verbs; other servers have none.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from koordlite.model import printable

LEVELS = {"off": logging.CRITICAL + 1, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
EXTENDER = "koordlite.scheduler"
EXTENDER_FLOWS = ("filter", "prioritize", "preempt", "bind")
MOST_PODS = 100
LONGEST_SECONDS = 86_400.0


class _Request(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    level: Literal["off", "warning", "info", "debug"]
    pod: str = ""
    flow: str = ""
    for_seconds: float | None = None


class LogLevels(logging.Filter):
    """A filter for the handler that writes the log."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        default: str = "info",
        logger: str = EXTENDER,
        flows: tuple[str, ...] = EXTENDER_FLOWS,
    ) -> None:
        """`logger`: whose lines they are, with all below it. Without `flows` there is one level for all lines."""
        super().__init__()
        self._logger, self._names = logger, flows
        self._changed_until: tuple[str, float] | None = None
        """The default before the change that ends by itself, and when it does."""
        self._now, self._default, self._lock = now, default, threading.Lock()
        self._flows: dict[str, tuple[str, float | None]] = {}
        self._pods: collections.OrderedDict[str, tuple[str, float | None]] = collections.OrderedDict()
        self._apply()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is written: by the level of its pod, else of its flow, else of all."""
        if not (record.name == self._logger or record.name.startswith(f"{self._logger}.")):
            return True
        with self._lock:
            self._expire()
            pod, flow = getattr(record, "pod", ""), getattr(record, "flow", "")
            level = self._pods.get(pod) or self._flows.get(flow) or (self._default, None)
        return record.levelno >= LEVELS[level[0]]

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
        until = None if asked.for_seconds is None else self._now() + asked.for_seconds
        with self._lock:
            self._take(asked, until)
        self._apply()

    def document(self) -> dict[str, Any]:
        """The levels in force."""
        with self._lock:
            self._expire()
            pods = {name: level for name, (level, _) in self._pods.items()}
            return {"default": self._default, "flows": {n: lv for n, (lv, _) in self._flows.items()}, "pods": pods}

    def _take(self, asked: _Request, until: float | None) -> None:
        if asked.pod:
            self._pods.pop(asked.pod, None)
            self._pods[asked.pod] = asked.level, until
            if len(self._pods) > MOST_PODS:
                self._pods.popitem(last=False)
        elif asked.flow:
            self._flows[asked.flow] = asked.level, until
        else:
            before = self._changed_until[0] if self._changed_until else self._default
            self._changed_until = None if until is None else (before, until)
            self._default = asked.level

    def _expire(self) -> None:
        now = self._now()
        if self._changed_until is not None and self._changed_until[1] <= now:
            self._default, self._changed_until = self._changed_until[0], None
        for held in (self._flows, self._pods):
            for name in [name for name, (_, until) in held.items() if until is not None and until <= now]:
                del held[name]

    def _apply(self) -> None:
        """Records below the loudest level are not even made."""
        levels = [self._default, *(lv for lv, _ in self._flows.values()), *(lv for lv, _ in self._pods.values())]
        logging.getLogger(self._logger).setLevel(min(LEVELS[level] for level in levels))


class LineFormatter(logging.Formatter):
    """Time, level, message. Line ends in a message are shown by their code; a traceback is indented below it.

    So no text of a pod's owner or of a server begins a line that looks like a record of ours.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The record without its traceback, in one line."""
        return printable.one_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        """The traceback, every line of it indented."""
        found = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"    {printable.one_line(line)}" for line in found.splitlines())
