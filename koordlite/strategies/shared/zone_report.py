"""Zones and attributes of the node's NodeResourceTopology, out of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from koordlite.formulas.allocatable import reservation
from koordlite.formulas.topology import topology_diff, zones
from koordlite.formulas.topology.zones import Amounts
from koordlite.model import keys
from koordlite.model.picture.kubelet import KubeletResources, PodResources, ResourceSet
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.model.wire.objects import Zone, ZoneResource
from koordlite.numa.nrt import fingerprint, placement

POLICY, SCOPE, MAX_NODES = "topologyManagerPolicy", "topologyManagerScope", "topologyManagerMaxNUMANodes"
_MAX_NODES_OPTION = "max-allowable-numa-nodes"
STALE = "koordlite.io/zones-stale"
"""`true` while kubelet does not say what it has given out: the amounts are those that it said last."""
OUR_ATTRIBUTES = (
    *(POLICY, SCOPE, MAX_NODES, placement.METADATA_ATTRIBUTE, STALE),
    *(fingerprint.ATTRIBUTE, fingerprint.METHOD_ATTRIBUTE),
)
ZONE_ATTRIBUTES = frozenset({placement.VECTOR_ATTRIBUTE})

Container = tuple[PodResources, str, ResourceSet]


def running(snapshot: Snapshot, resources: KubeletResources) -> tuple[PodResources, ...]:
    """The pods of `resources` by namespace and name, without those that have ended: kubelet lists them for a while.

    Kubelet's checkpoints name pods by uid and keep one that was deleted: there only those count that are known.
    """
    by_uid = {pod.uid: pod for pod in snapshot.pods}
    ended = {(pod.namespace, pod.name) for pod in snapshot.pods if not pod.active}
    ended -= {(pod.namespace, pod.name) for pod in snapshot.pods if pod.active}
    pods = []
    for entry in resources.pods:
        if not entry.uid:
            pods += [entry] if (entry.namespace, entry.name) not in ended else []
        elif (pod := by_uid.get(entry.uid)) is not None and pod.active:
            pods.append(PodResources(pod.namespace, pod.name, entry.containers, entry.uid))
    return tuple(pods)


def of(snapshot: NodeSnapshot, *, huge_pages: bool, numa_placement: bool) -> Iterator[Zone]:
    """Give a zone for each NUMA node, in the order of their ids: its resources, as costs its distance to the others
    (NodeResourceTopology's costs are SLIT distances), and which containers are on it where that is wanted."""
    nodes, resources = snapshot.topology.nodes, snapshot.kubelet.resources
    capacities = [zones.capacity(node, huge_pages=huge_pages) for node in nodes]
    splits = snapshot.node.labels.get(keys.NUMA_RESERVATION) == "true"
    by_kubelet = reservation.from_kubelet(
        capacity=snapshot.node.capacity, allocatable=snapshot.notes.kubelet_allocatable(snapshot.node)
    )
    allocatable = zones.allocatable(capacities, by_kubelet if splits else {})
    if resources is None:
        amounts = [
            {name: Amounts(whole, may[name], may[name]) for name, whole in has.items()}
            for has, may in zip(capacities, allocatable, strict=True)
        ]
    else:
        assigned = [each for pod in running(snapshot, resources) for each in pod.containers.values()]
        amounts = zones.amounts(
            nodes, capacities, unmanaged=allocatable, allocatable=resources.allocatable, allocations=assigned
        )
    vectors = _placement(snapshot).vectors if numa_placement else {}
    for node, parts in zip(nodes, amounts, strict=True):
        vector = vectors.get(node.id)
        yield Zone(
            name=f"node-{node.id}",
            type="Node",
            resources=tuple(
                ZoneResource(
                    name=name,
                    capacity=str(parts[name].capacity),
                    allocatable=str(parts[name].allocatable),
                    available=str(parts[name].available),
                )
                for name in sorted(parts)
            ),
            costs=tuple({"name": f"node-{other}", "value": far} for other, far in node.distances) or None,
            attributes=({"name": placement.VECTOR_ATTRIBUTE, "value": vector},) if vector else None,
        )


def without_pod(snapshot: Snapshot, pod: Pod) -> dict[int, dict[str, Amounts]]:
    """Resources of each NUMA node as if `pod` were not there. Where kubelet does not say what it gave out, CPUs that
    other pods have alone and reserved ones are taken off what the machine has."""
    nodes, resources = snapshot.topology.nodes, snapshot.kubelet.resources
    has = [zones.capacity(node) for node in nodes]
    if resources is None:
        other_pods = [each for each in snapshot.pods if each.active and each.uid != pod.uid]
        owned = [
            *(each.cpus for each in snapshot.kubelet.pod_cpus if each.uid != pod.uid),
            *(each.resource_status.cpuset for each in other_pods if each.qos_class in (QoSClass.LSE, QoSClass.LSR)),
        ]
        may = ResourceSet(snapshot.topology.cpuset - snapshot.reserved.cpus - snapshot.kubelet.reserved_cpus)
        assigned = [ResourceSet(cpus) for cpus in owned]
    else:
        name, may = (pod.namespace, pod.name), resources.allocatable
        running_pods = (each for each in running(snapshot, resources) if (each.namespace, each.name) != name)
        assigned = [each for other in running_pods for each in other.containers.values()]
    amounts = zones.amounts(nodes, has, unmanaged=has, allocatable=may, allocations=assigned)
    return {node.id: zone for node, zone in zip(nodes, amounts, strict=True)}


def ended_resources(snapshot: Snapshot, report: Sequence[Zone]) -> frozenset[str]:
    """Device resources that the published zones still have, and kubelet does not list any more.

    Only kubelet's socket lists devices that nobody uses; and resources of Koordinator are not kubelet's devices.
    """
    resources = snapshot.kubelet.resources
    if resources is None or resources.source != "pod-resources":
        return frozenset()
    have = {resource.name for zone in snapshot.published.zones for resource in zone.resources or ()}
    now = {resource.name for zone in report for resource in zone.resources or ()}
    retained = {*now, *topology_diff.RESOURCES, *keys.PROMISED_RESOURCES}
    return frozenset(name for name in have - retained if "/" in name and "koordinator.sh/" not in name)


def attributes(
    snapshot: Snapshot, *, method: Literal["off", "all", "with-exclusive-resources"], numa_placement: bool
) -> dict[str, str | None]:
    """Attributes of the whole object by name; None: not to be there. v1alpha1 has none."""
    kubelet = snapshot.kubelet
    values: dict[str, str | None] = dict.fromkeys(OUR_ATTRIBUTES)
    if snapshot.published.topology_version.endswith("/v1alpha1"):
        return {}
    if kubelet.topology_manager_policy:
        values[POLICY], values[SCOPE] = kubelet.topology_manager_policy, kubelet.topology_manager_scope or "container"
        values[MAX_NODES] = kubelet.topology_manager_options.get(_MAX_NODES_OPTION)
    if kubelet.resources is None:
        return values
    if method != "off":
        pods = running(snapshot, kubelet.resources)
        exclusive = method == fingerprint.ONLY_EXCLUSIVE
        signed = (pod for pod in pods if not exclusive or any(c.has_locality for c in pod.containers.values()))
        values[fingerprint.ATTRIBUTE] = fingerprint.sign((pod.namespace, pod.name) for pod in signed)
        values[fingerprint.METHOD_ATTRIBUTE] = method
    if numa_placement:
        values[placement.METADATA_ATTRIBUTE] = str(_placement(snapshot).metadata)
    return values


def _placement(snapshot: Snapshot) -> placement.Encoded:
    """NUMA nodes of pinned containers; one on several has no place in this format."""
    nodes, node_ids = dict[placement.Container, int](), {node.id for node in snapshot.topology.nodes}
    pods = running(snapshot, snapshot.kubelet.resources) if snapshot.kubelet.resources else ()
    for pod in pods:
        for name, assignment in pod.containers.items():
            # The NUMA node of its CPUs, else of its memory, else of its devices, if it is one that is known.
            at = snapshot.topology.numa_of(assignment.cpus) or {n for block in assignment.memory for n in block.nodes}
            at = at or {node for devices in assignment.devices for node in devices.nodes}
            if len(at) == 1 and at <= node_ids:
                nodes[(pod.namespace, pod.name, name)] = next(iter(at))
    return placement.encode(nodes, numa_nodes=max((node.id for node in snapshot.topology.nodes), default=0) + 1)
