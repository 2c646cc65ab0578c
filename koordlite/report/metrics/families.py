"""Families of metrics as the metric modules make them, and Koordinator's two halves of a registry.

Source of the halves: `pkg/koordlet/metrics`: external_metrics.go, internal_metrics.go. What is ours alone is internal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

Sample = tuple[Sequence[str], float]
"""Label values and a value."""


def gauge(name: str, meaning: str, labels: Sequence[str], samples: Iterable[Sample]) -> GaugeMetricFamily:
    """A gauge with these samples; none is a family without series."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def single(name: str, meaning: str, value: float | None) -> GaugeMetricFamily:
    """A gauge of the node as a whole; without series where the value is not known."""
    return gauge(name, meaning, (), [] if value is None else [((), value)])


def counter(name: str, meaning: str, labels: Sequence[str], samples: Iterable[Sample]) -> CounterMetricFamily:
    """A counter with these samples; none is a family without series."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
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


class Half(Collector):
    """The families of a registry that are external, or the others."""

    def __init__(self, whole: CollectorRegistry, *, external: bool) -> None:
        self._whole, self._external = whole, external

    def collect(self) -> Iterable[Metric]:
        """Families of one half, in their order."""
        return (family for family in self._whole.collect() if (family.name in EXTERNAL) is self._external)


def half(whole: CollectorRegistry, *, external: bool) -> CollectorRegistry:
    """A registry of one half of `whole`."""
    made = CollectorRegistry(auto_describe=False)
    made.register(Half(whole, external=external))
    return made
