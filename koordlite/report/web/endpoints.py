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

import msgspec
from prometheus_client import CollectorRegistry, exposition

from koordlite import threads
from koordlite.model import printable
from koordlite.model.status import Faults
from koordlite.report import health, pods
from koordlite.report.json import run_report
from koordlite.report.json.answer import Answer
from koordlite.report.metrics import families
from koordlite.report.past import NOTHING, Remembered
from koordlite.report.terminal.decision_log import Levels
from koordlite.report.tick import Tick

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
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
_EXPLAIN = "/explain/"
_OF_ONE = ("pod/", "cpu/", "file/", "numa/")
"""Questions asked by kind and name: `/explain/pod/NAME` is `explain pod NAME`."""


class _Published(msgspec.Struct, frozen=True):
    """The tick thread's hand-over: one immutable value, replaced whole."""

    tick: Tick
    past: Remembered
    at: float


Page = Callable[[Mapping[str, str], Tick, Remembered], Answer]
"""Query parameters, the last tick and what is remembered, to an answer."""


class Endpoints:
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
        self._registries = {
            "/metrics": registry,
            "/external-metrics": families.half(registry, external=True),
            "/internal-metrics": families.half(registry, external=False),
        }
        self._levels = levels or Levels(())
        self._folders = {"version": 1, **(folders or {})}
        self._published: _Published | None = None
        self._pages: dict[str, Page] = {
            "/state": _state,
            "/recent": _recent,
            "/pods": _pods,
            "/status": _status,
            "/explain": _explain,
        }

    def add(self, path: str, page: Page) -> None:
        """One more page about the last tick; before the server is started."""
        self._pages[path] = page

    def publish(self, tick: Tick, past: Remembered = NOTHING) -> None:
        """Make `tick` what is answered from; `past` is for explanations: "last change", and who wrote what."""
        self._published = _Published(tick, past, self._now())

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """The answer to GET `path`."""
        if path.startswith(_EXPLAIN):
            path, query = "/explain", {**query, "subject": _subject(path)}
        if path in self._pages:
            held = self._published
            return self._pages[path](query, held.tick, held.past) if held else _TOO_EARLY
        if path == "/":
            return self._front(query)
        if path in ("/healthz", "/readyz"):
            return self._health(path, verbose="verbose" in query)
        return self._about_agent(path, accept)

    def change(self, path: str, body: bytes) -> Answer:
        """The answer to PUT `path`; who asks has been let in already."""
        if path != "/loglevel":
            return Answer(404, PLAIN, b"only /loglevel can be changed\n")
        try:
            self._levels.put(body)
        except ValueError as error:
            return _plain(422, str(error))
        return Answer(200, JSON, run_report.encode(self._levels.document()))

    def _about_agent(self, path: str, accept: str) -> Answer:
        if path in self._registries:
            return _metrics(self._registries[path], accept)
        match path:
            case "/folders":
                return Answer(200, JSON, run_report.encode(self._folders))
            case "/loglevel":
                return Answer(200, JSON, run_report.encode(self._levels.document()))
        return Answer(404, PLAIN, f"no such page; there are / {' '.join(PATHS)}\n".encode())

    def _front(self, query: Mapping[str, str]) -> Answer:
        from koordlite.report.html import agent_page

        held = self._published
        tick, past = (held.tick, held.past) if held else (None, NOTHING)
        made = agent_page.served(tick, past, links=PATHS, refresh=query.get("refresh", "on") != "off")
        return Answer(200, HTML, made.text.encode(errors="replace"), made.headers)

    def _health(self, path: str, *, verbose: bool) -> Answer:
        held = self._published
        age = None if held is None else self._now() - held.at
        faults = held.tick.faults if held else Faults()
        checks = health.alive(age_seconds=age, period_seconds=self._period, faults=faults)
        checks += (health.Check("threads", threads.not_ready() if path == "/readyz" else threads.unhealthy()),)
        if path == "/readyz" and held is not None:
            checks += health.ready(held.tick, stale_seconds=self._stale)
        why = health.failing(checks)
        return _plain(503 if why else 200, health.text(checks).removesuffix("\n") if verbose else why or "ok")


def _metrics(registry: CollectorRegistry, accept: str) -> Answer:
    encode, content_type = exposition.choose_encoder(accept)
    return Answer(200, content_type, encode(registry))


def _plain(status: int, words: str) -> Answer:
    return Answer(status, PLAIN, f"{printable.lines(words)}\n".encode(errors="replace"))


_TOO_EARLY = Answer(503, PLAIN, b"no tick has ended yet\n")


def _state(query: Mapping[str, str], tick: Tick, past: Remembered) -> Answer:
    shown = run_report.state(tick)
    if query.get("picture") == "true":
        from koordlite.report.json import picture

        shown["picture"] = picture.document(tick.picture)
    return Answer(200, JSON, run_report.encode(shown))


def _recent(query: Mapping[str, str], tick: Tick, past: Remembered) -> Answer:
    from koordlite.report.json import run_report

    return Answer(200, JSON, run_report.encode(run_report.recent(past)))


def _pods(query: Mapping[str, str], tick: Tick, past: Remembered) -> Answer:
    about = {"version": run_report.VERSION, "kind": "koordlite-pods", "node": tick.node}
    return Answer(200, JSON, run_report.encode({**about, "pods": pods.of(tick, past.events)}))


def _status(query: Mapping[str, str], tick: Tick, past: Remembered) -> Answer:
    try:
        shown = _screen(query, tick, past)
    except ValueError as error:
        return _plain(400, str(error))
    if query.get("output") == "json":
        about = {"version": run_report.VERSION, "kind": "koordlite-screen", "status": tick.status, "text": shown}
        return Answer(200, JSON, run_report.encode(about))
    return Answer(200, PLAIN, shown.encode(errors="replace"))


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


_MOST_SIZE = 1000


def _explain(query: Mapping[str, str], tick: Tick, past: Remembered) -> Answer:
    subject, output = query.get("subject", ""), query.get("output", "text")
    if not subject:
        return Answer(400, PLAIN, b"say what about: /explain/besteffort\n")
    from koordlite.report.explain import subject as explain

    try:
        found = explain.explain(subject, tick, past, output=output, who=query.get("who") == "true")
    except ValueError as error:
        return _plain(404, str(error))
    return Answer(200, JSON if output == "json" else PLAIN, found.encode(errors="replace"))


def _subject(path: str) -> str:
    """`pod NAME` of `/explain/pod/NAME`, else what follows as it is."""
    asked = urllib.parse.unquote(path.removeprefix(_EXPLAIN))
    return asked.replace("/", " ", 1) if asked.startswith(_OF_ONE) else asked
