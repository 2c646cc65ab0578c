"""A pod as the rules see it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem
from koordlite.model.pod import crane, qos
from koordlite.model.quantity import Quantity
from koordlite.model.reading.declared import OneOf

BindPolicy = Annotated[str, OneOf(("Default", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst"))]
ExclusivePolicy = Annotated[str, OneOf(("None", "PCPULevel", "NUMANodeLevel"))]


class ResourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Preferences of the pod's author for its CPUs in annotation `scheduling.koordinator.sh/resource-spec`; empty text
    is no preference. Source: Koordinator `apis/extension`, `GetResourceSpec`."""

    required_cpu_bind_policy: BindPolicy = ""
    """Whole cores, or spread over cores; a node that cannot give it is no node for the pod."""
    preferred_cpu_bind_policy: BindPolicy = ""
    preferred_cpu_exclusive_policy: ExclusivePolicy = ""
    """Distance from the CPUs of pods that ask for the same: on none of their cores, or none of their NUMA nodes."""


NO_PREFERENCE = ResourceSpec()


class ResourceStatus(msgspec.Struct, frozen=True):
    """Promise of the scheduler in annotation `scheduling.koordinator.sh/resource-status`."""

    cpuset: CPUSet = EMPTY
    numa_nodes: tuple[int, ...] = ()
    numa_cpu: bool = True
    """True where any of the NUMA entries grants cpu or batch-cpu; memory alone does not tie CPUs to the nodes."""
    refused: CPUSet = EMPTY
    """CPUs that the annotation names and the pod does not get (`numa.koordinator.assignments`)."""
    why: str = ""
    """Reason why not."""
    rivals: tuple[str, ...] = ()
    """`namespace/name` of pods that name some of these CPUs as well and do not get them."""


class Amounts(msgspec.Struct, frozen=True):
    """Requests and limits by resource name."""

    requests: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    limits: Mapping[str, Quantity] = msgspec.field(default_factory=dict)


class ContainerInfo(msgspec.Struct, frozen=True):
    """One container: its id as the runtime prints it (`containerd://…`, empty before it was made) and what it asks."""

    name: str
    id: str
    running: bool
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    one_shot: bool = False
    """An init container that ends before the others start, unlike a sidecar."""
    init: bool = False
    """It stands among the init containers of the spec, be it a sidecar."""


class Pod(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Identity, classes and requests of one pod. `problems` lists annotations that could not be read."""

    namespace: str
    name: str
    uid: str
    phase: str = "Running"
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    raw_qos: qos.QoSClass = qos.QoSClass.NONE
    kube_qos: qos.KubeQoS = qos.KubeQoS.BEST_EFFORT
    priority: int | None = None
    sub_priority: int = 0
    """Order among pods of one priority class, from label `koordinator.sh/priority`."""
    requests: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """Effective request by resource name, as the scheduler counts it."""
    overhead: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """Overhead of the runtime for the pod (`spec.overhead`); part of `requests`."""
    containers: tuple[ContainerInfo, ...] = ()
    extended_resources: Mapping[str, Amounts] = msgspec.field(default_factory=dict)
    """Batch resources by container name, from annotation `node.koordinator.sh/extended-resource-spec`."""
    resource_status: ResourceStatus = ResourceStatus()
    resource_spec: ResourceSpec = NO_PREFERENCE
    numa_policy: str = ""
    """numaTopologyPolicy of `scheduling.koordinator.sh/numa-topology-spec`: BestEffort, Restricted, SingleNUMANode."""
    crane: crane.CraneSpec = crane.NOTHING
    """Crane's annotations."""
    constraints: tuple[str, ...] = ()
    """Fields of its spec that narrow the choice of nodes: `podAntiAffinity`, `nodeSelector`."""
    deleting: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @functools.cached_property
    def qos_class(self) -> qos.QoSClass:
        """QoS class with default."""
        return qos.with_default(self.raw_qos, self.kube_qos)

    @functools.cached_property
    def priority_class(self) -> qos.PriorityClass:
        """Priority band with default."""
        return qos.priority_class(self.labels.get(keys.PRIORITY_CLASS), self.priority, self.qos_class)

    @property
    def raw_priority_class(self) -> qos.PriorityClass:
        """Priority band by label or number alone."""
        return qos.raw_priority_class(self.labels.get(keys.PRIORITY_CLASS), self.priority)

    @property
    def priority_value(self) -> int:
        """Priority number with default."""
        return qos.priority_value(self.priority, self.priority_class)

    @property
    def finished(self) -> bool:
        """Its containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Running or Pending."""
        return self.phase in ("Running", "Pending")

    @property
    def is_best_effort(self) -> bool:
        """Lives in the besteffort cgroup, or says it is BE: not protected by CPU suppression."""
        return self.raw_qos is qos.QoSClass.BE or self.kube_qos is qos.KubeQoS.BEST_EFFORT

    def request_milli(self, resource: str = "cpu") -> int:
        """Requested thousandths of `resource` (millicores for cpu), 0 when none."""
        return self.requests[resource].milli if resource in self.requests else 0

    def request_value(self, resource: str) -> int:
        """Requested whole units of `resource` (bytes for memory), 0 when none."""
        return self.requests[resource].value if resource in self.requests else 0
