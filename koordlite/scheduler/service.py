"""The extender over HTTP: the verbs for the scheduler, the rest for people, probes and Prometheus.

Bodies have Go's field names, and one list or the other. Unknown fields are ignored, a wrong type or a missing pod is an
InputError that names the field. Source: kube-scheduler 1.36 against a recording extender, and
k8s.io/kube-scheduler/extender/v1.

A bad body is answered with 400 and the field that is wrong. What cannot be decided is answered with 200 and `Error`,
which the scheduler shows as it is; with `ignorable: true` it goes on without us.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koordlite.http.answers import JSON, Answer, Request, Router, encoded, plain
from koordlite.http.answers import page as html
from koordlite.model.errors import InputError, Problem, refusing
from koordlite.model.wire import objects
from koordlite.report.log_levels import LogLevels
from koordlite.report.metrics import families
from koordlite.scheduler import making_room
from koordlite.scheduler.extender import Extender, NotReady
from koordlite.scheduler.nominations import LEAVING, Victims
from koordlite.scheduler.promises import Promises
from koordlite.scheduler.report import documents, pages
from koordlite.scheduler.retries import Retries

T = TypeVar("T")


class _Body(msgspec.Struct, kw_only=True):
    """A body; field names are Go's."""


class NodeList(_Body):
    """`Nodes`: whole Node objects, kept as they came so that they can be given back."""

    items: list[msgspec.Raw] | None = None


class Arguments(_Body):
    """Body of filter and prioritize: a pod, and nodes by name (`nodeCacheCapable`) or as objects."""

    pod: objects.PodObject = msgspec.field(name="Pod")
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: list[str] | None = msgspec.field(name="NodeNames", default=None)


class MetaVictim(_Body):
    """A victim by uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(_Body):
    """The victims of one node, and how many of them a PodDisruptionBudget protects."""

    pods: list[MetaVictim] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PodVictims(_Body):
    """The same with whole pods."""

    pods: list[objects.PodObject] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArguments(_Body):
    """Body of preempt: the victims that the scheduler would evict, by node."""

    pod: objects.PodObject = msgspec.field(name="Pod")
    victims: dict[str, PodVictims] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta_victims: dict[str, MetaVictims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)

    @property
    def by_node(self) -> dict[str, Victims]:
        """The victims, in whichever form they came."""
        if self.meta_victims is not None:
            return {
                node: Victims(tuple(pod.uid for pod in each.pods or ()), each.violations)
                for node, each in self.meta_victims.items()
            }
        return {
            node: Victims(tuple(pod.metadata.uid for pod in each.pods or ()), each.violations)
            for node, each in (self.victims or {}).items()
        }


class BindingArguments(_Body):
    """Body of bind."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class _HostPriority(msgspec.Struct, gc=False):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


class _NodeName(msgspec.Struct):
    metadata: objects.ObjectMeta = objects.ObjectMeta()


_READERS: dict[Any, msgspec.json.Decoder[Any]] = {
    shape: msgspec.json.Decoder(shape) for shape in (Arguments, PreemptionArguments, BindingArguments, _NodeName)
}


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
        retries: Retries | None = None,
    ) -> None:
        self.metrics = ExtenderMetrics(extender, promises, retries)
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
        try:
            reply, result = ask(body)
            answer = Answer(200, JSON, reply)
        except InputError as error:
            answer, result = plain(400, str(error)), "bad_request"
        except NotReady as error:
            answer, result = Answer(200, JSON, error_answer(str(error))), "error"
        except Exception as error:  # noqa: BLE001 - the next question may be another one
            why = self._extender.cluster.faults.note("the whole question", error)
            answer, result = Answer(200, JSON, error_answer(why)), "error"
        self.metrics.observe(path.lstrip("/"), result, time.perf_counter() - started)
        return answer

    def _filter(self, body: bytes) -> tuple[bytes, str]:
        arguments, names = question(body, "filter")
        passed, refused = self._extender.filter(arguments.pod, names)
        return filter_answer(arguments, names, passed, refused), "ok" if passed else "refused"

    def _prioritize(self, body: bytes) -> tuple[bytes, str]:
        arguments, names = question(body, "prioritize")
        return scores_answer(self._extender.prioritize(arguments.pod, names)), "ok"

    def _preempt(self, body: bytes) -> tuple[bytes, str]:
        arguments = read(PreemptionArguments, body, "preempt")
        victims = self._extender.preempt(arguments.pod, arguments.by_node)
        return preemption_answer(victims), "ok" if victims else "refused"

    def _bind(self, body: bytes) -> tuple[bytes, str]:
        binding = read(BindingArguments, body, "bind")
        error = self._extender.bind(binding.namespace, binding.name, binding.uid, binding.node)
        return (error_answer(error), "error") if error else (b"{}", "ok")

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


def read(shape: type[T], body: bytes, verb: str) -> T:
    """The arguments in `body`; InputError says which field is wrong."""
    do = "the caller has to be a kube-scheduler, and this verb the one its configuration names"
    with refusing(f"request {verb}", "body", body[:80].decode(errors="replace"), do):
        arguments: T = _READERS[shape].decode(body)
    return arguments


def question(body: bytes, verb: str) -> tuple[Arguments, list[str]]:
    """The arguments of filter or prioritize, and the nodes that are asked about, in the order given. InputError also
    for a node object without a name."""
    arguments = read(Arguments, body, verb)
    if arguments.node_names is not None:
        return arguments, arguments.node_names
    items = (arguments.nodes.items if arguments.nodes else None) or []
    names = [read(_NodeName, bytes(item), "filter").metadata.name for item in items]
    if not all(names):
        raise InputError(Problem("request filter", "Nodes.items", "", "a node without a name", "name every node"))
    return arguments, names


def filter_answer(arguments: Arguments, names: list[str], passed: list[str], refused: dict[str, str]) -> bytes:
    """ExtenderFilterResult in the form of the question.

    Every refusal but LEAVING is one that evicting pods does not cure in the eyes of the scheduler: it asks only about
    nodes that have enough in all, so its search for victims finds none there, and says so in a text that differs each
    time. A node that is being emptied for the pod has to stay a resolvable one, or the scheduler empties another.
    """
    failed = {name: why for name, why in refused.items() if why == LEAVING}
    answer: dict[str, Any] = {
        "FailedAndUnresolvableNodes": {name: why for name, why in refused.items() if name not in failed}
        if failed
        else refused
    }
    if failed:
        answer["FailedNodes"] = failed
    if arguments.node_names is not None:
        answer["NodeNames"] = passed
    else:
        names_passed, items = set(passed), (arguments.nodes.items if arguments.nodes else None) or []
        items_passed = [item for name, item in zip(names, items, strict=True) if name in names_passed]
        answer["Nodes"] = {"metadata": {}, "items": items_passed}
    return msgspec.json.encode(answer)


def error_answer(text: str) -> bytes:
    """`Error`: the attempt fails, or the extender is passed over where it is ignorable."""
    return msgspec.json.encode({"Error": text})


def scores_answer(scores: list[tuple[str, int]]) -> bytes:
    """HostPriorityList."""
    return msgspec.json.encode([_HostPriority(host, score) for host, score in scores])


def preemption_answer(victims: Mapping[str, Victims]) -> bytes:
    """Victims by node. The scheduler reads uids only, also when it sent whole pods."""
    by_node = {
        node: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.violations}
        for node, each in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": by_node})


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


_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class ExtenderMetrics(Collector):
    """One registry; the state of the cache is read at each scrape."""

    def __init__(self, extender: Extender, promises: Promises | None = None, retries: Retries | None = None) -> None:
        self.registry = CollectorRegistry()
        self._extender, self._promises, self._retries = extender, promises, retries
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
            unusable = sum(bool(row.unusable) for row in cluster.rows.values())
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
        if (retries := self._retries) is not None:
            meaning = "Pods that no node could have and whose scheduler was asked to try them again"
            counters.append(("retries", meaning, ("result",), retries.results))
        for name, meaning, value in gauges:
            yield families.single(f"koordlite_scheduler_{name}", meaning, value)
        for name, meaning, labels, counts in counters:
            samples = [((key,) if labels else (), count) for key, count in counts.items()]
            yield families.counter(f"koordlite_scheduler_{name}", meaning, labels, samples)
