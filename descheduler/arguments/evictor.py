"""Arguments of `DefaultEvictor`, under the names the upstream descheduler gives them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

from descheduler.arguments.common import LabelSelector, Namespaces
from koordlite.model import duration, label_selectors
from koordlite.model.reading import strict
from koordlite.model.settings import bounded, duration_text

SYSTEM_CRITICAL = 2_000_000_000
"""Priority of system-cluster-critical: pods from there on are never evicted by default."""

Default = Literal["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"]
Extra = Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]
_DEFAULTS: tuple[Default, ...] = ("PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriorityThreshold:
    """Pods of this priority or above are not evicted. Give one of the two; neither means 2000000000."""

    value: int | None = bounded(None, le=SYSTEM_CRITICAL)
    """The number."""
    name: str = ""
    """Name of a PriorityClass; the files must hold it."""

    def __post_init__(self) -> None:
        if self.value is not None and self.name:
            raise ValueError("priorityThreshold takes a value or a name, not both")

    def number(self, classes: Mapping[str, int]) -> int:
        """The priority from which on pods stay; `classes` are the cluster's PriorityClasses, which hold the name."""
        if self.name:
            return classes[self.name]
        return SYSTEM_CRITICAL if self.value is None else self.value


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageClass:
    """A storage class by its name."""

    name: str = ""
    """metadata.name of the StorageClass."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodsWithPVC:
    """Settings of the protection PodsWithPVC."""

    protected_storage_classes: tuple[StorageClass, ...] = ()
    """Only claims of these classes protect a pod; empty: every claim does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProtectionConfig:
    """Settings of single protections."""

    pods_with_pvc: PodsWithPVC = dataclasses.field(default=PodsWithPVC(), metadata={"name": "PodsWithPVC"})
    """Arguments of PodsWithPVC."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodProtections:
    """The protections that hold."""

    extra_enabled: tuple[Extra, ...] = ()
    """Protections in addition to the four that hold by default."""
    default_disabled: tuple[Default, ...] = ()
    """Protections of those four that do not hold."""
    config: ProtectionConfig = ProtectionConfig()
    """Settings of single protections."""

    def __post_init__(self) -> None:
        for name, listed in (("extraEnabled", self.extra_enabled), ("defaultDisabled", self.default_disabled)):
            if len(set(listed)) < len(listed):
                raise ValueError(f"podProtections.{name} lists something twice")
        classes = self.config.pods_with_pvc.protected_storage_classes
        if "PodsWithPVC" in self.extra_enabled and not all(one.name for one in classes):
            raise ValueError("a protected storage class needs a name")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvictionRequests:
    """Pods that ask for it are asked before they are evicted, by an EvictionRequest (`lifecycle.k8s.io/v1alpha1`)."""

    mode: Literal["off", "observe", "on"] = "off"
    """observe: they are evicted like the others, and the plan says who would be asked. on: they are asked."""
    patience: str = duration_text("1h")
    """Time for an answer; a pod that is still there afterwards counts as refused."""
    fallback: bool = True
    """Evict pods that refused, or that cannot be asked, through the Eviction API. false: they stay."""


NOT_ASKED = EvictionRequests()
"""Default of a policy that says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Args:
    """Arguments of `DefaultEvictor`: which pods may be evicted at all."""

    node_fit: bool = False
    """Evict a pod only if it fits on another node, counting what this plan has moved already."""
    node_selector: str = dataclasses.field(default="", metadata={"check": label_selectors.parse})
    """Nodes that `nodeFit` may count on, like `role=worker`; empty: all nodes."""
    label_selector: LabelSelector | None = None
    """Only pods that match are evicted."""
    namespace_label_selector: LabelSelector | None = None
    """Only pods of namespaces that match are evicted."""
    priority_threshold: PriorityThreshold = PriorityThreshold()
    """Pods of this priority or above are not evicted."""
    min_replicas: int = bounded(0, ge=0)
    """Pods whose owner has fewer pods are not evicted; 0 and 1 mean any number."""
    min_pod_age: str | None = dataclasses.field(default=None, metadata={"check": duration.seconds})
    """Pods that started more recently are not evicted, like `10m`."""
    no_eviction_policy: Literal["Preferred", "Mandatory", ""] = "Preferred"
    """Effect of the annotation `descheduler.alpha.kubernetes.io/prefer-no-eviction`. Preferred: such pods go last.
    Mandatory: never."""
    pod_protections: PodProtections = PodProtections()
    """Kinds of pods that are protected."""
    namespaces: Namespaces | None = None
    """Namespaces whose pods may be evicted, or may not; null: all may. Koordinator's, not in upstream."""
    evict_all_bare_pods: bool = False
    """Evict pods without an owner in any phase. Koordinator's, not in upstream."""
    evict_local_storage_pods: bool = False
    """Deprecated upstream; true is `defaultDisabled: [PodsWithLocalStorage]`."""
    evict_daemon_set_pods: bool = False
    """Deprecated upstream; true is `defaultDisabled: [DaemonSetPods]`."""
    evict_system_critical_pods: bool = False
    """Deprecated upstream; true is `defaultDisabled: [SystemCriticalPods]`."""
    evict_failed_bare_pods: bool = False
    """Deprecated upstream; true is `defaultDisabled: [FailedBarePods]`."""
    ignore_pvc_pods: bool = False
    """Deprecated upstream; true is `extraEnabled: [PodsWithPVC]`."""
    ignore_pods_without_pdb: bool = dataclasses.field(default=False, metadata={"name": "ignorePodsWithoutPDB"})
    """Deprecated upstream; true is `extraEnabled: [PodsWithoutPDB]`."""

    def __post_init__(self) -> None:
        lists = self.pod_protections.extra_enabled or self.pod_protections.default_disabled
        old = [strict.camel(name) for name in {**_SWITCHED_OFF, **_SWITCHED_ON} if getattr(self, name)]
        if lists and old:
            raise ValueError(
                f"podProtections and the deprecated {', '.join(old)} cannot be mixed: move it to the lists"
            )

    @functools.cached_property
    def protections(self) -> frozenset[str]:
        """The protections that hold. The deprecated switches count only where neither list is used."""
        lists = self.pod_protections
        if lists.extra_enabled or lists.default_disabled:
            return (frozenset(_DEFAULTS) - set(lists.default_disabled)) | set(lists.extra_enabled)
        off = {protection for name, protection in _SWITCHED_OFF.items() if getattr(self, name)}
        on = {protection for name, protection in _SWITCHED_ON.items() if getattr(self, name)}
        return (frozenset(_DEFAULTS) - off) | on


_SWITCHED_OFF = {
    "evict_local_storage_pods": "PodsWithLocalStorage",
    "evict_daemon_set_pods": "DaemonSetPods",
    "evict_system_critical_pods": "SystemCriticalPods",
    "evict_failed_bare_pods": "FailedBarePods",
}
_SWITCHED_ON = {"ignore_pvc_pods": "PodsWithPVC", "ignore_pods_without_pdb": "PodsWithoutPDB"}
