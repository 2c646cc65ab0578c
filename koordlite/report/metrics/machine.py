"""Waiting, memory by NUMA node, percentiles of use, and use of caches and memory bandwidth as Prometheus metrics.

Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics/resctrl.go`). Its bandwidth is the bare
counter; a gauge of bytes per second is what its dashboards draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from koordlite.model.picture.usage import Pressure, Stall, Use
from koordlite.report import present
from koordlite.report.present import OwnedUse
from koordlite.report.tick import Tick

_STALLED = ("node", "subject", "resource", "degree")
_WINDOWS = (("10", "avg10"), ("60", "avg60"), ("300", "avg300"))


def families(tick: Tick) -> Iterator[Metric]:
    """All families; no series for what the kernel does not report."""
    stalls = list(_stalls(tick.pressure))
    yield _shares(tick, stalls)
    yield _seconds(tick, stalls)
    yield _numa(tick)
    yield from _percentiles(tick, tick.node_percentiles)


def _stalls(pressure: Mapping[str, Mapping[str, Pressure]]) -> Iterator[tuple[list[str], Stall]]:
    """Subject, resource and degree of each line of a pressure file."""
    for subject, resources in pressure.items():
        for resource, each in resources.items():
            yield [subject, resource, "some"], each.some
            if each.full is not None:
                yield [subject, resource, "full"], each.full


def _shares(tick: Tick, stalls: list[tuple[list[str], Stall]]) -> Metric:
    family = GaugeMetricFamily(
        "koordlite_pressure_ratio",
        "Part of the last 10, 60 or 300 seconds that work waited for a resource",
        labels=(*_STALLED, "seconds"),
    )
    for labels, stall in stalls:
        for seconds, field in _WINDOWS:
            family.add_metric([tick.node, *labels, seconds], getattr(stall, field) / 100)
    return family


def _seconds(tick: Tick, stalls: list[tuple[list[str], Stall]]) -> Metric:
    family = CounterMetricFamily(
        "koordlite_pressure_seconds", "Time that work has waited for a resource", labels=_STALLED
    )
    for labels, stall in stalls:
        family.add_metric([tick.node, *labels], stall.total_us / 1e6)
    return family


def _numa(tick: Tick) -> Metric:
    labels = ("node", "subject", "numa_node")
    family = GaugeMetricFamily("koordlite_numa_memory_used_bytes", "Memory in use on a NUMA node", labels=labels)
    for subject, by_node in tick.numa_memory.items():
        for numa_node, used in by_node.items():
            family.add_metric([tick.node, subject, str(numa_node)], used)
    return family


def _percentiles(tick: Tick, uses: Mapping[int, Use]) -> Iterator[Metric]:
    """Over the averaging time of the ConfigMap (`metricAggregateDurationSeconds`)."""
    labels = ("node", "percent")
    cpu = GaugeMetricFamily(
        "koordlite_node_used_cpu_cores_percentile",
        "CPU use that this percentage of samples does not exceed",
        labels=labels,
    )
    memory = GaugeMetricFamily(
        "koordlite_node_used_memory_bytes_percentile",
        "Memory use that this percentage of samples does not exceed",
        labels=labels,
    )
    for percent, use in uses.items():
        cpu.add_metric([tick.node, str(percent)], use.cpu / 1000)
        memory.add_metric([tick.node, str(percent)], use.memory)
    yield from (cpu, memory)


_CLASS = ("node", "cache_id", "qos")
_POD = ("node", "cache_id", "pod_namespace", "pod_name")


def cache_use(node: str, rows: Iterable[OwnedUse]) -> Iterator[GaugeMetricFamily]:
    """Four gauges: two of classes, two of pods. A value the hardware could not give has no series."""
    listed = tuple(rows)
    classes = [(row, [node, str(row.cache), row.qos]) for row in listed if not row.pod]
    pods = [(row, [node, str(row.cache), row.namespace, row.pod]) for row in listed if row.pod]
    yield _occupancy("koordlet_resctrl_llc_occupancy", "Bytes of the last cache a class holds", _CLASS, classes)
    yield _bandwidth("koordlet_resctrl_memory_bandwidth", "Bytes per second a class moves", _CLASS, classes)
    yield _occupancy("koordlite_resctrl_pod_llc_occupancy_bytes", "Bytes of the last cache a pod holds", _POD, pods)
    yield _bandwidth("koordlite_resctrl_pod_memory_bandwidth", "Bytes per second a pod moves", _POD, pods)


def _occupancy(
    name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[tuple[OwnedUse, list[str]]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for row, owner in rows:
        if row.use.occupancy_bytes is not None:
            family.add_metric(owner, row.use.occupancy_bytes)
    return family


def _bandwidth(
    name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[tuple[OwnedUse, list[str]]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=(*labels, "mb_type"))
    for row, owner in rows:
        for word, rate in present.bandwidths(row.use):
            family.add_metric([*owner, word], rate)
    return family
