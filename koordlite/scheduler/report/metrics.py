"""The extender as Prometheus metrics: what was asked, how long it took, what was refused, and how well it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite.scheduler.extender import Extender
from koordlite.scheduler.promises import Promises

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
            held, wrong = len(cluster.assumed), cluster.predicted_wrong
            unusable = sum(row is not None and bool(row.unusable) for row in cluster.rows)
            oldest = max((now - state.report_since for state in reported), default=0.0)
        yield _gauge("nodes", "Nodes that are known", len(states))
        yield _gauge("reported_nodes", "Nodes with a NodeResourceTopology", len(reported))
        yield _gauge("dirty_nodes", "Nodes where the report does not count all pods", len(dirty))
        yield _gauge(
            "dirty_seconds_max", "How long the report of a node has not been that of its pods", max(dirty, default=0.0)
        )
        yield _gauge("unusable_nodes", "Nodes about which nothing may be concluded at present", unusable)
        yield _gauge("report_unchanged_seconds_max", "Age of the report that did not change longest", oldest)
        yield _gauge("reservations", "Pods on their way to a node", held)
        yield _counter("predicted_wrong", "Bound pods that kubelet refused for their topology", {(): wrong})
        yield _counter("faults", "Nodes and questions left out by faults of the program", {(): cluster.faults.total})
        refused: dict[tuple[str, ...], int] = {(reason,): count for reason, count in refusals.items()}
        yield _counter("refused_nodes", "Nodes refused by filter", refused, ("reason",))
        ended: dict[tuple[str, ...], int] = {(why,): count for why, count in ends.items()}
        yield _counter("reservations_ended", "Reservations that ended, by reason", ended, ("reason",))
        if self._promises is not None:
            yield _gauge("unpromised_pods", "Bound pods without the promise that they need", self._promises.missing)
            late: dict[tuple[str, ...], int] = {(result,): n for result, n in self._promises.results.items()}
            yield _counter(
                "late_promises",
                "Promises to pods that were bound without one, and those that follow a resize",
                late,
                ("result",),
            )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"koordlite_scheduler_{name}", text, value=value)


def _counter(name: str, text: str, values: Mapping[tuple[str, ...], int], labels: tuple[str, ...] = ()) -> Metric:
    family = CounterMetricFamily(f"koordlite_scheduler_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
