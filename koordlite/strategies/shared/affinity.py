"""Pods that `numaAffinity` has placed on one NUMA node, which it never moves, and the CPUs each may have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from koordlite.changes import cgroup as cgroup_kind
from koordlite.formulas.cpu import pools
from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Memory, Mode, StrategySettings, bounded
from koordlite.model.snapshot import Snapshot

NAME = "numaAffinity"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `numaAffinity`."""

    mode: Mode = "off"
    """off: not judged at all. observe: judged and reported, nothing is written. enforce: judged, reported, written."""
    sample_seconds: float = bounded(60.0, ge=0, le=3600)
    """Time from one count of all pods' TCP connections to the next; longer where counts would take over 1 % of a core.
    0: nothing is measured, only what is declared counts."""
    join_percent: float = bounded(60.0, ge=1, le=100)
    """Two pods belong together when at least so much of the connections of one of them are with the other."""
    stay_percent: float = bounded(30.0, ge=0, le=100)
    """A pod stays on its NUMA node while so much of its connections, or of a partner's, are between them."""
    min_connections: int = bounded(8, ge=1, le=1_000_000)
    """And when there are at least so many: of three connections, two say nothing."""
    rounds: int = bounded(3, ge=1, le=100)
    """And when that was so in so many counts in a row. In so many without a partner a placed pod is released."""
    rest_rounds: int = bounded(10, ge=0, le=10_000)
    """Cool-down: counts after its release in which a pod is not placed again."""
    across_namespaces: bool = False
    """Join also pods of different namespaces by their connections. Anyone who may connect to a pod could then move
    it."""
    fill_percent: float = bounded(80.0, ge=1, le=100)
    """A pod is placed only where its NUMA node's shared CPUs are then used or requested up to so much. Above all of
    them, pods are released."""
    memory_nodes: bool = True
    """Let the memory of containers follow, where every container has a limit and that much is free there. The kernel
    then moves what they have (cgroup v2, and v1 with cpuset.memory_migrate)."""
    memory_reserve_percent: float = bounded(10.0, ge=0, le=90)
    """Part of a NUMA node's memory that stays free besides."""


class AffinityMemory(Memory, frozen=True, kw_only=True):
    """State that one look leaves for the next; pods by uid."""

    round: int = 0
    """Counts of connections so far."""
    streaks: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Number of counts in a row in which two pods (`UID/UID`) have belonged together."""
    nodes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The NUMA nodes of placed pods."""
    alone: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Number of counts in a row in which a placed pod had no partner on its NUMA node."""
    left: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Count at which a pod was released."""


def ls_pools(snapshot: Snapshot) -> pools.Pools:
    """The CPUs that latency-sensitive pods share, by NUMA node."""
    return shared_pools(snapshot)[0]


def shared_pools(snapshot: Snapshot) -> tuple[pools.Pools, pools.Pools]:
    """The CPUs that latency-sensitive pods share, and those that best-effort pods share."""
    return pools.shared_pools(
        cpus=snapshot.topology.cpus,
        exclusive=cpuset.union([snapshot.crane.owned, *(each.cpus for each in snapshot.kubelet.pod_cpus)]),
        pinned=pools.pinned(snapshot.pods),
        reserved=snapshot.reserved.cpus,
        system_exclusive=snapshot.system_qos.exclusive_cpus,
    )


def placed(snapshot: Snapshot) -> Mapping[str, int]:
    """NUMA node by uid of the pods that were placed when the picture was taken.

    The first round of a run remembers nothing: then it is what the files hold. Only this strategy narrows the set of
    such a pod to one NUMA node.
    """
    memory = snapshot.remembered.get(NAME)
    if isinstance(memory, AffinityMemory):
        return memory.nodes
    if not snapshot.affinity.enforced or len(ls_pools(snapshot)) < 2:
        return {}
    by_uid: dict[str, int] = {}
    for pod in snapshot.pods:
        groups = snapshot.places[pod.uid].containers.values() if pod.uid in snapshot.places else ()
        ours = [group for group in groups if cgroup_kind.PLACE.place(group, "cpuset.cpus") in snapshot.ours]
        sets = [cgroup.cpuset for group in ours if (cgroup := snapshot.cgroups.get(group)) and cgroup.cpuset]
        nodes = snapshot.topology.numa_of(cpuset.union(sets))
        if len(nodes) == 1 and not fixed(snapshot, pod):
            by_uid[pod.uid] = next(iter(nodes))
    return by_uid


def fixed(snapshot: Snapshot, pod: Pod) -> str:
    """Reason why the pod is never moved; empty for one that may be."""
    status, allowed = pod.resource_status, snapshot.affinity.whitelist
    reasons = (
        (pod.is_best_effort, "it is best effort, which cpuSuppress moves"),
        (pod.qos_class in (QoSClass.LSE, QoSClass.LSR, QoSClass.SYSTEM), f"it is of class {pod.qos_class}"),
        (status.cpuset or (status.numa_nodes and status.numa_cpu), "a scheduler chose its place"),
        (pod.uid in snapshot.crane.promises or snapshot.crane.owns(pod.uid), "Crane's annotations say where it runs"),
        (
            snapshot.crane.enforced and "cpusetPools" not in snapshot.crane.placed_by_others,
            "craneCPUManager writes its CPU set",
        ),
        (any(each.uid == pod.uid for each in snapshot.kubelet.pod_cpus), "kubelet or a ResourceClaim gave it CPUs"),
        (allowed is not None and pod.key not in allowed, "the Whitelist does not name it"),
    )
    return next((why for holds, why in reasons if holds), "")


def tied_node(snapshot: Snapshot, pod: Pod) -> int | None:
    """The NUMA node to which others have tied the pod; None where it has none, or several."""
    cpus, status = pod.resource_status.cpuset, pod.resource_status
    if not cpus and status.numa_nodes and status.numa_cpu:
        return status.numa_nodes[0] if len(status.numa_nodes) == 1 else None
    promise = snapshot.crane.promises.get(pod.uid)
    if not cpus and promise:
        cpus = promise.cpus
    if not cpus:
        cpus = cpuset.union(each.cpus for each in snapshot.kubelet.pod_cpus if each.uid == pod.uid)
    nodes = snapshot.topology.numa_of(cpus)
    return next(iter(nodes)) if len(nodes) == 1 else None


def device_nodes(snapshot: Snapshot, pod: Pod) -> frozenset[int]:
    """The NUMA nodes of its devices; empty where it has none, or the machine does not say."""
    by_container = (snapshot.kubelet.devices.get((pod.uid, container.name), ()) for container in pod.containers)
    return frozenset(device.numa for devices in by_container for device in devices if device.numa >= 0)


def container_cpus(snapshot: Snapshot, place: PodGroups, pool: CPUSet) -> Mapping[str, CPUSet]:
    """CPUs of `pool` that each container and the sandbox may have, by group: within the group above it, and within the
    set before this strategy wrote."""
    above = snapshot.cgroups.get(place.group)
    within = pool & above.effective if above and above.effective else pool
    return {group: within & (_original(snapshot, group) or within) for group in place.inside}


def _original(snapshot: Snapshot, group: str) -> CPUSet | None:
    """The set that the group had without this agent; None where it had all, or `cpusetPools` has written since."""
    original = snapshot.found.get(cgroup_kind.PLACE.place(group, "cpuset.cpus"))
    if original is not None:
        return original.value if original.strategy == NAME and isinstance(original.value, CPUSet) else None
    cgroup = snapshot.cgroups.get(group)
    return cgroup.cpuset if cgroup else None
