"""Writing Volcano's Numatopology of the node, on request: for clusters whose scheduler is Volcano's."""

from __future__ import annotations

from koordlite.kube.publish.background_report import spec_kind
from koordlite.model.cpuset import CPUSet, union
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import numatopology
from koordlite.model.wire.numatopology import (
    ContainerAllocation,
    CPUInfo,
    NumatopologyObject,
    NumatopologySpec,
    PodAllocation,
    ResourceInfo,
)


def spec(snapshot: Snapshot) -> NumatopologySpec:
    """The node by the picture. Source: Volcano's resource-exporter.

    Free are all CPUs that no container has to itself, reserved ones among them, as in kubelet's shared pool.
    """
    kubelet, by_uid = snapshot.kubelet, {pod.uid: pod for pod in snapshot.pods}
    held = [pod for pod in kubelet.pod_cpus if pod.uid not in by_uid or by_uid[pod.uid].active]
    free = snapshot.topology.cpuset - union(pod.cpus for pod in held)
    return NumatopologySpec(
        policies={
            numatopology.CPU_POLICY: kubelet.cpu_manager_policy or "none",
            numatopology.TOPOLOGY_POLICY: kubelet.topology_manager_policy or "none",
        },
        res_reserved={"cpu": _reserved(snapshot)},
        numares={"cpu": ResourceInfo(allocatable=str(free), capacity=len(snapshot.topology.cpus))},
        cpu_detail={
            str(cpu.id): CPUInfo(numa=cpu.node, socket=cpu.socket, core=cpu.core) for cpu in snapshot.topology.cpus
        },
        pod_allocations=tuple(_allocation(snapshot, pod) for pod in sorted(held, key=lambda pod: pod.uid)) or None,
    )


def _reserved(snapshot: Snapshot) -> str:
    """Kubelet's reserved CPU: the listed CPUs under the static policy, else capacity − allocatable of the Node."""
    if snapshot.kubelet.reserved_cpus or snapshot.node is None:
        return str(len(snapshot.kubelet.reserved_cpus))
    nothing = Quantity(0)
    capacity = snapshot.node.capacity.get("cpu", nothing)
    allocatable = snapshot.notes.kubelet_allocatable(snapshot.node).get("cpu", capacity)
    return str(Quantity(max(0, capacity.nano - allocatable.nano)))


def _allocation(snapshot: Snapshot, held: PodCPUs) -> PodAllocation:
    pod = next((pod for pod in snapshot.pods if pod.uid == held.uid), None)
    containers: list[tuple[str, CPUSet]] = sorted(held.containers.items())
    return PodAllocation(
        uid=held.uid,
        name=pod.name if pod else "",
        namespace=pod.namespace if pod else "",
        container_allocations=tuple(
            ContainerAllocation(name=name, allocations={"cpu": str(cpus)}) for name, cpus in containers if cpus
        ),
    )


NUMATOPOLOGY = spec_kind(
    name="numatopology",
    path=numatopology.PATH,
    resource="numatopologies.nodeinfo.volcano.sh",
    no_kind="install Volcano's CRD numatopologies.nodeinfo.volcano.sh, or set publish.numatopology: off",
    head=(numatopology.API_VERSION, numatopology.KIND),
    type=NumatopologyObject,
    wanted=spec,
)
