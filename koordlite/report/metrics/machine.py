"""Waiting, memory by NUMA node and percentiles of use as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from koordlite.model.picture.usage import Pressure, Stall, Use
from koordlite.report.tick import Tick

_STALLED = ("node", "subject", "resource", "degree")
_WINDOWS = (("10", "avg10"), ("60", "avg60"), ("300", "avg300"))


def families(tick: Tick) -> Iterator[Metric]:
    """What the kernel does not report has no series."""
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
