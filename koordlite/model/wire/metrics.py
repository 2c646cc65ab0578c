"""Measured use as it comes off the wire: Koordinator's NodeMetric and the metrics API."""

from __future__ import annotations

from koordlite.model.wire.objects import ObjectMeta, WireObject


class MeasuredResources(WireObject, frozen=True):
    """A measured use."""

    resources: dict[str, str | int | float] | None = None


class PodMetric(WireObject, frozen=True):
    """Measured use of one pod."""

    name: str = ""
    namespace: str = ""
    pod_usage: MeasuredResources | None = None


class NodeUsage(WireObject, frozen=True):
    """Measured use of a node; `system_usage` is what neither pods nor host applications use."""

    node_usage: MeasuredResources | None = None
    system_usage: MeasuredResources | None = None


class NodeMetricStatus(WireObject, frozen=True):
    """status of a NodeMetric."""

    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodMetric, ...] | None = None


class NodeMetricObject(WireObject, frozen=True):
    """A slo.koordinator.sh/v1alpha1 NodeMetric; cluster-scoped, named after its node."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeMetricStatus = NodeMetricStatus()


class NodeMetricsObject(WireObject, frozen=True):
    """A metrics.k8s.io NodeMetrics: what a node uses just now."""

    metadata: ObjectMeta = ObjectMeta()
    usage: dict[str, str | int | float] | None = None


class ContainerMetrics(WireObject, frozen=True):
    """What a container uses just now."""

    name: str = ""
    usage: dict[str, str | int | float] | None = None


class PodMetricsObject(WireObject, frozen=True):
    """A metrics.k8s.io PodMetrics."""

    metadata: ObjectMeta = ObjectMeta()
    containers: tuple[ContainerMetrics, ...] | None = None
