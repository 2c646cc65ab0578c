"""Families of metrics as the metric modules make them, and Koordinator's two halves of a registry.

Source of the halves: `pkg/koordlet/metrics`: external_metrics.go, internal_metrics.go. What is ours alone is internal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from koordlite.model.status import REQUEST_BUCKETS_SECONDS, RequestHistogram

Sample = tuple[Sequence[str], float]
"""Label values and a value."""


def gauge(name: str, meaning: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    """A gauge with these samples; none is a family without series."""
    return _filled(GaugeMetricFamily(name, meaning, labels=labels), samples)


def counter(name: str, meaning: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    """A counter with these samples; none is a family without series."""
    return _filled(CounterMetricFamily(name, meaning, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[Sample]) -> Metric:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def single(name: str, meaning: str, value: float | None) -> Metric:
    """A gauge of the node as a whole; without series where the value is not known."""
    return gauge(name, meaning, (), [] if value is None else [((), value)])


def request_times(
    name: str, meaning: str, labels: Sequence[str], times: Iterable[tuple[Sequence[str], RequestHistogram]]
) -> Metric:
    """A histogram of how long requests took; a question that was never asked has no series."""
    family = HistogramMetricFamily(name, meaning, labels=labels)
    bounds = [*map(str, REQUEST_BUCKETS_SECONDS), "+Inf"]
    for values, each in times:
        family.add_metric(values, list(zip(bounds, each.counts, strict=True)), each.seconds)
    return family


def koordinator_counter(name: str, meaning: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    """A counter under its own name.

    The client library would end it in `_total`, and Koordinator's dashboards ask for the name without. Untyped is what
    both formats have for that; `rate` does not mind.
    """
    family = Metric(name, meaning, "unknown")
    for values, value in samples:
        family.add_sample(name, dict(zip(labels, values, strict=True)), value)
    return family


class NodeRegistry(CollectorRegistry):
    """Gives the label `node` to the series that lack it: a scrape that relabels nothing tells nodes apart, too."""

    node = ""
    """Nothing before the first tick."""

    def collect(self) -> Iterator[Metric]:
        """All families. The series of a family have the same labels, and each scrape makes them anew."""
        for family in super().collect():
            if self.node and family.samples and "node" not in family.samples[0].labels:
                for sample in family.samples:
                    sample.labels["node"] = self.node
            yield family


EXTERNAL = frozenset(
    f"koordlet_{name}"
    for name in (
        "container_cpi",
        "container_psi",
        "container_resource_limits",
        "container_resource_requests",
        "node_priority_resource_reclaimable",
        "node_resource_allocatable",
        "node_resource_priority_reclaimable_status",
        "pod_psi",
        "resctrl_llc_occupancy",
        "resctrl_memory_bandwidth",
    )
)


class _Half(Collector):
    def __init__(self, whole: CollectorRegistry, *, external: bool) -> None:
        self._whole, self._external = whole, external

    def collect(self) -> Iterable[Metric]:
        return (family for family in self._whole.collect() if (family.name in EXTERNAL) is self._external)


def half(whole: CollectorRegistry, *, external: bool) -> CollectorRegistry:
    """A registry of the families of `whole` that are external, or of the others, in their order."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Half(whole, external=external))
    return registry
