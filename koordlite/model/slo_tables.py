"""The names that the documents of `slo-controller-config` may hold, with their types and ranges.

Ranges are those under which Koordinator's controllers accept a strategy (`IsColocationStrategyValid`) or its webhook
lets one in. Names in the `*_OTHER` tuples belong to parts of Koordinator that are not read here; they are no mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model.lenient_json import Field

Table = Mapping[str, Field]

COLOCATION: Table = {
    "enable": Field(attribute="enable", kind=bool),
    "metricAggregateDurationSeconds": Field(attribute="metric_aggregate_duration_seconds", kind=int, above=0),
    "metricReportIntervalSeconds": Field(attribute="metric_report_interval_seconds", kind=int, above=0),
    "cpuReclaimThresholdPercent": Field(attribute="cpu_reclaim_threshold_percent", kind=int, low=0),
    "cpuCalculatePolicy": Field(attribute="cpu_calculate_policy", kind=str, words=("usage", "maxUsageRequest")),
    "memoryReclaimThresholdPercent": Field(attribute="memory_reclaim_threshold_percent", kind=int, low=0),
    "memoryCalculatePolicy": Field(
        attribute="memory_calculate_policy", kind=str, words=("usage", "request", "maxUsageRequest")
    ),
    "degradeTimeMinutes": Field(attribute="degrade_time_minutes", kind=int, above=0),
    "updateTimeThresholdSeconds": Field(attribute="update_time_threshold_seconds", kind=int, above=0),
    "resourceDiffThreshold": Field(attribute="resource_diff_threshold", kind=float, above=0),
    "batchCPUThresholdPercent": Field(attribute="batch_cpu_threshold_percent", kind=int, low=0),
    "batchMemoryThresholdPercent": Field(attribute="batch_memory_threshold_percent", kind=int, low=0),
}
COLOCATION_OTHER = (
    "metricAggregatePolicy",
    "metricMemoryCollectPolicy",
    "midReclaimMode",
    "midCPUThresholdPercent",
    "midMemoryThresholdPercent",
    "midUnallocatedPercent",
    "midStaticCPUReservedPercent",
    "midStaticMemoryReservedPercent",
    "extensions",
)

THRESHOLD: Table = {
    "enable": Field(attribute="enable", kind=bool),
    "cpuSuppressThresholdPercent": Field(attribute="cpu_suppress_threshold_percent", kind=int, low=0, high=100),
    "cpuSuppressMinPercent": Field(attribute="cpu_suppress_min_percent", kind=int, low=0, high=100),
    "cpuSuppressPolicy": Field(attribute="cpu_suppress_policy", kind=str, words=("cpuset", "cfsQuota")),
}
THRESHOLD_OTHER = (
    "memoryEvictThresholdPercent",
    "memoryEvictLowerPercent",
    "memoryAllocatableEvictThresholdPercent",
    "memoryAllocatableEvictLowerPercent",
    "cpuEvictPolicy",
    "cpuEvictBESatisfactionUpperPercent",
    "cpuEvictBESatisfactionLowerPercent",
    "cpuEvictBEUsageThresholdPercent",
    "cpuEvictTimeWindowSeconds",
    "cpuEvictThresholdPercent",
    "cpuEvictLowerPercent",
    "cpuAllocatableEvictThresholdPercent",
    "cpuAllocatableEvictLowerPercent",
    "evictEnabledPriorityThreshold",
    "allocatableEvictPriorityThreshold",
)

RESCTRL: Table = {
    "enable": Field(attribute="enable", kind=bool),
    "catRangeStartPercent": Field(attribute="cat_range_start_percent", kind=int, low=0, high=100),
    "catRangeEndPercent": Field(attribute="cat_range_end_percent", kind=int, low=0, high=100),
    "mbaPercent": Field(attribute="mba_percent", kind=int, low=0, high=100),
}
QOS_CLASS_OTHER = ("cpuQOS", "memoryQOS", "blkioQOS", "networkQOS")
QOS_OTHER = ("policies", "systemClass", "cgroupRoot")

HOST_APPLICATION = ("name", "priority", "qos", "cgroupPath", "strategy")
CGROUP_PATH = ("base", "parentDir", "relativePath")
CGROUP_BASES = ("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort")
