"""The agent as Prometheus metrics: Koordinator's names where we can fill them, ours for the rest.

Gauges are those of the last tick, so a series whose subject is gone is gone from the next scrape.
Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics`, also pod_eviction, core_sched, common), so
that its dashboards keep working.
"""

from __future__ import annotations

import collections
import errno
import threading
from collections.abc import Callable, Iterator, Mapping

import prometheus_client
from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite.changes import core_cookie, eviction
from koordlite.changes.core_cookie import CoreCookieChange
from koordlite.model.status import RequestHistogram, RequestKind
from koordlite.report import node_figures
from koordlite.report.metrics import node, pods
from koordlite.report.metrics.families import (
    NodeRegistry,
    Sample,
    counter,
    gauge,
    koordinator_counter,
    request_times,
    single,
)
from koordlite.report.tick import Tick

_TICK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
# Koordinator's buckets for resource_update_duration_milliseconds.
_WRITE_BUCKETS = tuple(0.01 * 4**k for k in range(8))
DETAIL_SECONDS = 300.0
"""Life of the series of an evicted pod, or of a core group that gets no more processes: names never end."""
_EVICTED = "evicted"
_WORDS = {True: "succeeded", False: "failed"}


class Metrics(Collector):
    """Counts ticks and shows the last one; every series has the label `node`."""

    def __init__(self, *, started: float = 0.0, per_cpu: bool = False, longer_psi: bool = False) -> None:
        """`started` is seconds since the epoch; `per_cpu` adds a series for each CPU of the pools, `longer_psi` the
        means over 60 and 300 s of how long pods waited."""
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = r = NodeRegistry()
        self._started, self._per_cpu, self._longer_psi = started, per_cpu, longer_psi
        self._last: Tick | None = None
        self._lock = threading.Lock()
        """Scrapes come in other threads than ticks."""
        self._reads: collections.Counter[tuple[str, bool]] = collections.Counter()
        self._evictions = 0
        self._evicted: dict[tuple[str, str], float] = {}
        self._cookies: dict[tuple[str, bool], tuple[int, float]] = {}
        r.register(self)
        self._decisions = Counter(
            "koordlite_decisions", "Decisions given", ("strategy", "reason", "verdict"), registry=r
        )
        self._writes = Counter("koordlite_writes", "Writes tried", ("kind", "result"), registry=r)
        self._errors = Counter(
            "koordlite_write_errors", "Writes refused, by the kernel's word for it", ("kind", "errno"), registry=r
        )
        self._foreign = Counter("koordlite_foreign_writes", "Values of ours changed by others", ("kind",), registry=r)
        self._tick = Histogram("koordlite_tick_seconds", "Cost of a tick", registry=r, buckets=_TICK_BUCKETS)
        self._write = Histogram(
            "koordlet_resource_update_duration_milliseconds",
            "How long a write took",
            ("type", "status"),
            registry=r,
            buckets=_WRITE_BUCKETS,
        )

    def observe_tick(self, tick: Tick) -> None:
        """Count `tick` and make it the one that the gauges show."""
        self._tick.observe(tick.tick_seconds)
        # A full node gives hundreds of decisions of a few kinds.
        kinds = collections.Counter((d.strategy, d.reason, d.verdict) for d in tick.decisions)
        for labels, count in kinds.items():
            self._decisions.labels(*labels).inc(count)
        for write in tick.foreign:
            self._foreign.labels(write.place.metric).inc()
        for step in tick.applied:
            self._writes.labels(step.place.metric, "ok" if step.ok else "refused").inc()
            if not step.ok:
                self._errors.labels(step.place.metric, _errno(step.error)).inc()
            status = "success" if step.ok else "failed"
            if step.place.kind.update:
                self._write.labels(step.place.kind.update, status).observe(step.seconds * 1000)
        with self._lock:
            self._count_events(tick)
        self._last = tick
        self.registry.node = tick.node or self.registry.node

    def _count_events(self, tick: Tick) -> None:
        """Reads of the machine, evictions, and containers that were given a cookie, by core group."""
        topology = tick.snapshot.topology
        self._reads.update([("cpu", bool(topology.cpus)), ("numa", bool(topology.nodes))])
        for step in tick.applied:
            if step.ok and step.place.kind is eviction.PLACE:
                namespace, name, _ = step.place.parts
                self._evictions += 1
                self._evicted[namespace, name] = tick.time
        steps = {step.place: step.ok for step in tick.applied if step.place.kind is core_cookie.PLACE}
        for change in (change for decision in tick.decisions for change in decision.changes) if steps else ():
            if isinstance(change, CoreCookieChange) and change.place in steps and change.core_group:
                key = change.core_group, steps[change.place]
                self._cookies[key] = self._cookies.get(key, (0, 0.0))[0] + 1, tick.time
        since = tick.time - DETAIL_SECONDS
        self._evicted = {pod: at for pod, at in self._evicted.items() if at >= since}
        self._cookies = {key: each for key, each in self._cookies.items() if each[1] >= since}

    def collect(self) -> Iterator[Metric]:
        """Gauges of the last tick; none before the first. The scraping thread takes one reference, and the tick never
        changes."""
        tick = self._last
        if tick is None:
            return
        yield single("koordlet_start_time", "When the agent started, seconds since the epoch", self._started)
        yield from _of_node(tick)
        yield from _labelled(tick)
        yield from node.families(tick, per_cpu=self._per_cpu)
        yield from pods.families(tick, longer_psi=self._longer_psi)
        if self.registry.node:
            yield from self._of_events()

    def _of_events(self) -> Iterator[Metric]:
        """Nothing before the node is known, as Koordinator."""
        with self._lock:
            reads, evictions, evicted = list(self._reads.items()), self._evictions, list(self._evicted)
            cookies = list(self._cookies.items())
        for what in ("cpu", "numa"):
            samples = [([_WORDS[good]], float(count)) for (part, good), count in reads if part == what]
            name = f"koordlet_collect_node_{what}_info_status"
            yield koordinator_counter(name, "Times the machine was read", ("status",), samples)
        total = [([_EVICTED], float(evictions))] if evictions else []
        yield koordinator_counter("koordlet_pod_eviction", "Pods evicted", ("reason",), total)
        of_pod, each = ("pod_namespace", "pod_name", "reason"), [([*pod, _EVICTED], 1.0) for pod in evicted]
        yield koordinator_counter("koordlet_pod_eviction_detail", "Pods evicted recently", of_pod, each)
        containers = [([group, _WORDS[good]], float(count)) for (group, good), (count, _) in cookies]
        meaning, labels = "Containers that were given a cookie of core scheduling", ("core_sched_group", "status")
        yield koordinator_counter("koordlet_core_sched_cookie_manage_status", meaning, labels, containers)


def _of_node(tick: Tick) -> Iterator[Metric]:
    """The last tick in numbers without labels; None is a family without series."""
    figures, use = tick.figures, tick.snapshot.usage.node
    reaction, groups = tick.reaction, tick.reaction.beginning
    yield single("koordlet_node_used_cpu_cores", "CPU the node uses", _cores(figures.node_cpu))
    meaning = "CPU of pods that are not best-effort"
    yield single("koordlet_be_suppress_ls_used_cpu_cores", meaning, _cores(figures.prod_cpu))
    yield single("koordlet_be_suppress_be_used_cpu_cores", "CPU of best-effort pods", _cores(figures.be_cpu))
    yield single("koordlet_node_used_memory_bytes", "Memory the node uses", use.memory if use else None)
    for name, whose, pool in (
        ("koordlet_cpuset_share_pool_cpu_cores", "latency-sensitive", tick.ls_pool),
        ("koordlet_cpuset_be_share_pool_cpu_cores", "best-effort", tick.be_pool),
    ):
        cpus = node.pool(pool)
        yield single(name, f"CPUs in the pool of {whose} pods", None if cpus is None else len(cpus))
    yield single("koordlite_be_budget_cpu_cores", "Answer of the suppress formula", _cores(figures.be_budget))
    yield single("koordlite_problems", "Inputs that are wrong or missing", len(tick.problems))
    yield single("koordlite_unrestored_places", "Places of an earlier run not put back", tick.unrestored)
    yield single("koordlite_reaction_hertz", "Samples a second between ticks", reaction.hertz)
    yield single("koordlite_new_group_watches", "Groups that report containers", groups.watched)
    yield single("koordlite_nri_connected", "1 while a runtime asks by NRI", float(bool(tick.nri.runtime)))
    meaning, pause = "When the pause ends, seconds since the epoch", tick.pause
    yield single("koordlite_pause_end_seconds", meaning, pause.until if pause else None)
    for name, meaning, count in (
        ("koordlite_faults", "Faults of the agent itself, survived", tick.faults.total),
        ("koordlite_reaction_cpu_seconds", "CPU time of the samples between ticks", reaction.cost_seconds),
        ("koordlite_reaction_samples", "Samples between ticks", reaction.samples),
        ("koordlite_reaction_pressure", "CPU pressure events from the kernel", reaction.pressure),
        ("koordlite_reaction_wakes", "Rounds before their time because of a surge", reaction.surges),
        ("koordlite_new_group_rounds", "Rounds before their time because of new containers", groups.rounds),
        ("koordlite_new_group_overflows", "Times the kernel lost reports of new containers", groups.overflows),
    ):
        yield CounterMetricFamily(name, meaning, value=count)


def _labelled(tick: Tick) -> Iterator[Metric]:
    """The agent's state by label: its limit, its inputs, what wakes it, answers to a runtime that asks before it
    creates containers, and a pause."""
    limit, state, pause = _cores(tick.figures.be_limit), tick.nri, tick.pause
    limits = [] if limit is None else [([node_figures.be_policy(tick.snapshot)], limit)]
    yield gauge("koordlet_be_suppress_cpu_cores", "CPU best-effort pods may use", ("type",), limits)
    yield gauge("koordlite_input_age_seconds", "Age of an input", ("input",), _items(tick.snapshot.ages))
    modes = [(mode, 1) for mode in tick.modes.items()]
    yield gauge("koordlite_mode_info", "Mode of a strategy", ("strategy", "mode"), modes)
    yield gauge("koordlite_reaction_info", "What wakes the agent between ticks", ("way",), [([tick.reaction.way], 1)])
    paused = [([pause.by], 1)] if pause else [([""], 0)]
    yield gauge("koordlite_paused", "1 while nothing is written because of a pause", ("by",), paused)
    yield gauge("koordlite_status_info", "Status of the agent", ("status",), [([tick.status], 1)])
    watches = tick.snapshot.watches
    if watches:  # Nothing with a folder of manifests.
        relists, requests = ([([w.name], getattr(w, field)) for w in watches] for field in ("relists", "requests"))
        yield counter("koordlite_watch_relists", "Lists repeated from the API server", ("watch",), relists)
        yield counter("koordlite_watch_requests", "Lists and watches asked for", ("watch",), requests)
    calls = state.answers.items()
    yield counter("koordlite_nri_answers", "Calls by NRI that were answered", ("method", "outcome"), calls)
    meaning = "What became of questions by NRI"
    yield counter("koordlite_nri_results", meaning, ("result",), _items(state.results))
    latency = (([method], times) for method, times in state.latency.items())
    yield request_times("koordlite_nri_answer_seconds", "Time to an answer by NRI", ("method",), latency)


def _cores(milli: int | None) -> float | None:
    return None if milli is None else milli / 1000


def _items(values: Mapping[str, float]) -> list[Sample]:
    return [([name], value) for name, value in values.items()]


def _errno(error: str) -> str:
    """`EBUSY` of `EBUSY: Device or resource busy (…)`; a refusal of our own or of the API server has no such word."""
    word = error.partition(":")[0]
    return word if word in errno.errorcode.values() else "other"


class KubeletMetrics(Collector):
    """Time that kubelet takes, in Koordinator's buckets."""

    def __init__(self, times: Callable[[], Mapping[RequestKind, RequestHistogram]]) -> None:
        """`times` gives what was counted so far; asked at each scrape."""
        self._times = times

    def collect(self) -> Iterator[Metric]:
        """Collect the requests by verb, path and code."""
        name, labels = "koordlet_kubelet_request_duration_seconds", ("verb", "path", "code")
        yield request_times(name, "How long kubelet took to answer", labels, sorted(self._times().items()))
