"""HTTP answers of a running descheduler: health, metrics, and the report of its last cycle."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry, generate_latest

from descheduler.plan import EvictionPlan
from descheduler.report import document, html, text
from descheduler.serve import page
from descheduler.serve.loop import CycleResult
from koordlite import threads
from koordlite.model import duration, printable
from koordlite.report.json.answer import Answer
from koordlite.report.log_levels import LogLevels

CYCLES = 20
"""How many of the last cycles the front page lists."""
LATE_INTERVALS = 3
"""Healthy while the last good cycle began no longer ago than so many intervals,"""
LATE_SECONDS = 60.0
"""and this much more, for a cycle that takes its time."""
_TEXT, _JSON, _HTML = "text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Endpoints:
    """Answers from many threads; `publish` is called by the loop."""

    def __init__(
        self,
        registry: CollectorRegistry | None,
        *,
        interval_seconds: float,
        monotonic: Callable[[], float],
        levels: LogLevels | None = None,
    ) -> None:
        """`levels`: what is logged, which may be changed by whom the guard lets."""
        self._levels = levels
        self._registry, self._monotonic = registry, monotonic
        self._allowed_seconds = LATE_INTERVALS * interval_seconds + LATE_SECONDS
        self._lock = threading.Lock()
        self._last: CycleResult | None = None
        self._good: CycleResult | None = None
        self._good_at = monotonic()
        self._past: collections.deque[page.Cycle] = collections.deque(maxlen=CYCLES)
        self._pages: dict[str, Callable[[CycleResult, str], tuple[str, str]]] = {
            "/report": lambda result, failure: (
                _HTML,
                html.render(_plan(result), attempts=result.attempts, dry=result.dry_run, failure=failure),
            ),
            "/report.json": lambda result, failure: (
                _JSON,
                document.encode(_plan(result), result.attempts, dry=result.dry_run, failure=failure),
            ),
            "/report.txt": lambda result, failure: (
                _TEXT,
                text.render(_plan(result), attempts=result.attempts, dry=result.dry_run, failure=failure),
            ),
        }

    def publish(self, result: CycleResult) -> None:
        """Make this round the one that is shown. A failed one leaves the last good report in place."""
        with self._lock:
            self._last = result
            self._past.append(page.Cycle.of(result))
            if result.plan is not None:
                self._good, self._good_at = result, self._monotonic() - result.seconds

    def answer(self, path: str, query: Mapping[str, str], _accept: str) -> Answer:
        """`koordlite.http.Ask`. The front page lists what has `node` of the query in its name."""
        if path == "/metrics" and self._registry is not None:
            return Answer(HTTPStatus.OK, _METRICS, generate_latest(self._registry))
        always = {"/healthz": self._health, "/livez": self._health, "/readyz": self._ready}
        if (levels := self._levels) is not None:
            always["/loglevel"] = lambda: _levels(levels)
        if path in always:
            return always[path]()
        if path != "/" and path not in self._pages:
            known = ", ".join(["/", "/metrics", "/healthz", "/readyz", "/loglevel", *self._pages])
            return _plain(HTTPStatus.NOT_FOUND, f"nothing is here; there is {known}")
        with self._lock:
            good, past, failure = self._good, tuple(self._past), self._last.error if self._last else ""
        if good is None:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "no cycle has ended yet")
        if path == "/":
            front = page.served(good, past, query.get("node", "").strip(), refresh=query.get("refresh") != "off")
            return Answer(HTTPStatus.OK, _HTML, front.text.encode(), front.headers)
        content_type, body = self._pages[path](good, failure)
        return Answer(HTTPStatus.OK, content_type, body.encode())

    def put(self, path: str, body: bytes) -> Answer:
        """Change what is logged. `koordlite.http.Change`."""
        if path != "/loglevel" or self._levels is None:
            return _plain(HTTPStatus.NOT_FOUND, "nothing is changed here; there is /loglevel")
        try:
            self._levels.put(body)
        except ValueError as error:
            return _plain(HTTPStatus.BAD_REQUEST, str(error))
        return _levels(self._levels)

    def _health(self) -> Answer:
        """Restarting cures a process that hangs, or has lost its way to the cluster; one failed cycle is no reason."""
        with self._lock:
            age, last = self._monotonic() - self._good_at, self._last
        late = age > self._allowed_seconds
        since = "the last good cycle began" if self._good else "it was started without a good cycle"
        words = f"{since} {duration.brief(age)} ago, {duration.brief(self._allowed_seconds)} are allowed"
        if last and last.error:
            words += f"; the last cycle failed: {last.error}"
        stuck = threads.unhealthy()
        words += f"; {stuck}" if stuck else ""
        return _plain(HTTPStatus.SERVICE_UNAVAILABLE if late or stuck else HTTPStatus.OK, words)

    def _ready(self) -> Answer:
        """It can serve, and reach the cluster. A cycle that failed for another reason is reported, and counted."""
        with self._lock:
            last = self._last
        if last is None:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "the first cycle has not ended yet")
        if last.unreachable:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, f"the cluster cannot be reached: {last.error}")
        if why := threads.not_ready():
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, why)
        role = "leader" if last.leader else "standby"
        words = f"{role}, {'dry run' if last.dry_run else 'evicting'}"
        return _plain(HTTPStatus.OK, words + (f"; the last cycle failed: {last.error}" if last.error else ""))


def _levels(levels: LogLevels) -> Answer:
    return Answer(HTTPStatus.OK, _JSON, f"{printable.document(levels.document())}\n".encode())


def _plan(result: CycleResult) -> EvictionPlan:
    assert result.plan is not None
    return result.plan


def _plain(status: HTTPStatus, words: str) -> Answer:
    return Answer(status, _TEXT, f"{printable.lines(words)}\n".encode(errors="replace"))
