"""Settings of the operator in ConfigMap `slo-controller-config`, as it holds for one node.

The values only; `slo.config` reads and merges the ConfigMap. Field names are the ConfigMap's, in snake case, defaults
are Koordinator's (`DefaultColocationCfg`, `DefaultSLOCfg`), ranges those of its validating webhook, as far as its
controllers do not take more. `resource-qos-config` is in `slo.qos`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from koordlite.model import duration
from koordlite.model.errors import Problem
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.reading.declared import AtLeast0, Nanoseconds, OneOf, OnOff, Percent, Within
from koordlite.model.slo import qos as slo_qos
from koordlite.model.slo.qos import ResctrlQOS, ResourceQOS

Seconds = Annotated[int, Within(above=0)]
Pairs = tuple[tuple[str, str], ...]


class MetricAggregatePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Spans over which node usage is reported besides the mean."""

    durations: tuple[Nanoseconds, ...] = (300 * duration.SECOND, 600 * duration.SECOND, 1800 * duration.SECOND)


class Colocation(msgspec.Struct, frozen=True, kw_only=True):
    """Key `colocation-config`: how best-effort allocatable is worked out (docs/formulas.md, "BE allocatable")."""

    enable: bool = False
    metric_aggregate_duration_seconds: Seconds = 300
    metric_report_interval_seconds: Seconds = 60
    metric_aggregate_policy: MetricAggregatePolicy = MetricAggregatePolicy()
    metric_memory_collect_policy: Annotated[
        str, OneOf(("usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"))
    ] = "usageWithoutPageCache"
    cpu_reclaim_threshold_percent: AtLeast0 = 60
    cpu_calculate_policy: Annotated[str, OneOf(("usage", "maxUsageRequest"))] = "usage"
    """usage | maxUsageRequest; anything else means usage."""
    memory_reclaim_threshold_percent: AtLeast0 = 65
    memory_calculate_policy: Annotated[str, OneOf(("usage", "request", "maxUsageRequest"))] = "usage"
    """usage | request | maxUsageRequest; anything else means usage."""
    degrade_time_minutes: Annotated[int, Within(above=0)] = 15
    update_time_threshold_seconds: Seconds = 300
    resource_diff_threshold: Annotated[float, Within(above=0, usual=1)] = 0.1
    mid_reclaim_mode: Annotated[str, OneOf(("static",), "the dynamic rule")] = ""
    """static, or anything else for the dynamic rule (docs/formulas.md, "Mid allocatable")."""
    mid_cpu_threshold_percent: Percent = 100
    mid_memory_threshold_percent: Percent = 100
    mid_unallocated_percent: Percent = 0
    mid_static_cpu_reserved_percent: Annotated[int, Within(low=0, usual=100)] = 0
    mid_static_memory_reserved_percent: Annotated[int, Within(low=0, usual=100)] = 0
    batch_cpu_threshold_percent: AtLeast0 | None = None
    batch_memory_threshold_percent: AtLeast0 | None = None
    extensions: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Settings of Koordinator's plug-ins, kept as they are."""


CPU_SUPPRESS_POLICIES = ("cpuset", "cfsQuota", "guided")


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """Key `resource-threshold-config`: what best-effort pods may use right now, and when pods are evicted.
    A lower end that is not set is 2 below its threshold."""

    ORDERED: ClassVar[Pairs] = (
        ("memory_evict_lower_percent", "memory_evict_threshold_percent"),
        ("numa_memory_evict_lower_percent", "numa_memory_evict_threshold_percent"),
        ("memory_allocatable_evict_lower_percent", "memory_allocatable_evict_threshold_percent"),
        ("cpu_evict_lower_percent", "cpu_evict_threshold_percent"),
        ("cpu_allocatable_evict_lower_percent", "cpu_allocatable_evict_threshold_percent"),
        ("cpu_evict_be_satisfaction_lower_percent", "cpu_evict_be_satisfaction_upper_percent"),
    )

    enable: bool = False
    cpu_suppress_threshold_percent: Percent = 65
    cpu_suppress_min_percent: Percent | None = None
    cpu_suppress_policy: Annotated[str, OneOf(CPU_SUPPRESS_POLICIES)] = "cpuset"
    """cpuset | cfsQuota | guided; anything else means cpuset. `guided` is ours: a quota as well, which follows what
    services wait."""
    memory_evict_threshold_percent: Percent = 70
    memory_evict_lower_percent: Percent | None = None
    numa_memory_evict_threshold_percent: Percent | None = None
    """Ours, as the next: of the memory of one NUMA node."""
    numa_memory_evict_lower_percent: Percent | None = None
    memory_allocatable_evict_threshold_percent: AtLeast0 | None = None
    memory_allocatable_evict_lower_percent: AtLeast0 | None = None
    cpu_evict_be_satisfaction_upper_percent: Percent | None = None
    cpu_evict_be_satisfaction_lower_percent: Percent | None = None
    cpu_evict_be_usage_threshold_percent: Percent | None = None
    cpu_evict_time_window_seconds: Seconds | None = None
    cpu_evict_policy: Annotated[str, OneOf(("evictByRealLimit", "evictByAllocatable"))] = "evictByRealLimit"
    cpu_evict_threshold_percent: Percent | None = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: AtLeast0 | None = None
    cpu_allocatable_evict_lower_percent: AtLeast0 | None = None
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: Annotated[int, Within(low=0, high=7999)] | None = None


class CPUBurst(msgspec.Struct, frozen=True, kw_only=True):
    """Key `cpu-burst-config`: what a container may use beyond its limit for a while."""

    policy: Annotated[str, OneOf(("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"))] = "none"
    cpu_burst_percent: Annotated[int, Within(low=1, high=10_000)] = 1000
    cfs_quota_burst_percent: Annotated[int, Within(low=100)] = 300
    cfs_quota_burst_period_seconds: Annotated[int, Within(low=-1)] = -1
    """Longest time of a raised quota; -1 has no end."""
    share_pool_threshold_percent: Percent = 50
    """Use of the node's shared CPUs above which raised quotas are lowered."""


class System(msgspec.Struct, frozen=True, kw_only=True):
    """Key `system-config`: settings of the node's kernel. What is not set is left alone."""

    min_free_kbytes_factor: Annotated[int, Within(above=0)] | None = None
    """vm.min_free_kbytes in ten-thousandths of the memory."""
    watermark_scale_factor: Annotated[int, Within(low=1, high=400)] | None = None
    memcg_reap_back_ground: OnOff | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    """Nanoseconds."""
    sched_features: Mapping[str, bool] = msgspec.field(default_factory=dict)
    page_cache_limit_enabled: OnOff | None = None
    total_network_bandwidth: Quantity = ZERO
    """Bits per second; 0 is unknown."""


class RatioModel(msgspec.Struct, frozen=True, kw_only=True):
    """Worth of a CPU of one model, by the state of hyperthreads and turbo."""

    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class CPUNormalization(msgspec.Struct, frozen=True, kw_only=True):
    """Key `cpu-normalization-config`: what a CPU of a model is worth, so that nodes can be compared."""

    enable: bool = False
    default_ratio: float | None = None
    """Ratio of models that are not listed."""
    ratio_model: Mapping[str, RatioModel] = msgspec.field(default_factory=dict)
    """Ratios by the model's name in /proc/cpuinfo."""


class ResourceAmplification(msgspec.Struct, frozen=True, kw_only=True):
    """Key `resource-amplification-config`: how much more than it has a node promises."""

    enable: bool = False
    resource_amplification_ratio: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Ratios by resource name."""


class NUMAPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Key `numa-policy-config`: NUMA policies of the cluster that are switched over REST. Ours."""

    distance: bool = False
    """The scheduler's extender rates nodes by the distance of the NUMA nodes a pod gets, and takes the nearest."""
    pod_affinity: bool = True
    """Agents may bring pods that talk to each other onto one NUMA node, as far as their own mode lets them."""


class HostApplication(msgspec.Struct, frozen=True, kw_only=True):
    """A process group outside Kubernetes, from key `host-application-config`."""

    name: str
    priority: PriorityClass = PriorityClass.NONE
    qos: QoSClass = QoSClass.NONE
    base: str = ""
    """CgroupRoot | Kubepods | KubepodsBurstable | KubepodsBesteffort, or empty when no cgroupPath was given."""
    parent_dir: str = ""
    relative_path: str = ""

    @property
    def is_best_effort(self) -> bool:
        """Lives under besteffort and is declared BE: not protected by CPU suppression."""
        return self.qos is QoSClass.BE and self.base == "KubepodsBesteffort"


RESCTRL_CLASSES = (QoSClass.LSR, QoSClass.LS, QoSClass.BE)


class GoodDocument(msgspec.Struct, frozen=True):
    """A document of the ConfigMap that could be used, and since when it holds."""

    text: str
    taken_at: str = ""
    """RFC 3339; empty where nobody asked for the time."""
    resource_version: str = ""
    """Version of the ConfigMap it was first in; empty without an API server."""

    @property
    def origin(self) -> str:
        """`taken 2026-01-31T18:00:00Z, resourceVersion 7`, or as much as is known."""
        version = f"resourceVersion {self.resource_version}" if self.resource_version else ""
        return ", ".join(filter(None, (f"taken {self.taken_at}" if self.taken_at else "", version)))


class SLO(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that holds for one node after defaults, cluster strategy, node strategy and node metadata."""

    colocation: Colocation = Colocation()
    threshold: Threshold = Threshold()
    resource_qos: ResourceQOS = slo_qos.OFF
    cpu_burst: CPUBurst = CPUBurst()
    system: System = System()
    host_applications: tuple[HostApplication, ...] = ()
    cpu_normalization: CPUNormalization = CPUNormalization()
    resource_amplification: ResourceAmplification = ResourceAmplification()
    numa_policy: NUMAPolicy = NUMAPolicy()
    origins: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Sources of values that are not the default: `threshold.cpuSuppressThresholdPercent` → `cluster`, `node strategy
    NAME`, `annotation …` or `label …`."""
    good: Mapping[str, GoodDocument] = msgspec.field(default_factory=dict)
    """Newest usable document by key."""
    kept: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Keys whose document cannot be used → what holds instead."""
    problems: tuple[Problem, ...] = ()
    """Refused values, with what holds instead."""

    @property
    def resctrl(self) -> Mapping[QoSClass, ResctrlQOS]:
        """`resctrlQOS` of the classes that have a resctrl group."""
        classes = (self.resource_qos.lsr_class, self.resource_qos.ls_class, self.resource_qos.be_class)
        return {qos: settings.resctrl_qos for qos, settings in zip(RESCTRL_CLASSES, classes, strict=True)}


def collect_policy(colocation: Colocation) -> Colocation:
    """The settings `metric_…` in force: what the strategy asks for, or the defaults while colocation is off.
    Source: Koordinator `getNodeMetricCollectPolicy`."""
    return colocation if colocation.enable else _OFF


_OFF = Colocation()
