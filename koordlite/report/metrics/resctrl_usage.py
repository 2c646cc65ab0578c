"""Cache occupancy and memory bandwidth of classes and pods as Prometheus metrics.

Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics/resctrl.go`). Its bandwidth is the bare
counter; a gauge of bytes per second is what its dashboards draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily

from koordlite.report import resctrl_use
from koordlite.report.resctrl_use import OwnedUse

_CLASS = ("node", "cache_id", "qos")
_POD = ("node", "cache_id", "pod_namespace", "pod_name")


def families(node: str, rows: Iterable[OwnedUse]) -> Iterator[GaugeMetricFamily]:
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
        for word, rate in resctrl_use.bandwidths(row.use):
            family.add_metric([*owner, word], rate)
    return family
