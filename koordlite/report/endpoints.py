"""What the agent answers over HTTP: health, metrics, the last tick, explanations. Knows no sockets.

/         links to the others
/healthz  200 while ticks come, else 503 with the reason in words
/readyz   200 once a tick was taken with the Node object known, else 503 with what is missing
/metrics  Prometheus text or OpenMetrics, as the caller asks
/state    the last tick as JSON
/status   the last tick on one screen, as text
/explain  ?subject=besteffort: the decisions about it; ?subject=config: the settings in force. &output=json for programs
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, exposition

from koordlite.report import explain, json, page, text
from koordlite.report.history import DecisionEvent
from koordlite.report.tick import Tick

PLAIN = "text/plain; charset=utf-8"
PATHS = (
    "/healthz",
    "/readyz",
    "/status",
    "/state",
    "/metrics",
    "/explain?subject=besteffort",
    "/explain?subject=config",
)
LATE_PERIODS = 3
"""A tick that is later than this many periods makes the agent unhealthy."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class _Published:
    """What the tick thread handed over: one immutable value, replaced whole."""

    tick: Tick
    events: Sequence[DecisionEvent]
    at: float


class Endpoints:
    """Answers from the last published tick. `publish` and `answer` may run in different threads."""

    def __init__(
        self,
        *,
        period_seconds: float,
        registry: CollectorRegistry,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._period, self._registry, self._now = period_seconds, registry, now
        self._published: _Published | None = None

    def publish(self, tick: Tick, events: Sequence[DecisionEvent] = ()) -> None:
        """Make `tick` what is answered from; `events` are the newest decisions, for "last change" in explanations."""
        self._published = _Published(tick, tuple(events), self._now())

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """The answer to GET `path`."""
        if path == "/metrics":
            return self._metrics(accept)
        if path == "/":
            return Answer(200, "text/html; charset=utf-8", _index().encode())
        if path in ("/healthz", "/readyz"):
            why = self._why_unhealthy() or (self._why_not_ready() if path == "/readyz" else "")
            return Answer(503 if why else 200, PLAIN, f"{why or 'ok'}\n".encode())
        if path in ("/state", "/status", "/explain"):
            return self._about_tick(path, query)
        return Answer(404, PLAIN, f"no such page; there are / {' '.join(PATHS)}\n".encode())

    def _metrics(self, accept: str) -> Answer:
        encode, content_type = exposition.choose_encoder(accept)
        return Answer(200, content_type, encode(self._registry))

    def _why_unhealthy(self) -> str:
        held = self._published
        if held is None:
            return "no tick has ended yet"
        age = self._now() - held.at
        if age > LATE_PERIODS * self._period:
            return f"the last tick ended {age:.1f} s ago; one is due every {self._period:g} s"
        return ""

    def _why_not_ready(self) -> str:
        tick = self._published.tick if self._published else None
        if tick is None or not tick.node:
            return "the Node object has not been seen yet"
        lacking = (decision for decision in tick.decisions if decision.reason == "ResctrlRequired")
        return next((f"resctrl is required: {decision.evidence['why']}" for decision in lacking), "")

    def _about_tick(self, path: str, query: Mapping[str, str]) -> Answer:
        held = self._published
        if held is None:
            return Answer(503, PLAIN, b"no tick has ended yet\n")
        if path == "/state":
            return Answer(200, "application/json", json.encode(json.state(held.tick)))
        if path == "/status":
            return Answer(200, PLAIN, text.status(held.tick).encode())
        return _explain(query.get("subject", ""), query.get("output", "text"), held)


def _explain(subject: str, output: str, held: _Published) -> Answer:
    if not subject:
        return Answer(400, PLAIN, b"say what about: /explain?subject=besteffort\n")
    try:
        found = explain.explain(subject, held.tick, held.events, output=output)
    except ValueError as error:
        return Answer(404, PLAIN, f"{error}\n".encode())
    return Answer(200, "application/json" if output == "json" else PLAIN, found.encode())


def _index() -> str:
    links = [page.el("li", page.el("a", path, href=f".{path}")) for path in PATHS]
    return page.page("koordlite", page.section("What this agent answers", page.el("ul", links)))
