"""Answers to HTTP requests, and the table of paths that gives them. No sockets: `server` sends what comes from here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from koordlite import threads
from koordlite.model import printable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

TEXT, JSON, HTML = "text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"
HEALTH = ("/healthz", "/livez", "/readyz")
"""Paths for probes, which are open to everyone."""


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Headers besides those that every answer has."""


class Request(msgspec.Struct, frozen=True):
    """A GET request as its handler reads it."""

    path: str
    query: Mapping[str, str]
    accept: str
    rest: str = ""
    """The path below that of the handler, as sent: still percent-encoded."""


Handler = Callable[[Request], Answer]


class Shown(Protocol):
    """A page with the headers it is served under, such as `report.html.page.Strict`."""

    @property
    def text(self) -> str:
        """The document."""

    @property
    def headers(self) -> dict[str, str]:
        """Its headers."""


class Levels(Protocol):
    """Log levels that can be changed while the server runs."""

    def document(self) -> Any:
        """The levels in force, for JSON."""

    def put(self, body: bytes) -> object:
        """Put a requested level in force. ValueError says what is wrong with the request."""


def plain(status: int, words: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A sentence. Plain text, so that a browser obeys nothing in it."""
    return Answer(status, TEXT, f"{printable.lines(words)}\n".encode(errors="replace"), headers or {})


def encoded(document: Any) -> Answer:
    """A document as JSON."""
    return Answer(200, JSON, json.dumps(document).encode())


def page(document: Shown) -> Answer:
    """A page for people."""
    return Answer(200, HTML, document.text.encode(errors="replace"), document.headers)


def metrics(registry: CollectorRegistry, accept: str) -> Answer:
    """Everything in the registry, as Prometheus text or as OpenMetrics, whichever the client prefers."""
    from prometheus_client import exposition  # Commands that only ask need none of it.

    encode, content_type = exposition.choose_encoder(accept)
    return Answer(200, content_type, encode(registry))


def well(why_not: str, words: str = "ok") -> Answer:
    """Health: 503 with the reason, or 200."""
    return plain(503, why_not) if why_not else plain(200, words)


class Router:
    """The answers of one server: `answer` and `put` are what `server.Server` calls, from many threads."""

    def __init__(
        self,
        pages: Mapping[str, Handler],
        *,
        ready: Callable[[], str] = lambda: "",
        registry: CollectorRegistry | None = None,
        levels: Levels | None = None,
    ) -> None:
        """`pages`: path to handler; a path that ends in a slash stands for all below it. Health is answered from the
        process's threads, and readiness from `ready` as well, unless `pages` has its own. `registry` is served at
        /metrics, `levels` at /loglevel, where PUT changes them."""
        self._levels = levels
        self.pages: dict[str, Handler] = {
            "/healthz": lambda request: well(threads.unhealthy()),
            "/livez": lambda request: well(threads.unhealthy()),
            "/readyz": lambda request: well(ready() or threads.not_ready(), "ready"),
        }
        if registry is not None:
            self.pages["/metrics"] = lambda request: metrics(registry, request.accept)
        if levels is not None:
            self.pages["/loglevel"] = lambda request: encoded(levels.document())
        self.pages |= pages

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """Answer GET `path`."""
        handler = self.pages.get(path) or self.pages.get(path.rstrip("/"))
        if handler is not None:
            return handler(Request(path, query, accept))
        above = [each for each in self.pages if each.endswith("/") and each != "/" and path.startswith(each)]
        if above:
            prefix = max(above, key=len)
            return self.pages[prefix](Request(path, query, accept, path.removeprefix(prefix)))
        return plain(404, f"nothing is here; there is {', '.join(sorted(self.pages))}")

    def probes(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """Answer what others than people and schedulers need: health and metrics."""
        if path in (*HEALTH, "/metrics"):
            return self.answer(path, query, accept)
        return plain(404, f"here are only {', '.join(HEALTH)} and /metrics")

    def put(self, path: str, body: bytes) -> Answer:
        """Change the log levels; the guard has let the caller."""
        if path != "/loglevel" or self._levels is None:
            return plain(404, "nothing is changed here" + ("; there is /loglevel" if self._levels else ""))
        try:
            self._levels.put(body)
        except ValueError as error:
            return plain(400, str(error))
        return encoded(self._levels.document())
