"""The extender over HTTP: the verbs for the scheduler, the rest for people, probes and Prometheus.

A bad body is answered with 400 and the field that is wrong. What cannot be decided is answered with 200 and `Error`,
which the scheduler shows as it is; with `ignorable: true` it goes on without us.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koordlite.http.answers import JSON, Answer, Request, Router, encoded, plain
from koordlite.http.answers import page as html
from koordlite.model.errors import InputError
from koordlite.report.log_levels import LogLevels
from koordlite.report.metrics import families
from koordlite.scheduler import making_room, protocol
from koordlite.scheduler.extender import Extender, NotReady
from koordlite.scheduler.promises import Promises
from koordlite.scheduler.report import documents, pages
from koordlite.threads import Worker


def settle_memory() -> None:
    """Freeze what was listed: the garbage collector need not look at it again and again, nor at every answer.

    Answers are thousands of short-lived objects without cycles, and a collection delays the pod that waits for one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


class Service(Router):
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
        self._extender, self._watches = extender, watches
        self._searching = threading.Lock()
        """Held by one search for room after the other."""
        handlers = {
            "/": lambda request: html(pages.front(self._state())),
            "/debug/state": lambda request: encoded(self._state()),
            "/explain/": self._explained,
            "/state/": self._node,
        }
        super().__init__(handlers, ready=extender.not_ready, registry=self.metrics.registry, levels=levels)
        self._verbs: dict[str, Callable[[bytes], tuple[bytes, str]]] = {
            "/filter": self._filter,
            "/prioritize": self._prioritize,
            "/preempt": self._preempt,
            "/bind": self._bind,
        }

    def post(self, path: str, body: bytes) -> Answer:
        """A verb. `koordlite.http.Change`."""
        ask = self._verbs.get(path)
        if ask is None:
            return plain(404, f"there is no verb {path}; there are {', '.join(self._verbs)}")
        started = time.perf_counter()
        answer, result = self._answered(ask, body)
        self.metrics.observe(path.lstrip("/"), result, time.perf_counter() - started)
        return answer

    def _answered(self, ask: Callable[[bytes], tuple[bytes, str]], body: bytes) -> tuple[Answer, str]:
        try:
            reply, result = ask(body)
        except InputError as error:
            return plain(400, str(error)), "bad_request"
        except NotReady as error:
            return Answer(200, JSON, protocol.error_answer(str(error))), "error"
        except Exception as error:  # noqa: BLE001 - the next question may be another one
            why = self._extender.cluster.faults.note("the whole question", error)
            return Answer(200, JSON, protocol.error_answer(why)), "error"
        return Answer(200, JSON, reply), result

    def _filter(self, body: bytes) -> tuple[bytes, str]:
        arguments, names = protocol.question(body, "filter")
        passed, refused = self._extender.filter(arguments.pod, names)
        return protocol.filter_answer(arguments, names, passed, refused), "ok" if passed else "refused"

    def _prioritize(self, body: bytes) -> tuple[bytes, str]:
        arguments, names = protocol.question(body, "prioritize")
        return protocol.scores_answer(self._extender.prioritize(arguments.pod, names)), "ok"

    def _preempt(self, body: bytes) -> tuple[bytes, str]:
        arguments = protocol.read(protocol.PreemptionArguments, body, "preempt")
        victims = self._extender.preempt(arguments.pod, arguments.by_node)
        return protocol.preemption_answer(victims), "ok" if victims else "refused"

    def _bind(self, body: bytes) -> tuple[bytes, str]:
        binding = protocol.read(protocol.BindingArguments, body, "bind")
        error = self._extender.bind(binding.namespace, binding.name, binding.uid, binding.node)
        return (protocol.error_answer(error), "error") if error else (b"{}", "ok")

    def _state(self) -> dict[str, Any]:
        return documents.of_all(self._extender, self._watches())

    def _explained(self, request: Request) -> Answer:
        key = request.rest.strip("/")
        document = documents.of_pod(self._extender, key)
        if "make-room" in request.query:
            if not self._searching.acquire(timeout=SEARCH_SECONDS):
                return plain(503, "others look for room at this moment; ask again")
            try:
                waiting = making_room.document(self._extender, key, Courtesy())
            finally:
                self._searching.release()
            if waiting is not None:
                document = {**(document or {"pod": key}), "waiting": waiting}
        if document is None:
            why = f"no scheduler has asked about pod {key} since this extender started, or it is too long ago"
            return plain(404, why)
        return html(pages.pod(document)) if "text/html" in request.accept else encoded(document)

    def _node(self, request: Request) -> Answer:
        name = request.rest.strip("/")
        node = documents.of_node(self._extender.cluster, name)
        if node is None:
            return plain(404, f"node {name} is unknown here")
        return html(pages.node(node)) if "text/html" in request.accept else encoded(node)


SEARCH_SECONDS = 3.0
"""Longest wait of a search for room until another one has ended; a front waits five seconds for the answer."""
_TURN_SECONDS = 0.001
_REST_SECONDS = 0.0002


class Courtesy:
    """Gives other threads their turn: a search is nothing but Python, and would keep the interpreter for five
    milliseconds each time while a scheduler waits for its answer."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        """Rest for a moment once a millisecond has passed."""
        if time.perf_counter() - self._since > _TURN_SECONDS:
            time.sleep(_REST_SECONDS)
            self._since = time.perf_counter()


LOOK_SECONDS = 0.05
MOST_SHAPES = 4
"""Boards that are brought up to date in one look: the lock is free in between."""


class Warmth:
    """Looks for changes in a thread of its own."""

    def __init__(self, extender: Extender) -> None:
        self._extender, self._stop = extender, threading.Event()
        self._worker = Worker("warmth", self._run)

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._worker.is_alive():
            self._worker.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._worker.beat()
            self._extender.warm(MOST_SHAPES)


_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class ExtenderMetrics(Collector):
    """One registry; the state of the cache is read at each scrape."""

    def __init__(self, extender: Extender, promises: Promises | None = None) -> None:
        self.registry = CollectorRegistry()
        self._extender, self._promises = extender, promises
        self._requests = Counter(
            "koordlite_scheduler_requests", "Requests of schedulers", ("verb", "result"), registry=self.registry
        )
        self._seconds = Histogram(
            "koordlite_scheduler_request_seconds",
            "From the whole request to the answer",
            ("verb",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(self)

    def observe(self, verb: str, result: str, seconds: float) -> None:
        """One request. `result`: ok, refused (nothing was done or no node passes), error, bad_request."""
        self._requests.labels(verb, result).inc()
        self._seconds.labels(verb).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """The cache and the counters of the extender."""
        cluster = self._extender.cluster
        with cluster.lock:
            states, now = list(cluster.states()), cluster.now()
            reported = [state for state in states if state.report is not None]
            dirty = [now - state.dirty_since for state in reported if state.dirty_since is not None]
            refusals, ends = dict(self._extender.refusals), dict(cluster.assumed.ends)
            assumed, wrong = len(cluster.assumed), cluster.predicted_wrong
            unusable = sum(row is not None and bool(row.unusable) for row in cluster.rows)
            oldest = max((now - state.report_since for state in reported), default=0.0)
        gauges = [
            ("nodes", "Nodes that are known", len(states)),
            ("reported_nodes", "Nodes with a NodeResourceTopology", len(reported)),
            ("dirty_nodes", "Nodes where the report does not count all pods", len(dirty)),
            ("dirty_seconds_max", "How long the report of a node has not been that of its pods", max([0.0, *dirty])),
            ("unusable_nodes", "Nodes about which nothing may be concluded at present", unusable),
            ("report_unchanged_seconds_max", "Age of the report that did not change longest", oldest),
            ("reservations", "Pods on their way to a node", assumed),
        ]
        counters: list[tuple[str, str, tuple[str, ...], Mapping[str, int]]] = [
            ("predicted_wrong", "Bound pods that kubelet refused for their topology", (), {"": wrong}),
            ("faults", "Nodes and questions left out by faults of the program", (), {"": cluster.faults.total}),
            ("refused_nodes", "Nodes refused by filter", ("reason",), refusals),
            ("reservations_ended", "Reservations that ended, by reason", ("reason",), ends),
        ]
        if (promises := self._promises) is not None:
            gauges.append(("unpromised_pods", "Bound pods without the promise that they need", promises.missing))
            meaning = "Promises to pods that were bound without one, and those that follow a resize"
            counters.append(("late_promises", meaning, ("result",), promises.results))
        for name, meaning, value in gauges:
            yield families.single(f"koordlite_scheduler_{name}", meaning, value)
        for name, meaning, labels, counts in counters:
            samples = [((key,) if labels else (), count) for key, count in counts.items()]
            yield families.counter(f"koordlite_scheduler_{name}", meaning, labels, samples)
