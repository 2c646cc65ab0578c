"""What the operator asked for in ConfigMap `slo-controller-config`, as it holds for one node.

The values only; `slo_config` reads and merges the ConfigMap. Field names are the ConfigMap's, in snake case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from koordlite.model.errors import Problem
from koordlite.model.qos import PriorityClass, QoSClass


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Colocation:
    """Key `colocation-config`: how best-effort allocatable is worked out (docs/formulas.md, "BE allocatable")."""

    enable: bool = False
    metric_aggregate_duration_seconds: int = 300
    metric_report_interval_seconds: int = 60
    cpu_reclaim_threshold_percent: int = 60
    cpu_calculate_policy: str = "usage"
    """usage | maxUsageRequest; anything else means usage."""
    memory_reclaim_threshold_percent: int = 65
    memory_calculate_policy: str = "usage"
    """usage | request | maxUsageRequest; anything else means usage."""
    degrade_time_minutes: int = 15
    update_time_threshold_seconds: int = 300
    resource_diff_threshold: float = 0.1
    batch_cpu_threshold_percent: int | None = None
    batch_memory_threshold_percent: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Key `resource-threshold-config`: what best-effort pods may use right now."""

    enable: bool = False
    cpu_suppress_threshold_percent: int = 65
    cpu_suppress_min_percent: int | None = None
    cpu_suppress_policy: str = "cpuset"
    """cpuset | cfsQuota; anything else means cpuset."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResctrlQOS:
    """`resctrlQOS` of one class in key `resource-qos-config`."""

    enable: bool = False
    cat_range_start_percent: int = 0
    cat_range_end_percent: int = 100
    mba_percent: int | None = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostApplication:
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

RESCTRL_DEFAULT: Mapping[QoSClass, ResctrlQOS] = MappingProxyType(
    {
        QoSClass.LSR: ResctrlQOS(),
        QoSClass.LS: ResctrlQOS(),
        QoSClass.BE: ResctrlQOS(cat_range_end_percent=30),
    }
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SLO:
    """Everything that holds for one node after defaults, cluster strategy, node strategy and node metadata."""

    colocation: Colocation = Colocation()
    threshold: Threshold = Threshold()
    resctrl: Mapping[QoSClass, ResctrlQOS] = dataclasses.field(default_factory=lambda: RESCTRL_DEFAULT)
    host_applications: tuple[HostApplication, ...] = ()
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where a value that is not the default came from: `threshold.cpuSuppressThresholdPercent` →
    `cluster`, `node strategy NAME`, `annotation …` or `label …`."""
    problems: tuple[Problem, ...] = ()
    """What was refused on the way, with what holds instead."""
