"""Publish what this machine is and where pods with a promise really run, on the NodeResourceTopology.

Schedulers read the topology, kubelet's policy and the zones; the descheduler reads the placement, which nobody else
publishes. Shapes: Koordinator's annotations (docs/formulas.md, "NodeResourceTopology"), placement is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.model import cpuset, keys, nrt
from koordlite.model.decision import Change, Decision, TopologyChange, ZonesChange
from koordlite.model.errors import InputError
from koordlite.model.pod import Pod
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.snapshot import PodCPUs, Snapshot
from koordlite.model.wire import Zone, ZoneResource


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `topologyReport`."""

    refresh_seconds: float = bounded(60.0, ge=1)
    """An unchanged placement is published again after this time, so that readers can tell it from a dead agent's."""


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for the node's description, one for the placement of its containers."""
    yield _machine(seen)
    yield _placement(seen, config)


def _machine(seen: Snapshot) -> Decision:
    wanted = {
        keys.CPU_TOPOLOGY: nrt.encode_cpu_topology(seen.topology),
        keys.CPU_MANAGER_POLICY: nrt.encode_cpu_manager_policy(
            nrt.CPUManagerPolicy(
                policy=seen.kubelet.cpu_manager_policy,
                options=dict(seen.kubelet.cpu_manager_options),
                reserved_cpus=seen.kubelet.reserved_cpus,
            )
        ),
        keys.POD_CPU_ALLOCS: nrt.encode_pod_cpu_allocs(_alloc(seen, held) for held in seen.kubelet.pod_cpus),
        keys.SYSTEM_QOS: nrt.encode_system_qos(seen.system_qos),
    }
    published = seen.published
    changes: list[Change] = [TopologyChange(k, v) for k, v in wanted.items() if published.topology.get(k) != v]
    zones = tuple(_zones(seen))
    policies = (nrt.topology_policy(seen.kubelet.topology_manager_policy, seen.kubelet.topology_manager_scope),)
    if (zones, policies) != (_ours(published.zones), published.topology_policies):
        changes.append(ZonesChange(zones, policies))
    evidence: dict[str, int | float | str] = {
        "cpus": len(seen.topology.cpus),
        "zones": len(zones),
        "kubelet": seen.kubelet.cpu_manager_policy,
    }
    return Decision("topology", "set" if changes else "hold", "MachineDescribed", evidence, tuple(changes))


def _alloc(seen: Snapshot, held: PodCPUs) -> nrt.PodCPUAlloc:
    pod = next((p for p in seen.pods if p.uid == held.uid), None)
    return nrt.PodCPUAlloc(
        namespace=pod.namespace if pod else "",
        name=pod.name if pod else "",
        uid=held.uid,
        cpuset=held.cpus,
        managed_by_kubelet=True,
    )


def _zones(seen: Snapshot) -> Iterator[Zone]:
    """One zone for each NUMA node, in the order of their ids: logical CPUs and memory."""
    for node in seen.topology.nodes:
        cpus, memory = str(len(node.cpus)), str(node.memory)
        yield Zone(
            name=f"node-{node.id}",
            type="Node",
            resources=(
                ZoneResource(name="cpu", capacity=cpus, allocatable=cpus, available=cpus),
                ZoneResource(name="memory", capacity=memory, allocatable=memory, available=memory),
            ),
        )


def _ours(zones: tuple[Zone, ...]) -> tuple[Zone, ...]:
    """Published zones with only the resources that are ours, for comparison."""
    return tuple(
        Zone(name=z.name, type=z.type, resources=tuple(r for r in z.resources or () if r.name in ("cpu", "memory")))
        for z in zones
    )


def _placement(seen: Snapshot, config: Config) -> Decision:
    last = _last(seen)
    containers = tuple(sorted(_containers(seen), key=lambda c: (c.namespace, c.pod, c.container)))
    age = seen.ages.get("placement")
    fresh = age is not None and age < config.refresh_seconds
    evidence = {"containers": len(containers), "generation": last.generation if last else 0}
    if last and last.containers == containers and fresh:
        return Decision("placement", "hold", "PlacementUnchanged", evidence)
    generation = (last.generation if last else 0) + (0 if last and last.containers == containers else 1)
    text = nrt.encode_placement(nrt.Placement(observed_at=seen.taken_at, generation=generation, containers=containers))
    change = TopologyChange(keys.PLACEMENT, text)
    return Decision("placement", "set", "PlacementObserved", {**evidence, "generation": generation}, (change,))


def _last(seen: Snapshot) -> nrt.Placement | None:
    text = seen.published.topology.get(keys.PLACEMENT)
    try:
        return nrt.decode_placement(text, "noderesourcetopology") if text else None
    except InputError:
        return None  # Only we write it: a broken one is replaced by this tick's.


def _containers(seen: Snapshot) -> Iterator[nrt.ContainerPlacement]:
    kubelet = {held.uid: held for held in seen.kubelet.pod_cpus}
    for pod in seen.pods:
        if pod.active and (pod.resource_status.cpuset or pod.resource_status.numa_nodes or pod.uid in kubelet):
            yield from _pod(seen, pod, kubelet.get(pod.uid))


def _pod(seen: Snapshot, pod: Pod, held: PodCPUs | None) -> Iterator[nrt.ContainerPlacement]:
    place = seen.places.get(pod.uid)
    for name, group in place.containers.items() if place else ():
        cgroup = seen.cgroups.get(group)
        if cgroup is None or cgroup.effective is None:
            continue
        yield nrt.ContainerPlacement(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            container=name,
            source="kubelet" if held else "koordinator",
            exclusive=bool(held or pod.resource_status.cpuset),
            single_numa=_single_numa(seen, pod, held),
            scope=seen.kubelet.topology_manager_scope or "container",
            promised_cpus=held.containers.get(name, cpuset.EMPTY) if held else pod.resource_status.cpuset,
            promised_nodes=() if held else pod.resource_status.numa_nodes,
            cpuset=cgroup.effective,
            cpus_by_numa=dict(nrt.by_numa_node(seen.topology, cgroup.effective)),
        )


def _single_numa(seen: Snapshot, pod: Pod, held: PodCPUs | None) -> bool:
    if held:
        return seen.kubelet.topology_manager_policy == "single-numa-node"
    return pod.numa_policy == "SingleNUMANode"
