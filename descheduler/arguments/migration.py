"""Arguments of Koordinator's `MigrationController`: which pods it may take, how many at once, and how."""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from typing import Any, Literal

from descheduler.arguments.common import LabelSelector, Namespaces
from descheduler.arguments.evictor import Args, Default, PodProtections, PriorityThreshold
from koordlite.model import duration, label_selectors
from koordlite.model.settings import bounded, duration_text

Gate = Literal[
    "MaxUnavailablePerWorkload",
    "MaxMigratingPerWorkload",
    "MaxMigratingPerNode",
    "MaxMigratingPerNamespace",
    "MaxMigratingGlobally",
    "ExpectedReplicas",
    "PVC",
    "BarePods",
    "LocalStorage",
    "SystemCritical",
    "PriorityThreshold",
    "LabelSelector",
    "Namespaces",
    "NodeFit",
]
_PERCENT = re.compile(r"[0-9]+%", re.ASCII)


def _count_or_percent(value: object) -> None:
    # Koordinator takes any whole number; below 0 nothing may go.
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole and not (isinstance(value, str) and _PERCENT.fullmatch(value)):
        raise ValueError("neither a whole number nor a percentage like 10%")


def _share() -> Any:
    """A field that holds a number of pods, or a percentage of a workload's."""
    return dataclasses.field(default=None, metadata={"yaml": Any, "check": _count_or_percent})


def _rate(value: object) -> None:
    try:
        good = not isinstance(value, bool) and float(str(value)) > 0
    except ValueError:
        good = False
    if not good:
        raise ValueError("not a number above 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectLimiter:
    """The pace at which pods of one workload or namespace may go."""

    duration: str = duration_text("0")
    """Span of time; 0 switches the limiter off."""
    max_migrating: int | str | None = _share()
    """Pods that may go within the span; null: what maxMigratingPerWorkload says."""
    burst: int = bounded(0, ge=0)
    """Pods that may go at once; 0 means 1."""


_SCHEDULERS = ("koord-scheduler",)
_LIMITERS = types.MappingProxyType({"workload": ObjectLimiter(duration="5m")})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arbitration:
    """The arbitration of waiting jobs."""

    enabled: bool = True
    """false: jobs begin as soon as they are seen. Koordinator reads it nowhere."""
    interval: str = duration_text("500ms")
    """Pause between two rounds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigrationControllerArgs:
    """Arguments of `MigrationController`."""

    dry_run: bool = False
    """Make no jobs, only say so."""
    max_concurrent_reconciles: int = bounded(1, ge=1)
    """Without effect: jobs are worked on one after the other, which keeps the limits exact."""
    evict_failed_bare_pods: bool = False
    """Take failed pods without an owner."""
    evict_all_bare_pods: bool = False
    """Take all pods without an owner."""
    evict_local_storage_pods: bool = False
    """Take pods with local storage."""
    evict_system_critical_pods: bool = False
    """Take system-critical pods; the priority threshold is off then, as in upstream."""
    ignore_pvc_pods: bool = False
    """Leave pods with claims alone."""
    priority_threshold: PriorityThreshold | None = None
    """Pods of this priority or above are not taken."""
    label_selector: LabelSelector | None = None
    """Only pods that match are taken."""
    namespaces: Namespaces | None = None
    """Namespaces whose pods are taken, or are not."""
    node_fit: bool = False
    """Take a pod only if it fits on another node."""
    node_selector: str = dataclasses.field(default="", metadata={"check": label_selectors.parse})
    """Nodes that nodeFit may count on; empty: all."""
    skip_eviction_gates: tuple[Gate, ...] = ()
    """Checks that are left out."""
    max_migrating_globally: int | None = bounded(None, ge=0)
    """Jobs at once; null and 0: no limit."""
    max_migrating_per_node: int = bounded(2, ge=0)
    """Jobs at once for pods of one node; 0: no limit."""
    max_migrating_per_namespace: int | None = bounded(None, ge=0)
    """Jobs at once for pods of one namespace; null and 0: no limit."""
    max_migrating_per_workload: int | str | None = _share()
    """Jobs at once for pods of one workload, a number or a percentage; null: worked out from its replicas."""
    max_unavailable_per_workload: int | str | None = _share()
    """Pods of one workload that may be missing at once, a number or a percentage; null: worked out from replicas."""
    skip_check_expected_replicas: bool | None = None
    """Do not protect workloads whose replicas are all within the limits above."""
    object_limiters: Mapping[str, ObjectLimiter] = dataclasses.field(default_factory=dict)
    """Pace at which pods may go, by `workload` and `namespace`; empty: one of a workload in 5 minutes."""
    default_job_mode: Literal["ReservationFirst", "EvictDirectly", ""] = "ReservationFirst"
    """Reserve a place before the pod is evicted, or just evict it."""
    default_job_ttl: str = dataclasses.field(
        default="5m", metadata={"name": "defaultJobTTL", "check": duration.seconds}
    )
    """Time after which a job gives up; 0: never."""
    scheduler_names: tuple[str, ...] = _SCHEDULERS
    """Schedulers that honour reservations; empty: koord-scheduler."""
    evict_qps: float | str = dataclasses.field(default=10, metadata={"name": "evictQPS", "yaml": Any, "check": _rate})
    """Evictions a second."""
    evict_burst: int = bounded(1, ge=1)
    """Evictions at once."""
    eviction_policy: Literal["Eviction", "Delete", "SoftEviction"] = "Eviction"
    """Request to the API."""
    default_delete_options: Mapping[str, Any] | None = None
    """deleteOptions of jobs that have none."""
    arbitration_args: Arbitration = Arbitration()
    """Arbitration of waiting jobs."""

    def __post_init__(self) -> None:
        if not self.scheduler_names:
            object.__setattr__(self, "scheduler_names", _SCHEDULERS)
        if not self.object_limiters:
            object.__setattr__(self, "object_limiters", _LIMITERS)

    def evictor_args(self) -> Args:
        """Its filter for single pods as DefaultEvictor's arguments (Koordinator `EvictorFilter`)."""
        skipped = frozenset(self.skip_eviction_gates)
        off: dict[Default, bool] = {
            "PodsWithLocalStorage": self.evict_local_storage_pods or "LocalStorage" in skipped,
            "SystemCriticalPods": self.evict_system_critical_pods or "SystemCritical" in skipped,
            "FailedBarePods": self.evict_failed_bare_pods,
        }
        claims = self.ignore_pvc_pods and "PVC" not in skipped
        threshold = None if "PriorityThreshold" in skipped else self.priority_threshold
        return Args(
            node_fit=self.node_fit and "NodeFit" not in skipped,
            node_selector=self.node_selector,
            label_selector=None if "LabelSelector" in skipped else self.label_selector,
            namespaces=None if "Namespaces" in skipped else self.namespaces,
            priority_threshold=threshold or PriorityThreshold(),
            evict_all_bare_pods=self.evict_all_bare_pods or "BarePods" in skipped,
            pod_protections=PodProtections(
                default_disabled=tuple(name for name, disabled in off.items() if disabled),
                extra_enabled=("PodsWithPVC",) if claims else (),
            ),
        )
