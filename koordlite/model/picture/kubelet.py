"""Kubelet: its configuration, and the CPUs, devices and memory it may give out and has given to containers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.nrt import Device
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity


class PodCPUs(msgspec.Struct, frozen=True):
    """CPUs a pod has alone from kubelet's static CPU manager, or by ResourceClaims from a DRA driver."""

    uid: str
    cpus: CPUSet
    containers: Mapping[str, CPUSet] = msgspec.field(default_factory=dict)
    claimed: bool = False
    """True where ResourceClaims give the CPUs. The driver writes the sets of these containers; an empty set is one that
    is not known."""


class Kubelet(msgspec.Struct, frozen=True):
    """Kubelet's configuration and its assignments."""

    cpu_manager_policy: str = ""
    """none | static, empty when unknown."""
    cpu_manager_options: Mapping[str, str] = msgspec.field(default_factory=dict)
    topology_manager_policy: str = ""
    topology_manager_scope: str = ""
    reserved_cpus: CPUSet = EMPTY
    """CPUs that the static policy keeps; empty under any other."""
    pod_cpus: tuple[PodCPUs, ...] = ()
    devices: Mapping[tuple[str, str], tuple[Device, ...]] = msgspec.field(default_factory=dict)
    """Devices kubelet gave to containers, by pod uid and container name."""
    memory_nodes: Mapping[tuple[str, str], tuple[int, ...]] = msgspec.field(default_factory=dict)
    """NUMA nodes of which kubelet's static memory manager promised memory, by pod uid and container name."""
    topology_manager_options: Mapping[str, str] = msgspec.field(default_factory=dict)
    resources: KubeletResources | None = None
    """Resources that it may give out and has given out; None where only its policies are known."""
    listed_reserved_cpus: CPUSet = EMPTY
    """`reservedSystemCPUs`, whatever the policy."""
    reserved: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """`systemReserved` + `kubeReserved` by resource."""
    cpu_cfs_quota: bool | None = None
    """True where it writes the quotas of CPU limits (`cpuCFSQuota`); None when unknown."""

    swap_behavior: str = ""
    """NoSwap | LimitedSwap, which writes `memory.swap.max` of every container; empty when unknown or not set."""

    @property
    def reserved_milli(self) -> int:
        """Thousandths of a CPU in `reserved`."""
        return self.reserved["cpu"].milli if "cpu" in self.reserved else 0


def with_promise(pods: Iterable[Pod], kubelet: Kubelet) -> frozenset[str]:
    """Uids of the pods to which CPUs or NUMA nodes were promised: by a scheduler in an annotation, or by kubelet."""
    promised = (
        pod.uid for pod in pods if pod.resource_status.cpuset or pod.resource_status.numa_nodes or pod.crane.zones
    )
    return frozenset([*promised, *(pod.uid for pod in kubelet.pod_cpus), *(uid for uid, _ in kubelet.memory_nodes)])


class Devices(msgspec.Struct, frozen=True):
    """Devices of one resource; `nodes` are the NUMA nodes they are attached to, empty where that is not known."""

    resource: str
    ids: tuple[str, ...]
    nodes: tuple[int, ...] = ()


class MemoryBlock(msgspec.Struct, frozen=True):
    """Bytes of one kind (`memory`, `hugepages-2Mi`) from these NUMA nodes together."""

    kind: str
    size: int
    nodes: tuple[int, ...] = ()


class ResourceSet(msgspec.Struct, frozen=True):
    """Devices of a container, or those that kubelet may give out."""

    cpus: CPUSet = EMPTY
    devices: tuple[Devices, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    claims: tuple[str, ...] = ()
    """CDI names of the CPUs it has by ResourceClaims: `dra.k8s.io/cpu=claim-…`."""
    claimed: CPUSet = EMPTY
    """These CPUs."""

    @property
    def has_locality(self) -> bool:
        """Tell whether it has CPUs of its own, or memory or devices of a NUMA node that is known."""
        return bool(self.cpus or self.nodes)

    @property
    def nodes(self) -> frozenset[int]:
        """NUMA nodes of its memory and devices."""
        memory = (node for block in self.memory for node in block.nodes)
        return frozenset(memory) | {node for devices in self.devices for node in devices.nodes}


class PodResources(msgspec.Struct, frozen=True):
    """Devices of the containers of one pod, by container name. Kubelet's socket names pods, its checkpoints uids."""

    namespace: str
    name: str
    containers: Mapping[str, ResourceSet]
    uid: str = ""

    def each(self, change: Callable[[ResourceSet], ResourceSet]) -> PodResources:
        """The pod with every container's resources changed."""
        containers = {name: change(resources) for name, resources in self.containers.items()}
        return msgspec.structs.replace(self, containers=containers)


class KubeletResources(msgspec.Struct, frozen=True):
    """Resources that kubelet may give out, and has given. CPUs, or a kind of memory, that are not in `allocatable` at
    all are not managed by kubelet: every pod may use all."""

    source: Literal["pod-resources", "checkpoints"]
    allocatable: ResourceSet
    pods: tuple[PodResources, ...] = ()
    """Pods as kubelet lists them; some may have ended."""
