"""Volcano's Numatopology (nodeinfo.volcano.sh/v1alpha1): CPUs and policies of a node as Volcano's scheduler reads them.

The object is cluster-scoped and named after its node. It knows CPUs only, neither memory nor distances. Source:
volcano.sh/apis `nodeinfo/v1alpha1`.
"""

from __future__ import annotations

from koordlite.model.wire.objects import KubeObject, WireObject

API_VERSION = "nodeinfo.volcano.sh/v1alpha1"
KIND = "Numatopology"
PATH = f"/apis/{API_VERSION}/numatopologies"
CPU_POLICY, TOPOLOGY_POLICY = "CPUManagerPolicy", "TopologyManagerPolicy"


class ResourceInfo(WireObject, frozen=True):
    """`allocatable` are the CPUs that no container has to itself, as a list; `capacity` how many there are."""

    allocatable: str = ""
    capacity: int = 0


class CPUInfo(WireObject, frozen=True):
    """Place of a CPU; a zero may be left out."""

    numa: int = 0
    socket: int = 0
    core: int = 0


class ContainerAllocation(WireObject, frozen=True):
    """CPUs that a container has to itself, by resource `cpu`."""

    name: str = ""
    allocations: dict[str, str] | None = None


class PodAllocation(WireObject, frozen=True):
    """Allocations of the containers of a pod."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    container_allocations: tuple[ContainerAllocation, ...] | None = None


class NumatopologySpec(WireObject, frozen=True):
    """Resources of the node."""

    policies: dict[str, str] | None = None
    res_reserved: dict[str, str] | None = None
    numares: dict[str, ResourceInfo] | None = None
    cpu_detail: dict[str, CPUInfo] | None = None
    pod_allocations: tuple[PodAllocation, ...] | None = None


class NumatopologyObject(KubeObject, frozen=True):
    """The object, as far as it is used."""

    spec: NumatopologySpec = NumatopologySpec()
