"""Who may run where: the CPUs latency-sensitive and best-effort pods share, and the set of one container."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from koordlite.model.cpuset import CPUSet, union
from koordlite.model.node import SystemQoS
from koordlite.model.pod import ResourceStatus
from koordlite.model.qos import QoSClass
from koordlite.model.topology import CPU


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
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
    given = list(pinned)
    taken = exclusive | reserved | system_exclusive
    lse = union(held for qos, held in given if qos is QoSClass.LSE)
    return _pools(cpus, taken | union(held for _, held in given)), _pools(cpus, taken | lse)


def joined(pools: Iterable[Pool], nodes: Collection[int] | None = None) -> CPUSet:
    """All CPUs of the pools, or of those on the NUMA `nodes`; a node without a pool adds nothing."""
    return union(pool.cpuset for pool in pools if nodes is None or pool.node in nodes)


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


def _pools(cpus: Sequence[CPU], without: CPUSet) -> Pools:
    sockets = {cpu.node: cpu.socket for cpu in sorted(cpus, reverse=True)}
    by_node: dict[int, list[int]] = defaultdict(list)
    for cpu in cpus:
        if cpu.id not in without:
            by_node[cpu.node].append(cpu.id)
    entries = (Pool(sockets[node], node, CPUSet(ids)) for node, ids in by_node.items())
    return tuple(sorted(entries, key=lambda pool: (pool.socket, pool.node)))
