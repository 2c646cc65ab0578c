"""Families of metrics as the other metric modules make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

Sample = tuple[Sequence[str], float]
"""Label values and a value."""


def gauge(name: str, meaning: str, labels: Sequence[str], samples: Iterable[Sample]) -> GaugeMetricFamily:
    """A gauge with these samples; none is a family without series."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
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
