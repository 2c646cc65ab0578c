"""The descheduler as Prometheus metrics: upstream's names, so that its dashboards keep working, and ours.

Counters that name a node and a namespace grow with every node there ever was; ours for kept pods are by reason only.
Source of the names under `descheduler_` marked so: upstream `metrics.go`, deprecated spellings included.
"""

from __future__ import annotations

import platform
from collections import Counter as Count
from collections.abc import Iterator

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from descheduler.serve.loop import CycleResult
from koordlite import __version__
from koordlite.model.status import Faults

LOOP_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
STRATEGY_BUCKETS = LOOP_BUCKETS[:-2]
_RESULTS = {
    "Evicted": "success",
    "InBackground": "background",
    "Requested": "background",
    "JobCreated": "background",
    "WouldEvict": "dry-run",
}
"""Upstream's words for results, and `dry-run`, which it cannot tell from a success. Everything else is an `error`."""
_NOT_ASKED = ("Deferred", "NotTried")
"""Neither evicted nor refused: limits of MigrationController, or the end of the run, came first."""
_LABELS = ("result", "strategy", "profile", "namespace", "node")


class Metrics:
    """Counts rounds, in a registry of its own."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        r = self.registry = CollectorRegistry()
        self._evicted = _Evicted(r)
        self._loop = [
            Histogram(name, "Time of a whole cycle", registry=r, buckets=LOOP_BUCKETS)
            for name in ("descheduler_loop_duration_seconds", "descheduler_descheduler_loop_duration_seconds")
        ]
        self._strategy = [
            Histogram(name, "Time a plugin took", ("strategy", "profile"), registry=r, buckets=STRATEGY_BUCKETS)
            for name in ("descheduler_strategy_duration_seconds", "descheduler_descheduler_strategy_duration_seconds")
        ]
        self._errors = Counter("descheduler_cycle_errors", "Cycles without a plan", registry=r)
        self._survived = Faults()
        self._faults = Counter("descheduler_faults", "Faults of the descheduler itself, survived", registry=r)
        self._kept = Counter(
            "descheduler_pods_kept",
            "Pods with findings that were kept",
            ("reason",),
            registry=r,
        )
        self._last = Gauge("descheduler_last_cycle_timestamp_seconds", "When the last cycle began", registry=r)
        self._success = Gauge(
            "descheduler_last_success_timestamp_seconds", "When the last cycle with a plan began", registry=r
        )
        self._leader = Gauge("descheduler_leader", "1 when this process may evict", registry=r)
        self._policy = Gauge("descheduler_policy_reload_success", "0 while the policy file cannot be used", registry=r)
        self._objects = Gauge("descheduler_picture_objects", "Objects of the last picture", ("kind",), registry=r)
        self._left_by_limits = Gauge("descheduler_pods_left_by_limits", "Pods kept only by a limit", registry=r)
        self._not_judged = Gauge(
            "descheduler_pods_not_judged",
            "Pods that a plugin could not judge in the last cycle",
            ("strategy",),
            registry=r,
        )
        build = Gauge("descheduler_build_info", "What runs", ("AppVersion", "DeschedulerVersion", "Python"), registry=r)
        build.labels(__version__, __version__, platform.python_version()).set(1)

    def observe(self, result: CycleResult) -> None:
        """Count one cycle."""
        for histogram in self._loop:
            histogram.observe(result.seconds)
        for (profile, plugin), seconds in result.plugin_seconds.items():
            for histogram in self._strategy:
                histogram.labels(plugin, profile).observe(seconds)
        self._faults.inc(result.faults.total - self._survived.total)
        self._survived = result.faults
        self._last.set(result.began)
        self._leader.set(result.leader)
        self._policy.set(not result.problems)
        if result.plan is None:
            self._errors.inc()
            return
        self._success.set(result.began)
        plan = result.plan
        results = {attempt.uid or attempt.pod: attempt.result for attempt in result.attempts}
        for outcome in plan.evict:
            pod = outcome.pod
            word = results.get(pod.uid, results.get(pod.key, ""))
            if word in _NOT_ASKED:
                continue
            labels = (_RESULTS.get(word, "error"), outcome.main.plugin, outcome.profile, pod.pod.namespace, pod.node)
            self._evicted.count(labels)
        for reason, count in plan.kept_by.items():
            self._kept.labels(reason).inc(count)
        self._left_by_limits.set(sum(count for reason, count in plan.kept_by.items() if reason.startswith("Limit")))
        self._not_judged.clear()
        for name in plan.plugins:
            self._not_judged.labels(name).set(plan.not_judged_by.get(name, 0))
        self._objects.labels("Node").set(len(plan.view.nodes))
        self._objects.labels("Pod").set(sum(len(node.pods) for node in plan.view.nodes.values()))


class _Evicted(Collector):
    """`descheduler_pods_evicted_total`, and the same without `_total`, which upstream still writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter("descheduler_pods_evicted", "Pods evicted, by result", _LABELS, registry=registry)
        self._counts: Count[tuple[str, ...]] = Count()
        registry.register(self)

    def count(self, labels: tuple[str, ...]) -> None:
        """Count one more."""
        self._total.labels(*labels).inc()
        self._counts[labels] += 1

    def collect(self) -> Iterator[Metric]:
        """The deprecated spelling."""
        family = UntypedMetricFamily("descheduler_pods_evicted", "Deprecated: see the one with _total", labels=_LABELS)
        for labels, count in sorted(self._counts.copy().items()):
            family.add_metric(list(labels), count)
        yield family
