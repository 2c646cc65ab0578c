"""How long kubelet takes to answer, as a Prometheus histogram under Koordinator's name and with its buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite.model.status import REQUEST_BUCKETS_SECONDS, RequestHistogram, RequestKind


class KubeletMetrics(Collector):
    """One family; a question that was never asked has no series."""

    def __init__(self, times: Callable[[], Mapping[RequestKind, RequestHistogram]]) -> None:
        """`times` gives what was counted so far; asked at each scrape."""
        self._times = times

    def collect(self) -> Iterator[Metric]:
        """By verb, path and code."""
        family = HistogramMetricFamily(
            "koordlet_kubelet_request_duration_seconds",
            "How long kubelet took to answer",
            labels=("verb", "path", "code"),
        )
        bounds = [*map(repr, REQUEST_BUCKETS_SECONDS), "+Inf"]
        for question, times in sorted(self._times().items()):
            family.add_metric(question, list(zip(bounds, times.counts, strict=True)), times.seconds)
        yield family
