"""Answers of the agent over HTTP: health, metrics, the last tick, explanations, levels of the log. Knows no sockets.

/          a page for people: what `koordlite top` shows, the last decisions, links to the others; ?refresh=off
/healthz   200 while ticks come without a fault of ours, else 503 with the reason in words; ?verbose lists the checks
/readyz    200 while the node, fresh inputs and what is required are there, else 503 with what is missing; ?verbose
/metrics   Prometheus text or OpenMetrics, as the caller asks; /external-metrics and /internal-metrics are koordlet's
           two halves of it: about pods and what they may request, and about the agent
/state     the last tick as JSON; ?picture=true adds all that it judged
/recent    numbers and decisions of the last minutes as JSON
/status    the last tick on one screen, as text; &view=live: a frame of `koordlite top`; =node: without pods. &width=,
           &height=, &color= are those of the terminal; &output=json adds the status as one word
/pods      the pods of the node as JSON, the busiest first
/explain   /explain/besteffort or ?subject=besteffort: the decisions about it; config: the settings in force;
           /explain/pod/NAME: all that concerns a pod. &output=json for programs
/folders   where this agent keeps its record and its state on its machine, and whether that machine is emulated
/loglevel  which decisions are logged; a PUT of {"level": "debug", "strategy": "cpuSuppress"} changes that

What draws screens, pages and explanations is imported when one is requested: most agents are asked only for health and
metrics.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from koordlite import threads
from koordlite.http import answers
from koordlite.http.answers import JSON, TEXT, Answer, Request, Router, metrics, plain
from koordlite.model.status import Faults
from koordlite.report import health, pods
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.json import run_report
from koordlite.report.metrics import families
from koordlite.report.terminal.decision_log import Levels
from koordlite.report.tick import Tick

PATHS = (
    "/healthz",
    "/readyz",
    "/status",
    "/state",
    "/recent",
    "/pods",
    "/metrics",
    "/external-metrics",
    "/internal-metrics",
    "/explain?subject=besteffort",
    "/explain?subject=config",
    "/folders",
    "/loglevel",
)
_MOST_SIZE = 1000
_OF_ONE = ("pod/", "cpu/", "file/", "numa/")
"""Questions asked by kind and name: `/explain/pod/NAME` is `explain pod NAME`."""


class _Published(msgspec.Struct, frozen=True):
    """The tick thread's hand-over: one immutable value, replaced whole."""

    tick: Tick
    past: Remembered
    at: float


Page = Callable[[Request, Tick, Remembered], Answer]
"""A request, the last tick and what is remembered, to an answer."""


class Endpoints(Router):
    """Answers from the last published tick. `publish` and `answer` may run in different threads."""

    def __init__(
        self,
        *,
        period_seconds: float,
        registry: CollectorRegistry,
        stale_seconds: float = 60.0,
        levels: Levels | None = None,
        folders: Mapping[str, str | bool] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stale_seconds` is the age from which an input makes the agent unready; `folders` is the answer of
        /folders."""
        self._period, self._stale, self._now = period_seconds, stale_seconds, now
        self._published: _Published | None = None
        external, internal = families.half(registry, external=True), families.half(registry, external=False)
        pages = {
            "/": self._front,
            "/healthz": self._health,
            "/livez": self._health,
            "/readyz": self._health,
            "/external-metrics": lambda request: metrics(external, request.accept),
            "/internal-metrics": lambda request: metrics(internal, request.accept),
            "/folders": lambda request: _json({"version": 1, "node": self._node, **(folders or {})}),
        }
        super().__init__(pages, registry=registry, levels=levels or Levels(()))
        for path, page in _PAGES.items():
            self.add(path, page)

    def add(self, path: str, page: Page) -> None:
        """One more page about the last tick; before the server is started."""

        def answer(request: Request) -> Answer:
            last = self._published
            return page(request, last.tick, last.past) if last else plain(503, "no tick has ended yet")

        self.pages[path] = answer

    def publish(self, tick: Tick, past: Remembered = NOTHING) -> None:
        """Make `tick` what is answered from; `past` is for explanations: "last change", and who wrote what."""
        self._published = _Published(tick, past, self._now())

    @property
    def _node(self) -> str:
        return self._published.tick.node if self._published else ""

    def _front(self, request: Request) -> Answer:
        from koordlite.report.html import agent_page

        last = self._published
        tick, past = (last.tick, last.past) if last else (None, NOTHING)
        refresh = request.query.get("refresh", "on") != "off"
        return answers.page(agent_page.served(tick, past, links=PATHS, refresh=refresh))

    def _health(self, request: Request) -> Answer:
        last, is_ready = self._published, request.path == "/readyz"
        age = None if last is None else self._now() - last.at
        faults = last.tick.faults if last else Faults()
        checks = health.alive(age_seconds=age, period_seconds=self._period, faults=faults)
        checks += (health.Check("threads", threads.not_ready() if is_ready else threads.unhealthy()),)
        if is_ready and last is not None:
            checks += health.ready(last.tick, stale_seconds=self._stale)
        why = health.failing(checks)
        words = health.text(checks).removesuffix("\n") if "verbose" in request.query else why or "ok"
        return plain(503 if why else 200, words)


def _json(document: dict[str, Any]) -> Answer:
    return Answer(200, JSON, run_report.encode(document))


def _state(request: Request, tick: Tick, past: Remembered) -> Answer:
    with_picture = request.query.get("picture") == "true"
    return _json(run_report.state(tick) | ({"picture": run_report.picture(tick.snapshot)} if with_picture else {}))


def _pods(request: Request, tick: Tick, past: Remembered) -> Answer:
    head = {"version": run_report.VERSION, "kind": "koordlite-pods", "node": tick.node}
    return _json({**head, "pods": pods.of(tick, past.events)})


def _status(request: Request, tick: Tick, past: Remembered) -> Answer:
    try:
        screen = _screen(request.query, tick, past)
    except ValueError as error:
        return plain(400, str(error))
    if request.query.get("output") == "json":
        head = {"version": run_report.VERSION, "kind": "koordlite-screen", "status": tick.status}
        return _json({**head, "text": screen})
    return Answer(200, TEXT, screen.encode(errors="replace"))


def _screen(query: Mapping[str, str], tick: Tick, past: Remembered) -> str:
    """ValueError when a parameter is wrong."""
    width, color = _size(query, "width", 100), query.get("color", "")
    if query.get("view") not in ("live", "node"):
        from koordlite.report.terminal import status

        return status.screen(tick, width=width, color=bool(color))
    from koordlite.report.terminal import screen

    height, whole = _size(query, "height", 48, least=3), query["view"] == "live"
    return screen.frame(tick, past, width=width, height=height, colors=color, with_pods=whole)


def _size(query: Mapping[str, str], name: str, default: int, *, least: int = 10) -> int:
    """Columns or lines of a terminal."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and least <= int(text) <= _MOST_SIZE):
        raise ValueError(f"{name} is {text[:20]!r}; write a number from {least} to {_MOST_SIZE}")
    return int(text)


def _explain(request: Request, tick: Tick, past: Remembered) -> Answer:
    query = request.query
    subject, output = urllib.parse.unquote(request.rest) or query.get("subject", ""), query.get("output", "text")
    if not subject:
        return plain(400, "say what about: /explain/besteffort")
    if subject.startswith(_OF_ONE):
        subject = subject.replace("/", " ", 1)
    from koordlite.report.explain import subject as explain

    try:
        text = explain.explain(subject, tick, past, output=output, who=query.get("who") == "true")
    except ValueError as error:
        return plain(404, str(error))
    if "text/html" in request.accept and "output" not in query:
        from koordlite.report.html import agent_page

        return answers.page(agent_page.explained(subject, text, tick, up="../" * (request.path.count("/") - 1)))
    return Answer(200, JSON if output == "json" else TEXT, text.encode(errors="replace"))


_PAGES: dict[str, Page] = {
    "/state": _state,
    "/recent": lambda _request, _tick, past: _json(run_report.recent(past)),
    "/pods": _pods,
    "/status": _status,
    "/explain": _explain,
    "/explain/": _explain,
}
