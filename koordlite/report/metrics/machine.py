"""Waiting, memory by NUMA node, percentiles of use, and use of caches and memory bandwidth as Prometheus metrics.

Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics/resctrl.go`). Its bandwidth is the bare
counter; a gauge of bytes per second is what its dashboards draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from koordlite.report import present
from koordlite.report.metrics.families import Sample, counter, gauge
from koordlite.report.present import OwnedUse
from koordlite.report.tick import Tick

_STALLED = ("subject", "resource", "degree")
_WINDOWS = (("10", "avg10"), ("60", "avg60"), ("300", "avg300"))


def families(tick: Tick) -> Iterator[Metric]:
    """All families; no series for what the kernel does not report."""
    # Each line of a pressure file; the kernel has no `full` of CPU for the machine.
    stalls = [
        ([subject, resource, degree], stall)
        for subject, resources in tick.pressure.items()
        for resource, each in resources.items()
        for degree, stall in (("some", each.some), ("full", each.full))
        if stall is not None
    ]
    meaning = "Part of the last 10, 60 or 300 seconds that work waited for a resource"
    shares = (
        ([*labels, seconds], getattr(stall, field) / 100) for labels, stall in stalls for seconds, field in _WINDOWS
    )
    yield gauge("koordlite_pressure_ratio", meaning, (*_STALLED, "seconds"), shares)
    waited = ((labels, stall.total_us / 1e6) for labels, stall in stalls)
    yield counter("koordlite_pressure_seconds", "Time that work has waited for a resource", _STALLED, waited)
    memory = (
        ([subject, str(zone)], used) for subject, by_zone in tick.numa_memory.items() for zone, used in by_zone.items()
    )
    names = ("subject", "numa_node")
    yield gauge("koordlite_numa_memory_used_bytes", "Memory in use on a NUMA node", names, memory)
    # Over the averaging time of the ConfigMap (`metricAggregateDurationSeconds`).
    for name, what, amounts in (
        ("cpu_cores", "CPU", {percent: use.cpu / 1000 for percent, use in tick.snapshot.node_percentiles.items()}),
        ("memory_bytes", "Memory", {percent: use.memory for percent, use in tick.snapshot.node_percentiles.items()}),
    ):
        meaning = f"{what} use that this percentage of samples does not exceed"
        samples = (([str(percent)], amount) for percent, amount in amounts.items())
        yield gauge(f"koordlite_node_used_{name}_percentile", meaning, ("percent",), samples)


_CLASS = ("cache_id", "qos")
_POD = ("cache_id", "pod_namespace", "pod_name")


def cache_use(rows: Iterable[OwnedUse]) -> Iterator[GaugeMetricFamily]:
    """Four gauges: two of classes, two of pods. A value the hardware could not give has no series."""
    listed = tuple(rows)
    classes = [(row, [str(row.cache), row.qos]) for row in listed if not row.pod]
    pods = [(row, [str(row.cache), row.namespace, row.pod]) for row in listed if row.pod]
    for occupancy, bandwidth, whose, labels, owned in (
        ("koordlet_resctrl_llc_occupancy", "koordlet_resctrl_memory_bandwidth", "a class", _CLASS, classes),
        (
            "koordlite_resctrl_pod_llc_occupancy_bytes",
            "koordlite_resctrl_pod_memory_bandwidth",
            "a pod",
            _POD,
            pods,
        ),
    ):
        yield gauge(occupancy, f"Bytes of the last cache {whose} holds", labels, _occupancy(owned))
        yield gauge(bandwidth, f"Bytes per second {whose} moves", (*labels, "mb_type"), _bandwidth(owned))


def _occupancy(rows: Sequence[tuple[OwnedUse, list[str]]]) -> Iterator[Sample]:
    for row, owner in rows:
        if row.use.occupancy_bytes is not None:
            yield owner, row.use.occupancy_bytes


def _bandwidth(rows: Sequence[tuple[OwnedUse, list[str]]]) -> Iterator[Sample]:
    for row, owner in rows:
        for word, rate in present.bandwidths(row.use):
            yield [*owner, word], rate
