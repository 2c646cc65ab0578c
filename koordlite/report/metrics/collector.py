"""The agent as Prometheus metrics: Koordinator's names where we can fill them, ours for the rest.

Gauges come from one collector over the last tick, so a series whose subject is gone is gone from the next scrape.
Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics`), so that its dashboards keep working.
"""

from __future__ import annotations

import collections
import errno
from collections.abc import Iterator

import prometheus_client
from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite.model import cpuset
from koordlite.model.status import REQUEST_BUCKETS_SECONDS
from koordlite.report.metrics import machine, node, pods
from koordlite.report.metrics.events import EventMetrics
from koordlite.report.metrics.families import NodeRegistry
from koordlite.report.tick import Tick

_TICK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
# Koordinator's buckets for resource_update_duration_milliseconds.
_WRITE_BUCKETS = tuple(0.01 * 4**k for k in range(8))


class Metrics:
    """Counts ticks and shows the last one; every series has the label `node`."""

    def __init__(self, *, started: float = 0.0, per_cpu: bool = False, longer_psi: bool = False) -> None:
        """`started` is seconds since the epoch; `per_cpu` adds a series for each CPU of the pools, `longer_psi` the
        means over 60 and 300 s of how long pods waited."""
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = NodeRegistry()
        self._started = started
        self._last, self._events = _LastTick(started, per_cpu, longer_psi), EventMetrics()
        self.registry.register(self._last)
        self.registry.register(self._events)
        r = self.registry
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
        self._events.observe(tick)
        self._last.tick = tick
        self.registry.node = tick.node or self.registry.node


class _LastTick(Collector):
    """Gauges of the last tick. The scraping thread takes one reference, and the tick never changes."""

    def __init__(self, started: float, per_cpu: bool, longer_psi: bool) -> None:
        self._started, self._per_cpu, self._longer_psi = started, per_cpu, longer_psi
        self.tick: Tick | None = None

    def collect(self) -> Iterator[Metric]:
        """All families; none before the first tick."""
        tick = self.tick
        if tick is None:
            return
        yield _gauge("koordlet_start_time", "When the agent started, seconds since the epoch", tick, self._started)
        yield from _use(tick)
        yield from _sharing(tick)
        yield node.offer(tick)
        if tick.picture is not None:
            yield from node.families(tick.picture, tick)
            yield from node.predicted(tick.picture, tick.node)
            yield from pods.families(tick.picture, tick.node, longer_psi=self._longer_psi)
        if self._per_cpu:
            yield from node.single_cpus(tick)
        yield from machine.cache_use(tick.node, tick.cache_use)
        yield from machine.families(tick)
        yield from pods.talks(tick)
        yield from _own(tick)


def _use(tick: Tick) -> Iterator[GaugeMetricFamily]:
    for name, meaning, milli in (
        ("koordlet_node_used_cpu_cores", "CPU the node uses", tick.node_cpu),
        ("koordlet_be_suppress_ls_used_cpu_cores", "CPU of pods that are not best-effort", tick.prod_cpu),
        ("koordlet_be_suppress_be_used_cpu_cores", "CPU of best-effort pods", tick.be_cpu),
    ):
        yield _gauge(name, meaning, tick, None if milli is None else milli / 1000)
    yield _gauge("koordlet_node_used_memory_bytes", "Memory the node uses", tick, tick.node_memory)


def _sharing(tick: Tick) -> Iterator[GaugeMetricFamily]:
    limit = GaugeMetricFamily("koordlet_be_suppress_cpu_cores", "CPU best-effort pods may use", labels=("node", "type"))
    if tick.be_limit is not None:
        limit.add_metric([tick.node, tick.be_policy], tick.be_limit / 1000)
    yield limit
    for name, meaning, pool in (
        ("koordlet_cpuset_share_pool_cpu_cores", "CPUs in the pool of latency-sensitive pods", tick.ls_pool),
        ("koordlet_cpuset_be_share_pool_cpu_cores", "CPUs in the pool of best-effort pods", tick.be_pool),
    ):
        yield _gauge(name, meaning, tick, _size(pool))


def _own(tick: Tick) -> Iterator[Metric]:
    budget = None if tick.be_budget is None else tick.be_budget / 1000
    yield _gauge("koordlite_be_budget_cpu_cores", "Answer of the suppress formula", tick, budget)
    yield node.batch_terms(tick)
    yield _gauge("koordlite_problems", "Inputs that are wrong or missing", tick, len(tick.problems))
    yield _gauge("koordlite_unrestored_places", "Places of an earlier run not put back", tick, tick.unrestored)
    yield CounterMetricFamily("koordlite_faults", "Faults of the agent itself, survived", value=tick.faults.total)
    yield _labelled("koordlite_input_age_seconds", "Age of an input", "input", dict(tick.ages))
    yield from _watches(tick)
    modes = GaugeMetricFamily("koordlite_mode_info", "Mode of a strategy", labels=("strategy", "mode"))
    for strategy, mode in tick.modes.items():
        modes.add_metric([strategy, mode], 1)
    yield modes
    yield from _between_ticks(tick)
    yield from nri(tick)
    yield from pause(tick)
    yield _labelled("koordlite_status_info", "Status of the agent", "status", {tick.status: 1.0})


def _watches(tick: Tick) -> Iterator[Metric]:
    """Nothing with a folder of manifests."""
    for name, meaning, field in (
        ("koordlite_watch_relists", "Lists repeated from the API server", "relists"),
        ("koordlite_watch_requests", "Lists and watches asked for", "requests"),
    ):
        family = CounterMetricFamily(name, meaning, labels=("watch",))
        for watch in tick.watches:
            family.add_metric([watch.name], getattr(watch, field))
        if tick.watches:
            yield family


def _between_ticks(tick: Tick) -> Iterator[Metric]:
    reaction = tick.reaction
    yield _labelled("koordlite_reaction_info", "What wakes the agent between ticks", "way", {reaction.way: 1.0})
    yield _gauge("koordlite_reaction_hertz", "Samples a second between ticks", tick, reaction.hertz)
    beginning = reaction.beginning
    yield _gauge("koordlite_new_group_watches", "Groups that report containers", tick, beginning.watched)
    for name, meaning, count in (
        ("koordlite_reaction_cpu_seconds", "CPU time of the samples between ticks", reaction.cost_seconds),
        ("koordlite_reaction_samples", "Samples between ticks", reaction.samples),
        ("koordlite_reaction_pressure", "CPU pressure events from the kernel", reaction.pressure),
        ("koordlite_reaction_wakes", "Rounds before their time because of a surge", reaction.surges),
        ("koordlite_new_group_rounds", "Rounds before their time because of new containers", beginning.rounds),
        ("koordlite_new_group_overflows", "Times the kernel lost reports of new containers", beginning.overflows),
    ):
        yield CounterMetricFamily(name, meaning, value=count)


def nri(tick: Tick) -> Iterator[Metric]:
    """Answers to a runtime that asks before it creates containers."""
    state = tick.nri
    yield _gauge("koordlite_nri_connected", "1 while a runtime asks by NRI", tick, float(bool(state.runtime)))
    answers = CounterMetricFamily(
        "koordlite_nri_answers", "Calls by NRI that were answered", labels=("method", "outcome")
    )
    for kind, count in state.answers.items():
        answers.add_metric(kind, count)
    results = CounterMetricFamily("koordlite_nri_results", "What became of questions by NRI", labels=("result",))
    for result, count in state.results.items():
        results.add_metric([result], count)
    latency = HistogramMetricFamily("koordlite_nri_answer_seconds", "Time to an answer by NRI", labels=("method",))
    bounds = [*map(str, REQUEST_BUCKETS_SECONDS), "+Inf"]
    for method, times in state.latency.items():
        latency.add_metric([method], list(zip(bounds, times.counts, strict=True)), times.seconds)
    yield from (answers, results, latency)


def pause(tick: Tick) -> Iterator[GaugeMetricFamily]:
    """State and end of a pause; who asked is a label."""
    paused = GaugeMetricFamily("koordlite_paused", "1 while nothing is written because of a pause", labels=("by",))
    end = GaugeMetricFamily("koordlite_pause_end_seconds", "When the pause ends, seconds since the epoch", labels=())
    if tick.pause is None:
        paused.add_metric([""], 0)
    else:
        paused.add_metric([tick.pause.by], 1)
        end.add_metric([], tick.pause.until)
    yield paused
    yield end


def _gauge(name: str, meaning: str, tick: Tick, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=("node",))
    if value is not None:
        family.add_metric([tick.node], value)
    return family


def _labelled(name: str, meaning: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=(label,))
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _size(pool: str) -> float | None:
    try:
        return len(cpuset.CPUSet.parse(pool))
    except ValueError:
        return None  # the annotation was broken by another writer


def _errno(error: str) -> str:
    """`EBUSY` of `EBUSY: Device or resource busy (…)`; a refusal of our own or of the API server has no such word."""
    word = error.partition(":")[0]
    return word if word in errno.errorcode.values() else "other"
