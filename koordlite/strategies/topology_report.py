"""Publish what this machine is and where pods with a promise really run, on the NodeResourceTopology.

Schedulers read the topology, kubelet's policy and the zones; the descheduler reads the placement, which nobody else
publishes. Shapes: Koordinator's annotations (docs/formulas.md, "NodeResourceTopology"), placement is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import msgspec

from koordlite.changes.published import TopologyChange, TopologyLabelChange, ZonesChange
from koordlite.formulas.topology import topology_diff
from koordlite.model import keys, nrt
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.model.errors import InputError
from koordlite.model.picture.published import Published
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.model.wire.objects import Zone
from koordlite.strategies.shared import placements, zone_report

NEW_CONTAINERS = "none"
NEEDS_NODE = "topology"
AT_MOST_EVERY_SECONDS = 1.0
"""Every consumer reads each version of the object."""
ALIASES = ("topology",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `topologyReport`."""

    refresh_seconds: float = bounded(60.0, ge=1)
    """An unchanged placement is published again after this time, so that readers can tell it from a dead agent's."""
    huge_pages: bool = True
    """Huge pages of a zone are a resource of their own, not part of its memory. Koordinator's gate HugePageReport."""
    zones: Literal["kubelet", "koordinator"] = "kubelet"
    """Meaning of a zone's amounts. kubelet: what kubelet may give out and what it has left, with devices, as the
    scheduler plugin NodeResourceTopologyMatch and `koordlite scheduler-extender` read them. koordinator: what the
    machine has, for clusters with Koordinator's scheduler, which subtracts reserved CPUs itself."""
    pods_fingerprint: Literal["off", "all", "with-exclusive-resources"] = "with-exclusive-resources"
    """Sign the pods that the zones count, so that a scheduler sees whether a report knows the same pods. all: every
    pod. with-exclusive-resources: those that hold CPUs, memory or devices of a NUMA node."""
    numa_placement: bool = False
    """Publish which container is on which NUMA node as numaplacement v0, a format that may still change."""
    other_writer: Literal["yield", "overwrite"] = "yield"
    """Behavior when another program (koordlet, NFD, resource-topology-exporter) writes the zones while the agent runs:
    yield leaves zones, policies, attributes, and annotations that it writes, to it. overwrite writes ours over them.
    Both are reported. What it wrote before the agent started is written over."""


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide about the node's description and the placement of its containers."""
    yield _machine(snapshot, config)
    yield _placement(snapshot, config)


def _machine(snapshot: NodeSnapshot, config: Config) -> Decision:
    silent = snapshot.ages.get("pod resources", 0.0)
    other = snapshot.published.other_writer
    yields = other is not None and config.other_writer == "yield"
    is_silent = silent > config.refresh_seconds and not yields
    # A zone that could not be read is not published: what was published last stays.
    report = _report(snapshot, config, with_zones=not yields and not is_silent)
    zones_of_nodes = tuple(zone for zone in snapshot.published.zones if nrt.is_numa_zone(zone.name, zone.type))
    report = _marked_stale(report, snapshot.published, zones_of_nodes) if is_silent else report
    published = msgspec.structs.replace(snapshot.published, zones=zones_of_nodes)
    changed = topology_diff.difference(published, report)
    since_write = snapshot.ages.get("topology write", AT_MOST_EVERY_SECONDS)
    due = bool(changed) and since_write >= AT_MOST_EVERY_SECONDS
    changes = tuple(_changes(published, report)) if due else ()
    evidence: dict[str, int | float | str] = {
        "cpus": len(snapshot.topology.cpus),
        "zones": len(snapshot.topology.nodes),
        "kubelet": snapshot.kubelet.cpu_manager_policy,
        **({"source": snapshot.kubelet.resources.source} if snapshot.kubelet.resources else {}),
        **({"changed": changed} if changed else {}),
    }
    verdict: Literal["set", "hold"] = "set" if changes else "hold"
    if other:
        evidence |= {"writer": other.manager, **({"wroteAt": other.time} if other.time else {})}
        reason = "OtherTopologyWriter" if yields else "OtherTopologyWriterOverwritten"
        return Decision("topology", verdict, reason, evidence, changes)
    if is_silent:
        return Decision("topology", verdict, "KubeletSilent", {**evidence, "seconds": round(silent)}, changes)
    return Decision("topology", verdict, "MachineDescribed", evidence, changes)


def _report(snapshot: NodeSnapshot, config: Config, *, with_zones: bool) -> topology_diff.Report:
    kubelet = snapshot.kubelet
    policy = nrt.CPUManagerPolicy(
        policy=kubelet.cpu_manager_policy,
        options=dict(kubelet.cpu_manager_options),
        reserved_cpus=kubelet.reserved_cpus,
    )
    by_uid = {pod.uid: pod for pod in snapshot.pods}
    annotations: dict[str, str | None] = {
        keys.CPU_BASIC_INFO: nrt.encode(snapshot.cpu_info),
        keys.CPU_TOPOLOGY: nrt.encode_cpu_topology(snapshot.topology),
        keys.CPU_MANAGER_POLICY: nrt.encode_cpu_manager_policy(policy),
        keys.POD_CPU_ALLOCS: nrt.encode_pod_cpu_allocs(
            nrt.PodCPUAlloc(
                namespace=pod.namespace if pod else "",
                name=pod.name if pod else "",
                uid=assignment.uid,
                cpuset=assignment.cpus,
                managed_by_kubelet=True,
            )
            for assignment in kubelet.pod_cpus
            for pod in (by_uid.get(assignment.uid),)
        ),
        keys.SYSTEM_QOS: nrt.encode_system_qos(snapshot.system_qos),
    }
    other = snapshot.published.other_writer if config.other_writer == "yield" else None
    report = topology_diff.Report(
        annotations={key: text for key, text in annotations.items() if not other or key not in other.annotations},
        # An empty label asks for nothing, and is not copied.
        labels={keys.NUMA_RESERVATION: snapshot.node.labels.get(keys.NUMA_RESERVATION) or None},
    )
    return _with_zones(report, snapshot, config) if with_zones else report


def _marked_stale(report: topology_diff.Report, published: Published, zones: tuple[Zone, ...]) -> topology_diff.Report:
    """The zones as they are published, and that they are not current; v1alpha1 has no place for that."""
    if not zones or published.topology_version.endswith("/v1alpha1"):
        return report
    return msgspec.structs.replace(
        report,
        policies=published.topology_policies,
        zones=tuple(msgspec.structs.replace(zone, attributes=None) for zone in zones),
        attributes={zone_report.STALE: "true"},
    )


def _with_zones(report: topology_diff.Report, snapshot: NodeSnapshot, config: Config) -> topology_diff.Report:
    kubelet, by_kubelet = snapshot.kubelet, config.zones == "kubelet"
    if not by_kubelet:
        snapshot = dataclasses.replace(snapshot, kubelet=msgspec.structs.replace(kubelet, resources=None))
    numa_placement = config.numa_placement and by_kubelet
    zones = tuple(zone_report.of(snapshot, huge_pages=config.huge_pages, numa_placement=numa_placement))
    return msgspec.structs.replace(
        report,
        policies=(nrt.topology_policy(kubelet.topology_manager_policy, kubelet.topology_manager_scope),),
        zones=zones,
        attributes=zone_report.attributes(snapshot, method=config.pods_fingerprint, numa_placement=numa_placement),
        gone=zone_report.ended_resources(snapshot, zones),
        zone_attributes=zone_report.ZONE_ATTRIBUTES if by_kubelet else frozenset(),
        tells_available=snapshot.kubelet.resources is not None,
    )


def _changes(published: Published, report: topology_diff.Report) -> Iterator[Change]:
    """Changes, piece by piece: other strategies write to the same object."""
    for key, text in report.annotations.items():
        if text is not None and not topology_diff.same_text(published.topology.get(key), text):
            yield TopologyChange(key, text)
    for key, label in report.labels.items():
        if published.topology_labels.get(key) != label:
            yield TopologyLabelChange(key, label)
    if report.zones is not None and topology_diff.zones_differ(published, report):
        yield ZonesChange(
            tuple(report.zones),
            report.policies,
            tuple(report.attributes.items()),
            report.gone,
            report.zone_attributes,
        )


def _placement(snapshot: Snapshot, config: Config) -> Decision:
    text = snapshot.published.topology.get(keys.PLACEMENT)
    try:
        last = nrt.decode_placement(text, "noderesourcetopology") if text else None
    except InputError:
        last = None  # Only we write it: a broken one is replaced by this tick's.
    every = tuple(
        sorted(placements.containers(snapshot, only_enforced=True), key=lambda c: (c.namespace, c.pod, c.container))
    )
    containers = nrt.fitting(every)
    more = len(every) - len(containers)
    age = snapshot.ages.get("placement")
    fresh = age is not None and age < config.refresh_seconds
    evidence = {"containers": len(containers), "generation": last.generation if last else 0}
    evidence |= {"more": more} if more else {}
    stands = last is not None and _bare(last.containers) == _bare(containers) and (last.more or 0) == more
    if stands and fresh:
        return Decision("placement", "hold", "PlacementUnchanged", evidence)
    generation = (last.generation if last else 0) + (0 if stands else 1)
    placement = nrt.Placement(observed_at=snapshot.taken_at, generation=generation, containers=containers)
    text = nrt.encode(msgspec.structs.replace(placement, more=more) if more else placement)
    change = TopologyChange(keys.PLACEMENT, text)
    return Decision("placement", "set", "PlacementObserved", {**evidence, "generation": generation}, (change,))


def _bare(containers: tuple[nrt.ContainerPlacement, ...]) -> tuple[nrt.ContainerPlacement, ...]:
    """The report without what changes all the time: bytes in use are published when the rest is, or once in
    `refresh_seconds`."""
    return tuple(msgspec.structs.replace(container, memory_by_numa={}) for container in containers)
