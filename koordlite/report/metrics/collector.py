"""The agent as Prometheus metrics: Koordinator's names where we can fill them, ours for the rest.

Gauges come from one collector over the last tick, so a series whose subject is gone is gone from the next scrape.
Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics`), so that its dashboards keep working.
"""

from __future__ import annotations

import collections
import errno
from collections.abc import Callable, Iterator, Mapping

import prometheus_client
from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite.model.status import REQUEST_BUCKETS_SECONDS
from koordlite.report import present
from koordlite.report.metrics import node, pods
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
        yield from (single(name, meaning, value(tick)) for name, meaning, value in _GAUGES)
        for name, meaning, value in _COUNTERS:
            yield CounterMetricFamily(name, meaning, value=value(tick))
        yield from labelled(tick)
        yield from node.families(tick, per_cpu=self._per_cpu)
        yield from pods.families(tick, longer_psi=self._longer_psi)


_GAUGES: tuple[tuple[str, str, Callable[[Tick], float | None]], ...] = (
    ("koordlet_node_used_cpu_cores", "CPU the node uses", lambda t: _cores(t.figures.node_cpu)),
    (
        "koordlet_be_suppress_ls_used_cpu_cores",
        "CPU of pods that are not best-effort",
        lambda t: _cores(t.figures.prod_cpu),
    ),
    ("koordlet_be_suppress_be_used_cpu_cores", "CPU of best-effort pods", lambda t: _cores(t.figures.be_cpu)),
    (
        "koordlet_node_used_memory_bytes",
        "Memory the node uses",
        lambda t: use.memory if (use := t.snapshot.usage.node) else None,
    ),
    (
        "koordlet_cpuset_share_pool_cpu_cores",
        "CPUs in the pool of latency-sensitive pods",
        lambda t: None if (cpus := node.pool(t.ls_pool)) is None else len(cpus),
    ),
    (
        "koordlet_cpuset_be_share_pool_cpu_cores",
        "CPUs in the pool of best-effort pods",
        lambda t: None if (cpus := node.pool(t.be_pool)) is None else len(cpus),
    ),
    ("koordlite_be_budget_cpu_cores", "Answer of the suppress formula", lambda t: _cores(t.figures.be_budget)),
    ("koordlite_problems", "Inputs that are wrong or missing", lambda t: len(t.problems)),
    ("koordlite_unrestored_places", "Places of an earlier run not put back", lambda t: t.unrestored),
    ("koordlite_reaction_hertz", "Samples a second between ticks", lambda t: t.reaction.hertz),
    ("koordlite_new_group_watches", "Groups that report containers", lambda t: t.reaction.beginning.watched),
    ("koordlite_nri_connected", "1 while a runtime asks by NRI", lambda t: float(bool(t.nri.runtime))),
    (
        "koordlite_pause_end_seconds",
        "When the pause ends, seconds since the epoch",
        lambda t: t.pause.until if t.pause else None,
    ),
)
"""Name, meaning and value of gauges without labels; None is a family without series."""
_COUNTERS: tuple[tuple[str, str, Callable[[Tick], float]], ...] = (
    ("koordlite_faults", "Faults of the agent itself, survived", lambda t: t.faults.total),
    ("koordlite_reaction_cpu_seconds", "CPU time of the samples between ticks", lambda t: t.reaction.cost_seconds),
    ("koordlite_reaction_samples", "Samples between ticks", lambda t: t.reaction.samples),
    ("koordlite_reaction_pressure", "CPU pressure events from the kernel", lambda t: t.reaction.pressure),
    ("koordlite_reaction_wakes", "Rounds before their time because of a surge", lambda t: t.reaction.surges),
    (
        "koordlite_new_group_rounds",
        "Rounds before their time because of new containers",
        lambda t: t.reaction.beginning.rounds,
    ),
    (
        "koordlite_new_group_overflows",
        "Times the kernel lost reports of new containers",
        lambda t: t.reaction.beginning.overflows,
    ),
)


def labelled(tick: Tick) -> Iterator[Metric]:
    """The agent's state by label: its limit, its inputs, what wakes it, answers to a runtime that asks before it
    creates containers, and a pause."""
    limit, state = _cores(tick.figures.be_limit), tick.nri
    for name, meaning, labels, samples in (
        (
            "koordlet_be_suppress_cpu_cores",
            "CPU best-effort pods may use",
            ("type",),
            [] if limit is None else [([present.be_policy(tick.snapshot)], limit)],
        ),
        ("koordlite_input_age_seconds", "Age of an input", ("input",), _items(tick.snapshot.ages)),
        ("koordlite_mode_info", "Mode of a strategy", ("strategy", "mode"), [(m, 1) for m in tick.modes.items()]),
        ("koordlite_reaction_info", "What wakes the agent between ticks", ("way",), [([tick.reaction.way], 1)]),
        (
            "koordlite_paused",
            "1 while nothing is written because of a pause",
            ("by",),
            [([tick.pause.by], 1)] if tick.pause else [([""], 0)],
        ),
        ("koordlite_status_info", "Status of the agent", ("status",), [([tick.status], 1)]),
    ):
        yield gauge(name, meaning, labels, samples)
    # Nothing with a folder of manifests.
    for name, meaning, field in (
        ("koordlite_watch_relists", "Lists repeated from the API server", "relists"),
        ("koordlite_watch_requests", "Lists and watches asked for", "requests"),
    ):
        if tick.snapshot.watches:
            values = (([watch.name], getattr(watch, field)) for watch in tick.snapshot.watches)
            yield counter(name, meaning, ("watch",), values)
    calls = state.answers.items()
    yield counter("koordlite_nri_answers", "Calls by NRI that were answered", ("method", "outcome"), calls)
    meaning = "What became of questions by NRI"
    yield counter("koordlite_nri_results", meaning, ("result",), _items(state.results))
    latency = HistogramMetricFamily("koordlite_nri_answer_seconds", "Time to an answer by NRI", labels=("method",))
    bounds = [*map(str, REQUEST_BUCKETS_SECONDS), "+Inf"]
    for method, times in state.latency.items():
        latency.add_metric([method], list(zip(bounds, times.counts, strict=True)), times.seconds)
    yield latency


def _cores(milli: int | None) -> float | None:
    return None if milli is None else milli / 1000


def _items(values: Mapping[str, float]) -> list[Sample]:
    return [([name], value) for name, value in values.items()]


def _errno(error: str) -> str:
    """`EBUSY` of `EBUSY: Device or resource busy (…)`; a refusal of our own or of the API server has no such word."""
    word = error.partition(":")[0]
    return word if word in errno.errorcode.values() else "other"
