"""What kubelet was configured to do, and what it gave to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.nrt import Device
from koordlite.model.picture.pod_resources import KubeletResources
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity


class PodCPUs(msgspec.Struct, frozen=True):
    """CPUs kubelet's static CPU manager gave to a pod exclusively."""

    uid: str
    cpus: CPUSet
    containers: Mapping[str, CPUSet] = msgspec.field(default_factory=dict)


class Kubelet(msgspec.Struct, frozen=True):
    """What kubelet was configured to do and what it has assigned."""

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
    """What it may give out and has given; None where only its policies are known."""
    listed_reserved_cpus: CPUSet = EMPTY
    """`reservedSystemCPUs`, whatever the policy."""
    reserved: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """`systemReserved` + `kubeReserved` by resource."""
    cpu_cfs_quota: bool | None = None
    """Whether it writes the quotas of CPU limits (`cpuCFSQuota`); None when unknown."""


def with_promise(pods: Iterable[Pod], kubelet: Kubelet) -> frozenset[str]:
    """Uids of the pods to which CPUs or NUMA nodes were promised: by a scheduler in an annotation, or by kubelet."""
    promised = (
        pod.uid for pod in pods if pod.resource_status.cpuset or pod.resource_status.numa_nodes or pod.crane.zones
    )
    return frozenset([*promised, *(held.uid for held in kubelet.pod_cpus), *(uid for uid, _ in kubelet.memory_nodes)])
