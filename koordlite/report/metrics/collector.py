"""The agent as Prometheus metrics: Koordinator's names where we can fill them, ours for the rest.

Gauges come from one collector over the last tick, so a series whose subject is gone is gone from the next scrape.
Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics`), so that its dashboards keep working.
"""

from __future__ import annotations

import collections
import errno
from collections.abc import Iterator, Mapping

import prometheus_client
from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite.model import cpuset
from koordlite.model.status import REQUEST_BUCKETS_SECONDS
from koordlite.report import present
from koordlite.report.metrics import machine, node, pods
from koordlite.report.metrics.events import EventMetrics
from koordlite.report.metrics.families import NodeRegistry, Sample, counter, gauge, single
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
        yield single("koordlet_start_time", "When the agent started, seconds since the epoch", self._started)
        yield from _use(tick)
        yield from _sharing(tick)
        yield node.offer(tick)
        yield from node.families(tick.snapshot)
        yield from node.predicted(tick.snapshot)
        yield from pods.families(tick.snapshot, longer_psi=self._longer_psi)
        if self._per_cpu:
            yield from node.single_cpus(tick)
        yield from machine.cache_use(tick.cache_use)
        yield from machine.families(tick)
        yield from pods.talks(tick)
        yield from _own(tick)


def _use(tick: Tick) -> Iterator[GaugeMetricFamily]:
    used = tick.snapshot.usage.node
    for name, meaning, milli in (
        ("koordlet_node_used_cpu_cores", "CPU the node uses", tick.figures.node_cpu),
        ("koordlet_be_suppress_ls_used_cpu_cores", "CPU of pods that are not best-effort", tick.figures.prod_cpu),
        ("koordlet_be_suppress_be_used_cpu_cores", "CPU of best-effort pods", tick.figures.be_cpu),
    ):
        yield single(name, meaning, None if milli is None else milli / 1000)
    yield single("koordlet_node_used_memory_bytes", "Memory the node uses", used.memory if used else None)


def _sharing(tick: Tick) -> Iterator[GaugeMetricFamily]:
    limit = tick.figures.be_limit
    samples = [] if limit is None else [([present.be_policy(tick.snapshot)], limit / 1000)]
    yield gauge("koordlet_be_suppress_cpu_cores", "CPU best-effort pods may use", ("type",), samples)
    for name, meaning, pool in (
        ("koordlet_cpuset_share_pool_cpu_cores", "CPUs in the pool of latency-sensitive pods", tick.ls_pool),
        ("koordlet_cpuset_be_share_pool_cpu_cores", "CPUs in the pool of best-effort pods", tick.be_pool),
    ):
        yield single(name, meaning, _size(pool))


def _own(tick: Tick) -> Iterator[Metric]:
    budget = None if tick.figures.be_budget is None else tick.figures.be_budget / 1000
    yield single("koordlite_be_budget_cpu_cores", "Answer of the suppress formula", budget)
    yield node.batch_terms(tick)
    yield single("koordlite_problems", "Inputs that are wrong or missing", len(tick.problems))
    yield single("koordlite_unrestored_places", "Places of an earlier run not put back", tick.unrestored)
    yield CounterMetricFamily("koordlite_faults", "Faults of the agent itself, survived", value=tick.faults.total)
    yield gauge("koordlite_input_age_seconds", "Age of an input", ("input",), _items(tick.snapshot.ages))
    yield from _watches(tick)
    yield gauge("koordlite_mode_info", "Mode of a strategy", ("strategy", "mode"), ((m, 1) for m in tick.modes.items()))
    yield from _between_ticks(tick)
    yield from nri(tick)
    yield from pause(tick)
    yield gauge("koordlite_status_info", "Status of the agent", ("status",), [([tick.status], 1)])


def _watches(tick: Tick) -> Iterator[Metric]:
    """Nothing with a folder of manifests."""
    for name, meaning, field in (
        ("koordlite_watch_relists", "Lists repeated from the API server", "relists"),
        ("koordlite_watch_requests", "Lists and watches asked for", "requests"),
    ):
        if tick.snapshot.watches:
            samples = (([watch.name], getattr(watch, field)) for watch in tick.snapshot.watches)
            yield counter(name, meaning, ("watch",), samples)


def _between_ticks(tick: Tick) -> Iterator[Metric]:
    reaction = tick.reaction
    yield gauge("koordlite_reaction_info", "What wakes the agent between ticks", ("way",), [([reaction.way], 1)])
    yield single("koordlite_reaction_hertz", "Samples a second between ticks", reaction.hertz)
    beginning = reaction.beginning
    yield single("koordlite_new_group_watches", "Groups that report containers", beginning.watched)
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
    yield single("koordlite_nri_connected", "1 while a runtime asks by NRI", float(bool(state.runtime)))
    calls = state.answers.items()
    yield counter("koordlite_nri_answers", "Calls by NRI that were answered", ("method", "outcome"), calls)
    meaning = "What became of questions by NRI"
    yield counter("koordlite_nri_results", meaning, ("result",), _items(state.results))
    latency = HistogramMetricFamily("koordlite_nri_answer_seconds", "Time to an answer by NRI", labels=("method",))
    bounds = [*map(str, REQUEST_BUCKETS_SECONDS), "+Inf"]
    for method, times in state.latency.items():
        latency.add_metric([method], list(zip(bounds, times.counts, strict=True)), times.seconds)
    yield latency


def pause(tick: Tick) -> Iterator[GaugeMetricFamily]:
    """State and end of a pause; who asked is a label."""
    by = [([tick.pause.by], 1)] if tick.pause else [([""], 0)]
    yield gauge("koordlite_paused", "1 while nothing is written because of a pause", ("by",), by)
    end = tick.pause.until if tick.pause else None
    yield single("koordlite_pause_end_seconds", "When the pause ends, seconds since the epoch", end)


def _items(values: Mapping[str, float]) -> Iterator[Sample]:
    return (([name], value) for name, value in values.items())


def _size(pool: str) -> float | None:
    try:
        return len(cpuset.CPUSet.parse(pool))
    except ValueError:
        return None  # the annotation was broken by another writer


def _errno(error: str) -> str:
    """`EBUSY` of `EBUSY: Device or resource busy (…)`; a refusal of our own or of the API server has no such word."""
    word = error.partition(":")[0]
    return word if word in errno.errorcode.values() else "other"
