"""Counters of a run under Koordinator's names: evictions, cookies of core scheduling, whether the machine
could be read, and how long kubelet takes to answer.

Source: Koordinator `pkg/koordlet/metrics` (pod_eviction, core_sched, common). Its counters have no `_total`.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koordlite.changes import core_cookie, eviction
from koordlite.changes.core_cookie import CoreCookieChange
from koordlite.model.status import RequestHistogram, RequestKind
from koordlite.report.metrics.families import koordinator_counter, request_times
from koordlite.report.tick import Tick

DETAIL_SECONDS = 300.0
"""Life of the series of an evicted pod, or of a core group that gets no more processes: names never end."""
_EVICTED = "evicted"
_READ = {True: "succeeded", False: "failed"}


class EventMetrics(Collector):
    """Counts ticks; scraped from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._node = ""
        self._evictions = 0
        self._pods: dict[tuple[str, str], float] = {}
        self._cookies: dict[tuple[str, bool], tuple[int, float]] = {}
        self._cpu: collections.Counter[bool] = collections.Counter()
        self._numa: collections.Counter[bool] = collections.Counter()

    def observe(self, tick: Tick) -> None:
        """Count what happened in `tick`."""
        with self._lock:
            self._node = tick.node or self._node
            snapshot = tick.snapshot
            self._cpu[bool(snapshot.topology.cpus)] += 1
            self._numa[bool(snapshot.topology.nodes)] += 1
            for step in tick.applied:
                if step.ok and step.place.kind is eviction.PLACE:
                    namespace, name, _ = step.place.parts
                    self._evictions += 1
                    self._pods[namespace, name] = tick.time
            self._pods = {pod: at for pod, at in self._pods.items() if tick.time - at <= DETAIL_SECONDS}
            self._count_cookies(tick)

    def _count_cookies(self, tick: Tick) -> None:
        """Containers that were given a cookie, by core group, and when the last one was."""
        steps = {step.place: step.ok for step in tick.applied if step.place.kind is core_cookie.PLACE}
        for change in (change for decision in tick.decisions for change in decision.changes) if steps else ():
            if isinstance(change, CoreCookieChange) and change.place in steps and change.core_group:
                key = change.core_group, steps[change.place]
                self._cookies[key] = self._cookies.get(key, (0, 0.0))[0] + 1, tick.time
        self._cookies = {key: one for key, one in self._cookies.items() if tick.time - one[1] <= DETAIL_SECONDS}

    def collect(self) -> Iterator[Metric]:
        """Nothing before the node is known, as Koordinator."""
        with self._lock:
            node, evictions, pods = self._node, self._evictions, list(self._pods)
            cookies = list(self._cookies.items())
            counts_by_part = {"cpu": dict(self._cpu), "numa": dict(self._numa)}
        if not node:
            return
        for what, counts in counts_by_part.items():
            samples = [([_READ[good]], float(count)) for good, count in counts.items()]
            name = f"koordlet_collect_node_{what}_info_status"
            yield koordinator_counter(name, "Times the machine was read", ("status",), samples)
        total = [([_EVICTED], float(evictions))] if evictions else []
        yield koordinator_counter("koordlet_pod_eviction", "Pods evicted", ("reason",), total)
        of_pod = ("pod_namespace", "pod_name", "reason")
        each = [([*pod, _EVICTED], 1.0) for pod in pods]
        yield koordinator_counter("koordlet_pod_eviction_detail", "Pods evicted recently", of_pod, each)
        containers = [([group, _READ[good]], float(count)) for (group, good), (count, _) in cookies]
        meaning, labels = "Containers that were given a cookie of core scheduling", ("core_sched_group", "status")
        yield koordinator_counter("koordlet_core_sched_cookie_manage_status", meaning, labels, containers)


class KubeletMetrics(Collector):
    """How long kubelet takes, in Koordinator's buckets."""

    def __init__(self, times: Callable[[], Mapping[RequestKind, RequestHistogram]]) -> None:
        """`times` gives what was counted so far; asked at each scrape."""
        self._times = times

    def collect(self) -> Iterator[Metric]:
        """By verb, path and code."""
        name, labels = "koordlet_kubelet_request_duration_seconds", ("verb", "path", "code")
        yield request_times(name, "How long kubelet took to answer", labels, sorted(self._times().items()))
