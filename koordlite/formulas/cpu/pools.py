"""CPU pools: the CPUs latency-sensitive and best-effort pods share, the set of one container, and the group and the set
of a host application."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import msgspec

from koordlite.model.cpuset import CPUSet, union
from koordlite.model.node import SystemQoS
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import KubeletResources, PodCPUs
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.slo.settings import HostApplication
from koordlite.model.topology import CPU

_FOLDERS = {
    QoSClass.LSE: "host-latency-sensitive",
    QoSClass.LSR: "host-latency-sensitive",
    QoSClass.LS: "host-latency-sensitive",
    QoSClass.BE: "host-best-effort",
}


class Pool(msgspec.Struct, frozen=True):
    """Shared CPUs of one NUMA node; never empty."""

    socket: int
    node: int
    cpuset: CPUSet


Pools = tuple[Pool, ...]


def shared_pools(
    *,
    cpus: Sequence[CPU],
    exclusive: CPUSet,
    pinned: Iterable[tuple[QoSClass, CPUSet]],
    reserved: CPUSet,
    system_exclusive: CPUSet,
) -> tuple[Pools, Pools]:
    """LS = all − kubelet's − pinned − reserved − system; BE = all − kubelet's − LSE-pinned − reserved − system.

    `exclusive` are CPUs kubelet's static policy gave away, `pinned` the CPUs of each pod with its labelled class (a
    pod without a label counts as LSR). BE may run on LSR CPUs while they idle, never on LSE ones. One entry per NUMA
    node that has CPUs left, in the order of (socket, node). Source: Koordinator `calcNodeTopo`.
    """
    assignments = list(pinned)
    lse = union(cpuset for qos, cpuset in assignments if qos is QoSClass.LSE)
    unusable = reserved | system_exclusive
    everything = by_numa_node(cpus)
    latency_sensitive = without(everything, exclusive | union(cpuset for _, cpuset in assignments))
    return without(latency_sensitive, unusable), without(everything, exclusive | lse | unusable)


def by_numa_node(cpus: Sequence[CPU]) -> Pools:
    """All CPUs as pools, in the order of (socket, node); the socket of a node is that of its first CPU."""
    members: dict[int, list[CPU]] = defaultdict(list)
    for cpu in sorted(cpus, key=lambda cpu: cpu.id):
        members[cpu.node].append(cpu)
    entries = (Pool(own[0].socket, node, CPUSet(cpu.id for cpu in own)) for node, own in members.items())
    return tuple(sorted(entries, key=lambda pool: (pool.socket, pool.node)))


def without(pools: Pools, cpus: CPUSet) -> Pools:
    """The pools less `cpus`; a pool that has none left is gone. Source: Koordinator `removeSystemQOSCPUs`."""
    return tuple(Pool(pool.socket, pool.node, remaining) for pool in pools if (remaining := pool.cpuset - cpus))


def pinned(pods: Iterable[Pod]) -> list[tuple[QoSClass, CPUSet]]:
    """The labelled class and the promised CPUs of each pod that has any. What has finished holds no CPU."""
    return [
        (pod.raw_qos, pod.resource_status.cpuset) for pod in pods if pod.resource_status.cpuset and not pod.finished
    ]


def by_kubelet(assignments: Iterable[PodCPUs], pods: Iterable[Pod]) -> tuple[PodCPUs, ...]:
    """Exclusive CPUs among those that kubelet's static policy gave away.

    Those of LS and BE pods and of pods with promised CPUs are not: their sets are written by us. Source: Koordinator
    `calGuaranteedCpu`.
    """
    ours = {pod.uid for pod in pods if pod.raw_qos in (QoSClass.LS, QoSClass.BE) or pod.resource_status.cpuset}
    return tuple(each for each in assignments if each.claimed or each.uid not in ours)


def claimed(resources: KubeletResources | None, pods: Iterable[Pod]) -> tuple[PodCPUs, ...]:
    """CPUs that running pods have by ResourceClaims, whatever their class: the driver writes their sets."""
    listed = resources.pods if resources else ()
    having = [each for each in listed if any(container.claims for container in each.containers.values())]
    if not having:
        return ()
    uids = {(pod.namespace, pod.name): pod.uid for pod in pods if pod.active}
    claims = []
    for each in having:
        uid = each.uid or uids.get((each.namespace, each.name))
        if uid:
            containers = {name: container.claimed for name, container in each.containers.items() if container.claims}
            claims.append(PodCPUs(uid, union(containers.values()), containers, claimed=True))
    return tuple(claims)


def joined(pools: Iterable[Pool], nodes: Collection[int] | None = None) -> CPUSet:
    """All CPUs of the pools, or of those on the NUMA `nodes`; a node without a pool adds nothing."""
    return union(pool.cpuset for pool in pools if nodes is None or pool.node in nodes)


def lifts_quota(status: ResourceStatus, *, limit_milli: int | None, enabled: bool) -> bool:
    """Tell whether the CPU quota of a pod is lifted: it has CPUs of its own, as many as its limit of `limit_milli`
    allows.

    Source: Koordinator `UnsetPodCPUQuota`, which does not ask for the limit: more CPUs than that would break it.
    """
    return enabled and bool(status.cpuset) and len(status.cpuset) * 1000 == limit_milli


def promised(status: ResourceStatus, cpus: Iterable[CPU]) -> CPUSet:
    """The CPUs a pod was promised, or those of the NUMA nodes on which it was promised CPU; empty without a promise."""
    nodes = status.numa_nodes if status.numa_cpu else ()
    return status.cpuset or CPUSet(cpu.id for cpu in cpus if cpu.node in nodes)


def container_cpuset(
    *,
    qos: QoSClass,
    status: ResourceStatus,
    best_effort_cgroup: bool,
    ls_pools: Pools,
    be_pools: Pools,
    system_qos: SystemQoS,
    kubelet_policy: str,
    be_cpu_manager: bool = False,
) -> CPUSet | None:
    """promised CPUs, else the pools of the promised NUMA nodes, else what the labelled class `qos` shares.

    None means: leave the container's set alone. That is also the answer where the rule yields no CPU at all, since an
    empty set is no set to run on. `be_cpu_manager` makes BE containers follow their promised NUMA nodes. Source:
    Koordinator `cpusetRule.getContainerCPUSet`.
    """
    if status.cpuset:
        return status.cpuset
    follows_numa = bool(status.numa_nodes) and status.numa_cpu
    if follows_numa and qos is not QoSClass.BE:
        return joined(ls_pools, status.numa_nodes) or None
    if follows_numa and be_cpu_manager:
        return joined(be_pools, status.numa_nodes) or None
    if qos is QoSClass.SYSTEM and system_qos.cpuset:
        return system_qos.cpuset
    if qos is not QoSClass.LS and (best_effort_cgroup or kubelet_policy == "static"):
        return None
    return joined(ls_pools) or None


def host_group(app: HostApplication, layout: Layout) -> str:
    """base/parentDir/relativePath below the cgroup root, or the folder of its class and its name without a cgroupPath.

    Source: Koordinator `GetHostAppCgroupRelativePath`.
    """
    if not (app.base or app.parent_dir or app.relative_path):
        return "/".join(part for part in (_FOLDERS.get(app.qos, ""), app.name) if part)
    bases = {
        "Kubepods": layout.kubepods,
        "KubepodsBurstable": layout.burstable,
        "KubepodsBesteffort": layout.besteffort,
    }
    parts = [bases.get(app.base, ""), *app.parent_dir.split("/"), *app.relative_path.split("/")]
    return "/".join(part for part in parts if part not in ("", "."))


def is_host_group(group: str, layout: Layout) -> bool:
    """Tell whether the group may be an application's: it is not the root, and kubelet's groups are neither it nor in
    it."""
    kubelets = (layout.kubepods, layout.burstable, layout.besteffort)
    return bool(group) and not any(f"{each}/".startswith(f"{group}/") for each in kubelets)


def host_cpuset(qos: QoSClass, ls_pools: Pools) -> CPUSet:
    """All CPUs of the LS pools for an application of class LS; ValueError for the other classes, which have no rule.

    Source: Koordinator `SetHostAppCPUSet`.
    """
    if qos is not QoSClass.LS:
        raise ValueError(f"host applications of class {qos or 'none'} have no CPUs by rule; only LS ones have")
    return joined(ls_pools)
