"""Objects about the node that are written on request, for other programs: Crane's NodeResourceTopology and Volcano's
Numatopology, for clusters whose scheduler goes by them, and our PodAffinity, for people: which pods talk to each other,
as `numaAffinity` measured, and where they run."""

from __future__ import annotations

import functools
from typing import Any

from msgspec import structs

from koordlite.kube.publish.background_report import ReportKind
from koordlite.model import keys, merge_patch
from koordlite.model.cpuset import union
from koordlite.model.picture.affinity import Talk
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.reading.go_words import boolean
from koordlite.model.snapshot import Snapshot, container_cpus
from koordlite.model.wire import crane, numatopology, pod_affinity
from koordlite.model.wire.crane import ManagerPolicy, TopologyObject
from koordlite.model.wire.numatopology import (
    ContainerAllocation,
    CPUInfo,
    NumatopologyObject,
    NumatopologySpec,
    PodAllocation,
    ResourceInfo,
)
from koordlite.model.wire.pod_affinity import Container, Pair, PodAffinityObject, PodAffinitySpec, PodRow
from koordlite.numa.crane import zones


def topology(snapshot: Snapshot, *, parts: bool = False) -> TopologyObject:
    """The node by the picture, without metadata; with `parts` also its sockets and cores. Crane's scheduler counts the
    CPUs that pods of other protocols have alone as not there. Source: crane-agent `BuildNodeResourceTopology`."""
    promised = snapshot.crane
    # For pods that do not say.
    label = (snapshot.node.labels if snapshot.node else {}).get(keys.CRANE_TOPOLOGY_AWARENESS)
    reserved = dict(snapshot.kubelet.reserved)
    if promised.reserved:
        reserved["cpu"] = Quantity.of(len(promised.reserved))
    nodes = zones.node_zones(
        snapshot.topology.nodes, reserved_cpus=promised.reserved, reserved=reserved, unavailable=promised.taken
    )
    return TopologyObject(
        crane_manager_policy=ManagerPolicy(
            cpu_manager_policy=crane.STATIC if promised.enforced and not promised.why_not else "None",
            topology_manager_policy="None" if boolean(label) is False else crane.SINGLE_NUMA,
        ),
        reserved={name: str(amount) for name, amount in sorted(reserved.items())} or None,
        zones=(*nodes, *(zones.part_zones(snapshot.topology.cpus) if parts else ())),
        attributes={keys.CRANE_RESERVED_CPUS: str(promised.reserved)},
    )


def crane_topology(*, parts: bool = False) -> ReportKind:
    """The object of `topology`. Attributes and labels of others stay."""
    return ReportKind(
        name="crane-noderesourcetopology",
        path=crane.PATH,
        no_kind="install the CRD of manifests/crds/crane, or set publish.craneTopology: off",
        kind=crane.KIND,
        type=TopologyObject,
        target=functools.partial(topology, parts=parts),
        patch=_patch,
    )


def _patch(current: TopologyObject, target: TopologyObject) -> dict[str, Any]:
    """Patch what differs; attributes that others put into the object and its zones stay."""
    theirs = {zone.name: zone.attributes or {} for zone in current.zones or ()}
    merged = structs.replace(
        target,
        metadata=current.metadata,
        zones=tuple(
            structs.replace(zone, attributes={**theirs.get(zone.name, {}), **(zone.attributes or {})} or None)
            for zone in target.zones or ()
        ),
        attributes={**(current.attributes or {}), **(target.attributes or {})},
    )
    body = merge_patch.between(current, merged)
    # Zones are a list, which a merge patch replaces as a whole: made from this version, or not at all.
    version = {"metadata": {"resourceVersion": current.metadata.resource_version}}
    return body | version if body else {}


def numatopology_spec(snapshot: Snapshot) -> NumatopologySpec:
    """The node by the picture. Source: Volcano's resource-exporter.
    Free are all CPUs that no container has to itself, reserved ones among them, as in kubelet's shared pool."""
    kubelet, by_uid = snapshot.kubelet, {pod.uid: pod for pod in snapshot.pods}
    exclusive = [pod for pod in kubelet.pod_cpus if pod.uid not in by_uid or by_uid[pod.uid].active]
    free = snapshot.topology.cpuset - union(pod.cpus for pod in exclusive)
    return NumatopologySpec(
        policies={
            numatopology.CPU_POLICY: kubelet.cpu_manager_policy or "none",
            numatopology.TOPOLOGY_POLICY: kubelet.topology_manager_policy or "none",
        },
        res_reserved={"cpu": _reserved_cpu(snapshot)},
        numares={"cpu": ResourceInfo(allocatable=str(free), capacity=len(snapshot.topology.cpus))},
        cpu_detail={
            str(cpu.id): CPUInfo(numa=cpu.node, socket=cpu.socket, core=cpu.core) for cpu in snapshot.topology.cpus
        },
        pod_allocations=tuple(_pod_allocation(by_uid.get(e.uid), e) for e in sorted(exclusive, key=lambda e: e.uid))
        or None,
    )


def _reserved_cpu(snapshot: Snapshot) -> str:
    """Kubelet's reserved CPU: the listed CPUs under the static policy, else capacity − allocatable of the Node."""
    if snapshot.kubelet.reserved_cpus or snapshot.node is None:
        return str(len(snapshot.kubelet.reserved_cpus))
    capacity = snapshot.node.capacity.get("cpu", ZERO)
    allocatable = snapshot.notes.kubelet_allocatable(snapshot.node).get("cpu", capacity)
    return str(Quantity(max(0, capacity.nano - allocatable.nano)))


def _pod_allocation(pod: Pod | None, exclusive: PodCPUs) -> PodAllocation:
    allocations = tuple(
        ContainerAllocation(name=name, allocations={"cpu": str(cpus)})
        for name, cpus in sorted(exclusive.containers.items(), key=lambda item: item[0])
        if cpus
    )
    name, namespace = (pod.name, pod.namespace) if pod else ("", "")
    return PodAllocation(uid=exclusive.uid, name=name, namespace=namespace, container_allocations=allocations)


NUMATOPOLOGY = ReportKind(
    name="numatopology",
    path=numatopology.PATH,
    no_kind="install Volcano's CRD numatopologies.nodeinfo.volcano.sh, or set publish.numatopology: off",
    kind=numatopology.KIND,
    type=NumatopologyObject,
    target=numatopology_spec,
)


MOST_PAIRS = 200
"""An object of the API server is no database: 200 pairs are some 60 KiB."""


def pod_affinity_spec(snapshot: Snapshot) -> PodAffinitySpec:
    """The last count of connections, between pods that are there now; empty before the first one has ended.
    Connections are given as powers of two: a busy service opens and closes some all the time, and each new number would
    be a write."""
    pods = {pod.uid: pod for pod in snapshot.pods if pod.active}
    talks = snapshot.affinity.connections.talks if snapshot.affinity.connections else ()
    both = [talk for talk in talks if talk.first in pods and talk.second in pods][:MOST_PAIRS]
    homes = {
        uid: snapshot.topology.numa_of(container_cpus(snapshot, uid))
        for talk in both
        for uid in (talk.first, talk.second)
    }
    nodes = {uid: min(numa) if len(numa) == 1 else -1 for uid, numa in homes.items()}
    return PodAffinitySpec(
        connections=sum(map(_rounded, both)),
        apart=sum(_rounded(talk) for talk in both if not 0 <= nodes[talk.first] == nodes[talk.second]),
        pairs=tuple(Pair(pods[talk.first].key, pods[talk.second].key, _rounded(talk)) for talk in both) or None,
        pod_affinity=tuple(_row(snapshot, pods[uid], nodes[uid]) for uid in sorted(nodes, key=lambda u: pods[u].key))
        or None,
    )


def _rounded(talk: Talk) -> int:
    """The largest power of two that is no more than the connections."""
    return 1 << (talk.connections.bit_length() - 1) if talk.connections > 0 else 0


def _row(snapshot: Snapshot, pod: Pod, numa_node: int) -> PodRow:
    place = snapshot.places.get(pod.uid)
    ids = {container.name: container.id for container in pod.containers}
    containers = []
    for name, group in sorted(place.containers.items()) if place else ():
        cgroup, memory = snapshot.cgroups.get(group), snapshot.memory_places.get(group)
        cpus = str(cgroup.effective) if cgroup and cgroup.effective else ""
        containers.append(Container(name, ids.get(name, ""), cpus, str(memory.mems) if memory else ""))
    return PodRow(numa_node, pod.name, pod.namespace, tuple(containers) or None)


POD_AFFINITY = ReportKind(
    name="podaffinity",
    path=pod_affinity.PATH,
    no_kind="install the CRD of manifests/crds/podaffinity, or set publish.podAffinity: off",
    kind=pod_affinity.KIND,
    type=PodAffinityObject,
    target=pod_affinity_spec,
)
