"""Promised CPUs and NUMA nodes of containers, where they really run, and what is wrong with that."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from koordlite.changes import cgroup
from koordlite.formulas.topology import numa
from koordlite.formulas.topology.numa import Violation
from koordlite.model import cpuset, keys, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.picture.groups import MemoryPlace
from koordlite.model.picture.kubelet import with_promise
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.reading.go_words import STRICT_RESERVATION, is_on
from koordlite.model.snapshot import Snapshot
from koordlite.unchanged import derived


@derived
def containers(snapshot: Snapshot, *, only_enforced: bool = False) -> tuple[nrt.ContainerPlacement, ...]:
    """Containers with a promise, and those without one that were put on CPUs nobody may use. With `only_enforced` what
    this agent would promise by Crane's annotations counts only where it does so."""
    with_crane = snapshot.crane.enforced or not only_enforced
    promised = with_promise(snapshot.pods, snapshot.kubelet)
    misplaced = _misplaced(snapshot)
    return tuple(
        _container(snapshot, pod, name, stands, with_crane=with_crane)
        for pod in snapshot.pods
        if pod.active and pod.uid in snapshot.places
        for name, group in snapshot.places[pod.uid].containers.items()
        if (cgroup := snapshot.cgroups.get(group)) is not None
        and (stands := cgroup.effective) is not None
        and (pod.uid in promised or misplaced(stands))
    )


def _misplaced(snapshot: Snapshot) -> Callable[[CPUSet], bool]:
    """Tell whether a container stands on CPUs of nobody, or of another container alone. These are reserved ones, those
    of LSE pods, and those given away by kubelet or by Crane's annotations."""
    owned = [pod.resource_status.cpuset for pod in snapshot.pods if pod.active and pod.raw_qos is QoSClass.LSE]
    exclusive = [each.cpus for each in snapshot.kubelet.pod_cpus]
    forbidden = cpuset.union([snapshot.reserved.cpus, snapshot.crane.owned, *owned, *exclusive])
    machine = CPUSet(cpu.id for cpu in snapshot.topology.cpus)
    # Asked once for each set: most containers share one. One that may run everywhere was never placed.
    return functools.cache(lambda stands: bool(stands & forbidden) and not machine <= stands)


def _container(snapshot: Snapshot, pod: Pod, name: str, stands: CPUSet, *, with_crane: bool) -> nrt.ContainerPlacement:
    status, key, group = pod.resource_status, (pod.uid, name), snapshot.places[pod.uid].containers[name]
    assignment = next((assignment for assignment in snapshot.kubelet.pod_cpus if assignment.uid == pod.uid), None)
    by_kubelet = assignment is not None or key in snapshot.kubelet.memory_nodes
    promised = assignment.containers.get(name, cpuset.EMPTY) if assignment else status.cpuset
    memory = snapshot.memory_places.get(group, _UNKNOWN)
    aligned = pod.numa_policy == "SingleNUMANode"
    if by_kubelet:
        aligned = snapshot.kubelet.topology_manager_policy == "single-numa-node"
    placement = nrt.ContainerPlacement(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        container=name,
        source="kubelet" if by_kubelet else "koordinator" if status.cpuset or status.numa_nodes else "none",
        exclusive=bool(assignment or status.cpuset),
        # kubelet's topology manager aligns no CPUs of a ResourceClaim.
        single_numa=aligned and not (assignment and assignment.claimed),
        scope=snapshot.kubelet.topology_manager_scope or "container",
        promised_cpus=promised,
        promised_nodes=snapshot.kubelet.memory_nodes.get(key, ()) if by_kubelet else status.numa_nodes,
        cpuset=stands,
        mems=memory.mems,
        cpus_by_numa=dict(nrt.by_numa_node(snapshot.topology, stands)),
        memory_by_numa=dict(memory.used),
        devices=snapshot.kubelet.devices.get(key, ()),
        fix_failed=_fix_failed(snapshot, group, stands, promised),
    )
    promised_by_crane = with_crane and placement.source == "none" and pod.crane.zones
    return _by_crane(snapshot, pod, placement, group) if promised_by_crane else placement


def _by_crane(snapshot: Snapshot, pod: Pod, placement: ContainerPlacement, group: str) -> ContainerPlacement:
    """Add what Crane's annotations promise, as far as this agent carries them out: a container that is given no CPUs
    has no promise, and a promise that was refused is cured by a move only."""
    promise, refused = snapshot.crane.promises.get(pod.uid), pod.uid in snapshot.crane.refused
    cpus = promise.containers.get(placement.container) if promise else cpuset.EMPTY
    if cpus is None or not (promise or refused):
        return placement
    nodes = tuple(node for node, _ in pod.crane.zones)
    return msgspec.structs.replace(
        placement,
        source="crane",
        exclusive=promise is not None and promise.policy == "exclusive",
        single_numa=len(nodes) == 1,
        scope="pod",
        promised_cpus=cpus,
        promised_nodes=nodes,
        fix_failed=refused or _fix_failed(snapshot, group, placement.cpuset, cpus),
    )


_UNKNOWN = MemoryPlace(cpuset.EMPTY, {})


def _fix_failed(snapshot: Snapshot, group: str, effective: CPUSet, promised: CPUSet) -> bool:
    """It stands elsewhere than promised, and the kernel refused the write that was to put it right, or took it without
    effect: on version 2 a set holds as far as the group above allows."""
    refused = (
        cgroup.PLACE.place(group, "cpuset.cpus") in snapshot.refused_writes
        or snapshot.cgroups[group].cpuset == promised
    )
    return bool(promised) and not effective <= promised and refused


def violations(snapshot: Snapshot) -> Iterator[tuple[Pod, Violation]]:
    """Violations of the node's pods, by the rules by which the descheduler judges them.

    A pod that has ended, or is being deleted, is not judged.
    """
    placed: dict[str, list[ContainerPlacement]] = {}
    for container in containers(snapshot, only_enforced=True):
        placed.setdefault(container.uid, []).append(container)
    for pod in snapshot.pods:
        if pod.active and not pod.deleting:
            for wrong in of_pod(snapshot, pod, placed.get(pod.uid, ())):
                yield pod, wrong


def of_pod(snapshot: Snapshot, pod: Pod, placed: Sequence[ContainerPlacement]) -> Iterator[Violation]:
    """Violations of one pod, of which `placed` are the containers."""
    # Whether kubelet keeps its reserved CPUs out of the shared pool as well.
    is_strict = is_on(snapshot.kubelet.cpu_manager_options, STRICT_RESERVATION)
    owners = [("kubelet", snapshot.kubelet.reserved_cpus, is_strict)]
    if pod.qos_class is not QoSClass.SYSTEM:
        owners.append(("koordinator", snapshot.reserved.cpus, True))
    if pod.crane.excludes_reserved:
        owners.append(("crane", snapshot.crane.reserved, True))
    rules = numa.Rules(
        topology=snapshot.topology,
        policy=snapshot.kubelet.topology_manager_policy,
        cpu_manager_policy=snapshot.kubelet.cpu_manager_policy,
    )
    return rules.of_pod(placed, asked_policy=pod.annotations.get(keys.VOLCANO_NUMA_POLICY, ""), reservations=owners)
