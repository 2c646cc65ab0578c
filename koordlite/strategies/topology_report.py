"""Publish what this machine is and where pods with a promise really run, on the NodeResourceTopology.

Schedulers read the topology, kubelet's policy and the zones; the descheduler reads the placement, which nobody else
publishes. Shapes: Koordinator's annotations (docs/formulas.md, "NodeResourceTopology"), placement is ours.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import msgspec

from koordlite.changes import cgroup
from koordlite.changes.topology_annotation import TopologyChange
from koordlite.changes.topology_label import TopologyLabelChange
from koordlite.changes.zones import ZonesChange
from koordlite.formulas.allocatable import reservation
from koordlite.formulas.topology import topology_diff, zones
from koordlite.model import cpuset, keys, nrt
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.errors import InputError
from koordlite.model.picture.groups import MemoryPlace
from koordlite.model.picture.kubelet import PodCPUs, with_promise
from koordlite.model.picture.published import Published
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.model.wire.objects import Zone, ZoneResource


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `topologyReport`."""

    refresh_seconds: float = bounded(60.0, ge=1)
    """An unchanged placement is published again after this time, so that readers can tell it from a dead agent's."""
    huge_pages: bool = True
    """Huge pages of a zone are a resource of their own, not part of its memory. Koordinator's gate HugePageReport."""


def without_node(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """Nothing is judged before the Node has been seen."""
    yield Decision("topology", "skip", "NoNode")


def decide(seen: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """One decision for the node's description, one for the placement of its containers."""
    yield _machine(seen, config)
    yield _placement(seen, config)


def _machine(seen: NodeSnapshot, config: Config) -> Decision:
    report, published = _report(seen, config), seen.published
    # Zones that are no NUMA nodes (sockets, racks) belong to others.
    zones_of_nodes = tuple(zone for zone in published.zones if nrt.numa_node_of_zone(zone.name) is not None)
    published = dataclasses.replace(published, zones=zones_of_nodes)
    changed = topology_diff.difference(published, report)
    changes = tuple(_changes(published, report)) if changed else ()
    evidence: dict[str, int | float | str] = {
        "cpus": len(seen.topology.cpus),
        "zones": len(report.zones),
        "kubelet": seen.kubelet.cpu_manager_policy,
        **({"changed": changed} if changed else {}),
    }
    return Decision("topology", "set" if changes else "hold", "MachineDescribed", evidence, changes)


def _report(seen: NodeSnapshot, config: Config) -> topology_diff.Report:
    kubelet = seen.kubelet
    policy = nrt.CPUManagerPolicy(
        policy=kubelet.cpu_manager_policy,
        options=dict(kubelet.cpu_manager_options),
        reserved_cpus=kubelet.reserved_cpus,
    )
    return topology_diff.Report(
        annotations={
            keys.CPU_BASIC_INFO: nrt.encode_cpu_basic_info(seen.cpu_info),
            keys.CPU_TOPOLOGY: nrt.encode_cpu_topology(seen.topology),
            keys.CPU_MANAGER_POLICY: nrt.encode_cpu_manager_policy(policy),
            keys.POD_CPU_ALLOCS: nrt.encode_pod_cpu_allocs(_alloc(seen, held) for held in kubelet.pod_cpus),
            keys.SYSTEM_QOS: nrt.encode_system_qos(seen.system_qos),
        },
        # An empty label asks for nothing, and is not copied.
        labels={keys.NUMA_RESERVATION: seen.node.labels.get(keys.NUMA_RESERVATION) or None},
        policies=(nrt.topology_policy(kubelet.topology_manager_policy, kubelet.topology_manager_scope),),
        zones=tuple(_zones(seen, config)),
    )


def _changes(published: Published, report: topology_diff.Report) -> Iterator[Change]:
    """What has to be written, piece by piece: other strategies write to the same object."""
    for key, text in report.annotations.items():
        if text is not None and not topology_diff.same_text(published.topology.get(key), text):
            yield TopologyChange(key, text)
    for key, label in report.labels.items():
        if published.topology_labels.get(key) != label:
            yield TopologyLabelChange(key, label)
    differ = topology_diff.zone_difference(published.zones, report.zones)
    if differ or published.topology_policies != report.policies:
        yield ZonesChange(tuple(report.zones), report.policies)


def _alloc(seen: Snapshot, held: PodCPUs) -> nrt.PodCPUAlloc:
    pod = next((p for p in seen.pods if p.uid == held.uid), None)
    return nrt.PodCPUAlloc(
        namespace=pod.namespace if pod else "",
        name=pod.name if pod else "",
        uid=held.uid,
        cpuset=held.cpus,
        managed_by_kubelet=True,
    )


def _zones(seen: NodeSnapshot, config: Config) -> Iterator[Zone]:
    """One zone for each NUMA node, in the order of their ids: what it has, what of it may be handed out, and as costs
    its distance to the others (NodeResourceTopology's costs are SLIT distances)."""
    nodes = seen.topology.nodes
    capacities = [zones.capacity(node, huge_pages=config.huge_pages) for node in nodes]
    splits = seen.node.labels.get(keys.NUMA_RESERVATION) == "true"
    kept = zones.allocatable(capacities, _kept_by_kubelet(seen) if splits else {})
    for node, capacity, allocatable in zip(nodes, capacities, kept, strict=True):
        yield Zone(
            name=f"node-{node.id}",
            type="Node",
            resources=tuple(_resource(name, capacity[name], allocatable[name]) for name in sorted(capacity)),
            costs=tuple({"name": f"node-{other}", "value": far} for other, far in node.distances) or None,
        )


def _kept_by_kubelet(seen: NodeSnapshot) -> dict[str, Quantity]:
    return reservation.from_kubelet(capacity=seen.node.capacity, allocatable=seen.notes.kubelet_allocatable(seen.node))


def _resource(name: str, capacity: Quantity, allocatable: Quantity) -> ZoneResource:
    return ZoneResource(name=name, capacity=str(capacity), allocatable=str(allocatable), available=str(allocatable))


def _placement(seen: Snapshot, config: Config) -> Decision:
    last = _last(seen)
    every = tuple(sorted(_containers(seen), key=lambda c: (c.namespace, c.pod, c.container)))
    containers = nrt.fitting(every)
    more = len(every) - len(containers)
    age = seen.ages.get("placement")
    fresh = age is not None and age < config.refresh_seconds
    evidence = {"containers": len(containers), "generation": last.generation if last else 0}
    evidence |= {"more": more} if more else {}
    stands = last is not None and _bare(last.containers) == _bare(containers) and (last.more or 0) == more
    if stands and fresh:
        return Decision("placement", "hold", "PlacementUnchanged", evidence)
    generation = (last.generation if last else 0) + (0 if stands else 1)
    placement = nrt.Placement(observed_at=seen.taken_at, generation=generation, containers=containers)
    text = nrt.encode_placement(msgspec.structs.replace(placement, more=more) if more else placement)
    change = TopologyChange(keys.PLACEMENT, text)
    return Decision("placement", "set", "PlacementObserved", {**evidence, "generation": generation}, (change,))


def _bare(containers: tuple[nrt.ContainerPlacement, ...]) -> tuple[nrt.ContainerPlacement, ...]:
    """Without what changes all the time: bytes in use are published when the rest is, or once in `refresh_seconds`."""
    return tuple(msgspec.structs.replace(container, memory_by_numa={}) for container in containers)


def _last(seen: Snapshot) -> nrt.Placement | None:
    text = seen.published.topology.get(keys.PLACEMENT)
    try:
        return nrt.decode_placement(text, "noderesourcetopology") if text else None
    except InputError:
        return None  # Only we write it: a broken one is replaced by this tick's.


def _containers(seen: Snapshot) -> Iterator[nrt.ContainerPlacement]:
    """Those with a promise, and those without one that were put on CPUs nobody may use."""
    promised = with_promise(seen.pods, seen.kubelet)
    misplaced = _misplaced(seen)
    for pod in seen.pods:
        if not pod.active or pod.uid not in seen.places:
            continue
        kept = pod.uid in promised
        for name, group in seen.places[pod.uid].containers.items():
            cgroup = seen.cgroups.get(group)
            stands = cgroup.effective if cgroup else None
            if stands is not None and (kept or misplaced(stands)):
                yield _container(seen, pod, name, stands)


def _misplaced(seen: Snapshot) -> Callable[[CPUSet], bool]:
    """Does who stands there stand on CPUs that nobody may use? Asked once for each set: most containers share one."""
    forbidden = _forbidden(seen)
    machine = CPUSet(cpu.id for cpu in seen.topology.cpus)

    @functools.cache
    def asked(stands: CPUSet) -> bool:
        # One that may run everywhere was never placed.
        return bool(stands & forbidden) and not machine <= stands

    return asked


def _forbidden(seen: Snapshot) -> CPUSet:
    """CPUs of nobody, or of one container alone: reserved ones, those of LSE pods, and those kubelet gave away."""
    owned = [pod.resource_status.cpuset for pod in seen.pods if pod.active and pod.raw_qos is QoSClass.LSE]
    given = [held.cpus for held in seen.kubelet.pod_cpus]
    return cpuset.union([seen.reserved.cpus, *owned, *given])


def _container(seen: Snapshot, pod: Pod, name: str, stands: CPUSet) -> nrt.ContainerPlacement:
    status, key, group = pod.resource_status, (pod.uid, name), seen.places[pod.uid].containers[name]
    held = next((held for held in seen.kubelet.pod_cpus if held.uid == pod.uid), None)
    by_kubelet = held is not None or key in seen.kubelet.memory_nodes
    promised = held.containers.get(name, cpuset.EMPTY) if held else status.cpuset
    memory = seen.memory_places.get(group, _UNKNOWN)
    return nrt.ContainerPlacement(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        container=name,
        source="kubelet" if by_kubelet else "koordinator" if status.cpuset or status.numa_nodes else "none",
        exclusive=bool(held or status.cpuset),
        single_numa=_single_numa(seen, pod, by_kubelet=by_kubelet),
        scope=seen.kubelet.topology_manager_scope or "container",
        promised_cpus=promised,
        promised_nodes=seen.kubelet.memory_nodes.get(key, ()) if by_kubelet else status.numa_nodes,
        cpuset=stands,
        mems=memory.mems,
        cpus_by_numa=dict(nrt.by_numa_node(seen.topology, stands)),
        memory_by_numa=dict(memory.used),
        devices=seen.kubelet.devices.get(key, ()),
        fix_failed=_fix_failed(seen, group, stands, promised),
    )


_UNKNOWN = MemoryPlace(cpuset.EMPTY, {})


def _fix_failed(seen: Snapshot, group: str, effective: CPUSet, promised: CPUSet) -> bool:
    """It stands elsewhere than promised, and the kernel refused the write that was to put it right, or took it without
    effect: on version 2 a set holds as far as the group above allows."""
    refused = cgroup.PLACE.place(group, "cpuset.cpus") in seen.refused_writes or seen.cgroups[group].cpuset == promised
    return bool(promised) and not effective <= promised and refused


def _single_numa(seen: Snapshot, pod: Pod, *, by_kubelet: bool) -> bool:
    if by_kubelet:
        return seen.kubelet.topology_manager_policy == "single-numa-node"
    return pod.numa_policy == "SingleNUMANode"


SENTENCES = {
    "MachineDescribed": (
        "{cpus} CPUs and {zones} NUMA zones are described[; kubelet's CPU manager policy is {kubelet}][; {changed}]"
    ),
    "PlacementObserved": (
        "checked {containers} containers with a promised placement, generation {generation}[; no space for {more} more]"
    ),
    "PlacementUnchanged": (
        "{containers} containers with a promised placement have not moved[; no space for {more} more]"
    ),
}
