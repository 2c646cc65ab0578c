"""Arguments that the plugins which even out nodes share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from descheduler.utilization import levels
from koordlite.model.settings import bounded


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvictionLimits:
    """Limits on the pods that one run may take."""

    node: int | None = bounded(None, ge=0)
    """Maximum number of pods evicted from one node; null: no limit of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrometheusQuery:
    """A query of Prometheus."""

    query: str = ""
    """An instant query that gives one sample for each node, in label `instance`, between 0 and 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricsUtilization:
    """A measure of use in place of the sum of requests."""

    metrics_server: bool = False
    """Older spelling of source KubernetesMetrics."""
    source: Literal["", "KubernetesMetrics", "Prometheus"] = ""
    """The resource metrics API, or a query of Prometheus; empty: requests."""
    prometheus: PrometheusQuery | None = None
    """Needed with source Prometheus, refused otherwise."""

    def __post_init__(self) -> None:
        if self.source == "KubernetesMetrics" and self.metrics_server:
            raise ValueError('it is not allowed to set both "KubernetesMetrics" source and metricsServer')
        if self.source == "KubernetesMetrics" and self.prometheus is not None:
            text = 'prometheus configuration is not allowed to set when source is set to "KubernetesMetrics"'
            raise ValueError(text)
        if self.source == "Prometheus" and not self.query:
            raise ValueError('prometheus query is required when metrics source is set to "Prometheus"')

    @property
    def query(self) -> str:
        """The query, empty without one."""
        return self.prometheus.query if self.prometheus else ""

    @property
    def measured_by(self) -> str:
        """`KubernetesMetrics`, `Prometheus`, or empty for requests."""
        return "KubernetesMetrics" if self.metrics_server else self.source


NO_LIMITS = EvictionLimits()


def percent_of(value: Mapping[str, float]) -> None:
    """Refuse percentages that are none."""
    wrong = [name for name, percent in value.items() if percent is not None and not 0 <= percent <= levels.WHOLE]
    if wrong:
        raise ValueError(", ".join(f"{name} threshold not in [0, 100] range" for name in sorted(wrong)))


def percentages() -> Any:
    """A field of percentages by resource, empty unless given."""
    return dataclasses.field(default_factory=dict, metadata={"check": percent_of})


def check_configured(thresholds: Mapping[str, float]) -> None:
    """Refuse a rule without any threshold."""
    if not thresholds:
        raise ValueError("no resource threshold is configured; write thresholds: {cpu: 20, memory: 20, pods: 20}")
