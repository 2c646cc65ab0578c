"""Measured use as it comes off the wire: Koordinator's NodeMetric and the metrics API."""

from __future__ import annotations

from koordlite.model.wire.objects import KubeObject, WireObject

NODE_METRIC_VERSION = "slo.koordinator.sh/v1alpha1"
NODE_METRICS = f"/apis/{NODE_METRIC_VERSION}/nodemetrics"


class MeasuredResources(WireObject, frozen=True):
    """A measured use."""

    resources: dict[str, str | int | float] | None = None


class PodMetric(WireObject, frozen=True):
    """Measured use of one pod."""

    name: str = ""
    namespace: str = ""
    pod_usage: MeasuredResources | None = None
    priority: str = ""
    """Its priority class as whoever measured it saw it."""


class AggregatedUsage(WireObject, frozen=True):
    """Percentiles of a node's use over a window, by their names: avg, p50, p90, p95, p99."""

    usage: dict[str, MeasuredResources] | None = None
    duration: str = ""


class NodeUsage(WireObject, frozen=True):
    """Measured use of a node; `system_usage` is what neither pods nor host applications use."""

    node_usage: MeasuredResources | None = None
    system_usage: MeasuredResources | None = None
    aggregated_node_usages: tuple[AggregatedUsage, ...] | None = None


class NodeMetricStatus(WireObject, frozen=True):
    """status of a NodeMetric."""

    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodMetric, ...] | None = None


class CollectPolicy(WireObject, frozen=True):
    """Intervals at which a node is measured."""

    report_interval_seconds: int | None = None


class NodeMetricSpec(WireObject, frozen=True):
    """spec of a NodeMetric."""

    metric_collect_policy: CollectPolicy | None = None


class NodeMetricObject(KubeObject, frozen=True):
    """A slo.koordinator.sh/v1alpha1 NodeMetric; cluster-scoped, named after its node."""

    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


class NodeMetricsObject(KubeObject, frozen=True):
    """A metrics.k8s.io NodeMetrics: what a node uses just now."""

    usage: dict[str, str | int | float] | None = None


class ContainerMetrics(WireObject, frozen=True):
    """Present use of a container."""

    name: str = ""
    usage: dict[str, str | int | float] | None = None


class PodMetricsObject(KubeObject, frozen=True):
    """A metrics.k8s.io PodMetrics."""

    containers: tuple[ContainerMetrics, ...] | None = None
