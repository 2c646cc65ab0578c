"""Zones and attributes of the node's NodeResourceTopology, out of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from koordlite.formulas.allocatable import reservation
from koordlite.formulas.topology import topology_diff, zones
from koordlite.formulas.topology.zones import Amounts
from koordlite.model import keys
from koordlite.model.picture.kubelet import Given, KubeletResources, PodGiven
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

Container = tuple[PodGiven, str, Given]


def running(snapshot: Snapshot, resources: KubeletResources) -> tuple[PodGiven, ...]:
    """The pods of `resources` by namespace and name, without those that have ended: kubelet lists them for a while.

    Kubelet's checkpoints name pods by uid and keep one that was deleted: there only those count that are known.
    """
    by_uid = {pod.uid: pod for pod in snapshot.pods}
    ended = {(pod.namespace, pod.name) for pod in snapshot.pods if not pod.active}
    ended -= {(pod.namespace, pod.name) for pod in snapshot.pods if pod.active}
    found = []
    for given in resources.pods:
        if not given.uid:
            found += [given] if (given.namespace, given.name) not in ended else []
        elif (pod := by_uid.get(given.uid)) is not None and pod.active:
            found.append(PodGiven(pod.namespace, pod.name, given.containers, given.uid))
    return tuple(found)


def of(snapshot: NodeSnapshot, *, huge_pages: bool, numa_placement: bool) -> Iterator[Zone]:
    """One zone for each NUMA node, in the order of their ids: its resources, as costs its distance to the others
    (NodeResourceTopology's costs are SLIT distances), and which containers are on it where that is wanted."""
    nodes, resources = snapshot.topology.nodes, snapshot.kubelet.resources
    capacities = [zones.capacity(node, huge_pages=huge_pages) for node in nodes]
    splits = snapshot.node.labels.get(keys.NUMA_RESERVATION) == "true"
    by_kubelet = reservation.from_kubelet(
        capacity=snapshot.node.capacity, allocatable=snapshot.notes.kubelet_allocatable(snapshot.node)
    )
    kept = zones.allocatable(capacities, by_kubelet if splits else {})
    if resources is None:
        amounts = [
            {name: Amounts(whole, may[name], may[name]) for name, whole in has.items()}
            for has, may in zip(capacities, kept, strict=True)
        ]
    else:
        held = [given for pod in running(snapshot, resources) for given in pod.containers.values()]
        amounts = zones.amounts(nodes, capacities, unmanaged=kept, allocatable=resources.allocatable, held=held)
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
    """By NUMA node: its resources as if `pod` were not there. Where kubelet does not say what it gave out, CPUs that
    other pods have alone and reserved ones are taken off what the machine has."""
    nodes, resources = snapshot.topology.nodes, snapshot.kubelet.resources
    has = [zones.capacity(node) for node in nodes]
    if resources is None:
        given = [held.cpus for held in snapshot.kubelet.pod_cpus if held.uid != pod.uid]
        others = [each for each in snapshot.pods if each.active and each.uid != pod.uid]
        owned = [each.resource_status.cpuset for each in others if each.qos_class in (QoSClass.LSE, QoSClass.LSR)]
        reserved = snapshot.reserved.cpus | snapshot.kubelet.reserved_cpus
        may, held = Given(snapshot.topology.cpuset - reserved), [Given(cpus) for cpus in (*given, *owned)]
    else:
        others_of = (
            each for each in running(snapshot, resources) if (each.namespace, each.name) != (pod.namespace, pod.name)
        )
        may, held = resources.allocatable, [given for each in others_of for given in each.containers.values()]
    found = zones.amounts(nodes, has, unmanaged=has, allocatable=may, held=held)
    return {node.id: zone for node, zone in zip(nodes, found, strict=True)}


def gone(snapshot: Snapshot, report: Sequence[Zone]) -> frozenset[str]:
    """Device resources that the published zones still have, and kubelet does not list any more.

    Only kubelet's socket lists devices that nobody uses; and resources of Koordinator are not kubelet's devices.
    """
    resources = snapshot.kubelet.resources
    if resources is None or resources.source != "pod-resources":
        return frozenset()
    have = {resource.name for zone in snapshot.published.zones for resource in zone.resources or ()}
    now = {resource.name for zone in report for resource in zone.resources or ()}
    kept = {*now, *topology_diff.RESOURCES, *keys.PROMISED_RESOURCES}
    return frozenset(name for name in have - kept if "/" in name and "koordinator.sh/" not in name)


def attributes(
    snapshot: Snapshot, *, method: Literal["off", "all", "with-exclusive-resources"], numa_placement: bool
) -> dict[str, str | None]:
    """Attributes of the whole object by name; None: not to be there. v1alpha1 has none."""
    kubelet = snapshot.kubelet
    found: dict[str, str | None] = dict.fromkeys(OUR_ATTRIBUTES)
    if snapshot.published.topology_version.endswith("/v1alpha1"):
        return {}
    if kubelet.topology_manager_policy:
        found[POLICY], found[SCOPE] = kubelet.topology_manager_policy, kubelet.topology_manager_scope or "container"
        found[MAX_NODES] = kubelet.topology_manager_options.get(_MAX_NODES_OPTION)
    if kubelet.resources is None:
        return found
    if method != "off":
        pods = running(snapshot, kubelet.resources)
        exclusive = method == fingerprint.ONLY_EXCLUSIVE
        signed = (p for p in pods if not exclusive or any(given.has_locality for given in p.containers.values()))
        found[fingerprint.ATTRIBUTE] = fingerprint.sign((pod.namespace, pod.name) for pod in signed)
        found[fingerprint.METHOD_ATTRIBUTE] = method
    if numa_placement:
        found[placement.METADATA_ATTRIBUTE] = str(_placement(snapshot).metadata)
    return found


def _placement(snapshot: Snapshot) -> placement.Encoded:
    """NUMA nodes of pinned containers; one on several has no place in this format."""
    nodes, known = dict[placement.Container, int](), {node.id for node in snapshot.topology.nodes}
    pods = running(snapshot, snapshot.kubelet.resources) if snapshot.kubelet.resources else ()
    for pod in pods:
        for name, given in pod.containers.items():
            # The NUMA node of its CPUs, else of its memory, else of its devices, if it is one that is known.
            at = snapshot.topology.numa_of(given.cpus) or {node for block in given.memory for node in block.nodes}
            at = at or {node for devices in given.devices for node in devices.nodes}
            if len(at) == 1 and at <= known:
                nodes[(pod.namespace, pod.name, name)] = next(iter(at))
    return placement.encode(nodes, numa_nodes=max((node.id for node in snapshot.topology.nodes), default=0) + 1)
