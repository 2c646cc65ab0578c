"""HTTP answers of a running descheduler: health, metrics, and the report of its last cycle."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from descheduler.report import document, html, text
from descheduler.serve import page
from descheduler.serve.loop import CycleResult
from koordlite import threads
from koordlite.http import answers
from koordlite.http.answers import HTML, JSON, TEXT, Answer, Handler, Request, Router, plain
from koordlite.model import duration
from koordlite.report.log_levels import LogLevels

CYCLES = 20
"""Number of the last cycles that the front page lists."""
LATE_INTERVALS = 3
"""Healthy while the last good cycle began no longer ago than so many intervals,"""
LATE_SECONDS = 60.0
"""and this much more, for a cycle that takes its time."""


class Endpoints(Router):
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
        self._monotonic = monotonic
        self._allowed_seconds = LATE_INTERVALS * interval_seconds + LATE_SECONDS
        self._lock = threading.Lock()
        self._last: CycleResult | None = None
        self._good: CycleResult | None = None
        self._good_at = monotonic()
        self._past: collections.deque[page.Cycle] = collections.deque(maxlen=CYCLES)
        pages: dict[str, Handler] = {
            "/healthz": lambda request: self._health(),
            "/livez": lambda request: self._health(),
            "/readyz": lambda request: self._ready(),
            "/": self._front,
            "/report": self._report(HTML, html.render),
            "/report.json": self._report(JSON, document.encode),
            "/report.txt": self._report(TEXT, text.render),
        }
        super().__init__(pages, registry=registry, levels=levels)

    def publish(self, result: CycleResult) -> None:
        """Make this round the one that is shown. A failed one leaves the last good report in place."""
        with self._lock:
            self._last = result
            self._past.append(page.Cycle.of(result))
            if result.plan is not None:
                self._good, self._good_at = result, self._monotonic() - result.seconds

    def _report(self, content_type: str, render: Callable[..., str]) -> Handler:
        """The report of the last good cycle, with the failure of a later one."""

        def answer(request: Request) -> Answer:
            with self._lock:
                good, failure = self._good, self._last.error if self._last else ""
            if good is None or good.plan is None:
                return _NONE_YET
            body = render(good.plan, attempts=good.attempts, dry=good.dry_run, failure=failure)
            return Answer(200, content_type, body.encode())

        return answer

    def _front(self, request: Request) -> Answer:
        """List what has `node` of the query in its name."""
        with self._lock:
            good, past = self._good, tuple(self._past)
        if good is None:
            return _NONE_YET
        node, refresh = request.query.get("node", "").strip(), request.query.get("refresh") != "off"
        return answers.page(page.strict(good, past, node, refresh=refresh))

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
        return plain(503 if late or stuck else 200, words)

    def _ready(self) -> Answer:
        """Answer 503 while it cannot serve or reach the cluster. A cycle that failed for another reason is reported."""
        with self._lock:
            last = self._last
        if last is None:
            return plain(503, "the first cycle has not ended yet")
        if last.unreachable:
            return plain(503, f"the cluster cannot be reached: {last.error}")
        if why := threads.not_ready():
            return plain(503, why)
        role = "leader" if last.leader else "standby"
        words = f"{role}, {'dry run' if last.dry_run else 'evicting'}"
        return plain(200, words + (f"; the last cycle failed: {last.error}" if last.error else ""))


_NONE_YET = plain(503, "no cycle has ended yet")
