"""The extender over HTTP: the verbs for the scheduler, the rest for people and probes.

A bad body is answered with 400 and the field that is wrong. What cannot be decided is answered with 200 and `Error`,
which the scheduler shows as it is; with `ignorable: true` it goes on without us.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from prometheus_client import generate_latest

from koordlite import threads
from koordlite.model import printable
from koordlite.model.errors import InputError
from koordlite.report.json.answer import Answer
from koordlite.report.log_levels import LogLevels
from koordlite.scheduler import protocol
from koordlite.scheduler.extender import Extender, NotReady, Victims
from koordlite.scheduler.promises import Promises
from koordlite.scheduler.report import documents, page, texts
from koordlite.scheduler.report.metrics import ExtenderMetrics

_TEXT, _JSON, _HTML = "text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def settle_memory() -> None:
    """Freeze what was listed: the garbage collector need not look at it again and again, nor at every answer.

    Answers are thousands of short-lived objects without cycles, and a collection delays the pod that waits for one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


class Service:
    """Answers from many threads. `watches`: their states, for the page."""

    def __init__(
        self,
        extender: Extender,
        levels: LogLevels,
        *,
        watches: Callable[[], list[dict[str, Any]]] = list,
        promises: Promises | None = None,
    ) -> None:
        self.metrics = ExtenderMetrics(extender, promises)
        self._extender, self._levels, self._watches = extender, levels, watches
        self._verbs: dict[str, Callable[[bytes], tuple[bytes, str]]] = {
            "/filter": self._filter,
            "/prioritize": self._prioritize,
            "/preempt": self._preempt,
            "/bind": self._bind,
        }
        self._pages: dict[str, Callable[[], Answer]] = {
            "/": self._front,
            "/debug/state": lambda: _json(self._state()),
            "/loglevel": lambda: _json(levels.document()),
            "/metrics": lambda: Answer(HTTPStatus.OK, _METRICS, generate_latest(self.metrics.registry)),
            "/healthz": lambda: _well(threads.unhealthy()),
            "/livez": lambda: _well(threads.unhealthy()),
            "/readyz": self._ready,
        }

    def post(self, path: str, body: bytes) -> Answer:
        """A verb. `koordlite.http.Change`."""
        ask = self._verbs.get(path)
        if ask is None:
            return _plain(HTTPStatus.NOT_FOUND, f"there is no verb {path}; there are {', '.join(self._verbs)}")
        started = time.perf_counter()
        answer, result = self._answered(ask, body)
        self.metrics.observe(path.lstrip("/"), result, time.perf_counter() - started)
        return answer

    def put(self, path: str, body: bytes) -> Answer:
        """A changed setting. `koordlite.http.Change`."""
        if path != "/loglevel":
            return _plain(HTTPStatus.NOT_FOUND, "nothing is changed here; there is /loglevel")
        try:
            self._levels.put(body)
        except ValueError as error:
            return _plain(HTTPStatus.BAD_REQUEST, str(error))
        return _json(self._levels.document())

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """`koordlite.http.Ask`."""
        first, _, rest = path.strip("/").partition("/")
        if first in ("explain", "state") and rest:
            return self._explained(rest, query, accept) if first == "explain" else self._node(rest, accept)
        page_of = self._pages.get(path)
        if page_of is not None:
            return page_of()
        known = ", ".join([*self._pages, "/explain/NAMESPACE/POD", "/state/NODE"])
        return _plain(HTTPStatus.NOT_FOUND, f"nothing is here; there is {known}")

    def health(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """The part of `answer` that others than people and schedulers need: health and metrics."""
        if path in ("/healthz", "/livez", "/readyz", "/metrics"):
            return self.answer(path, query, accept)
        return _plain(HTTPStatus.NOT_FOUND, "here are only /healthz, /livez, /readyz and /metrics")

    def _answered(self, ask: Callable[[bytes], tuple[bytes, str]], body: bytes) -> tuple[Answer, str]:
        try:
            found, result = ask(body)
        except InputError as error:
            return _plain(HTTPStatus.BAD_REQUEST, str(error)), "bad_request"
        except NotReady as error:
            return Answer(HTTPStatus.OK, _JSON, protocol.error_answer(str(error))), "error"
        except Exception as error:  # noqa: BLE001 - the next question may be another one
            why = self._extender.cluster.faults.note("the whole question", error)
            return Answer(HTTPStatus.OK, _JSON, protocol.error_answer(why)), "error"
        return Answer(HTTPStatus.OK, _JSON, found), result

    def _filter(self, body: bytes) -> tuple[bytes, str]:
        arguments = protocol.read(protocol.Arguments, body, "filter")
        names = protocol.names_of(arguments)
        passed, refused = self._extender.filter(arguments.pod, names)
        return protocol.filter_answer(arguments, names, passed, refused), "ok" if passed else "refused"

    def _prioritize(self, body: bytes) -> tuple[bytes, str]:
        arguments = protocol.read(protocol.Arguments, body, "prioritize")
        return protocol.scores_answer(self._extender.prioritize(arguments.pod, protocol.names_of(arguments))), "ok"

    def _preempt(self, body: bytes) -> tuple[bytes, str]:
        arguments = protocol.read(protocol.PreemptionArguments, body, "preempt")
        found = self._extender.preempt(arguments.pod, _given(arguments))
        answer = protocol.preemption_answer({n: (list(v.uids), v.violations) for n, v in found.items()})
        return answer, "ok" if found else "refused"

    def _bind(self, body: bytes) -> tuple[bytes, str]:
        asked = protocol.read(protocol.BindingArguments, body, "bind")
        error = self._extender.bind(asked.namespace, asked.name, asked.uid, asked.node)
        return (protocol.error_answer(error), "error") if error else (b"{}", "ok")

    def _ready(self) -> Answer:
        return _well(self._extender.not_ready() or threads.not_ready(), "ready")

    def _front(self) -> Answer:
        shown = page.front(self._state())
        return Answer(HTTPStatus.OK, _HTML, shown.text.encode(), shown.headers)

    def _state(self) -> dict[str, Any]:
        return documents.of_all(self._extender, self._watches())

    def _explained(self, key: str, query: Mapping[str, str], accept: str) -> Answer:
        found = documents.of_pod(self._extender, key)
        if found is None:
            why = f"no scheduler has asked about pod {key} since this extender started, or it is too long ago"
            return _plain(HTTPStatus.NOT_FOUND, why)
        return _shown(f"pod {key}", found, texts.pod(found, every="all" in query), accept)

    def _node(self, name: str, accept: str) -> Answer:
        found = documents.of_node(self._extender.cluster, name)
        if found is None:
            return _plain(HTTPStatus.NOT_FOUND, f"node {name} is unknown here")
        return _shown(f"node {name}", found, texts.node(found), accept)


def _given(arguments: protocol.PreemptionArguments) -> dict[str, Victims]:
    """The victims by node, in whichever form they came."""
    if arguments.meta_victims is not None:
        return {
            node: Victims(tuple(pod.uid for pod in each.pods or ()), each.violations)
            for node, each in arguments.meta_victims.items()
        }
    return {
        node: Victims(tuple(pod.metadata.uid for pod in each.pods or ()), each.violations)
        for node, each in (arguments.victims or {}).items()
    }


def _shown(title: str, found: dict[str, Any], lines: Any, accept: str) -> Answer:
    """JSON for programs, a page for browsers."""
    if "text/html" not in accept:
        return _json(found)
    shown = page.lines(title, lines)
    return Answer(HTTPStatus.OK, _HTML, shown.text.encode(), shown.headers)


def _json(found: Any) -> Answer:
    return Answer(HTTPStatus.OK, _JSON, json.dumps(found).encode())


def _well(why_not: str, words: str = "ok") -> Answer:
    return _plain(HTTPStatus.SERVICE_UNAVAILABLE, why_not) if why_not else _plain(HTTPStatus.OK, words)


def _plain(status: HTTPStatus, words: str) -> Answer:
    return Answer(status, _TEXT, f"{printable.lines(words)}\n".encode(errors="replace"))
