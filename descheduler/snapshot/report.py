"""What a node's NodeResourceTopology says, read once: topology, zones, kubelet's policies, placements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from descheduler.framework import NO_CPU_MANAGER, NO_TOPOLOGY
from koordlite.model import defaults, keys, node, nrt, times
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.quantity import Quantity
from koordlite.model.topology import Topology
from koordlite.model.wire import objects as wire
from koordlite.numa.koordinator import node_report
from koordlite.numa.koordinator.node_report import NO_REPORT, NodeTopology
from koordlite.numa.nrt import reader
from koordlite.numa.nrt.reader import Reader


class Report(msgspec.Struct, frozen=True):
    """A NodeResourceTopology as values; what is missing in it, or cannot be read, is empty."""

    topology: Topology = NO_TOPOLOGY
    zones: Mapping[int, Mapping[str, Quantity]] = msgspec.field(default_factory=dict)
    zone_totals: Mapping[int, Mapping[str, Quantity]] = msgspec.field(default_factory=dict)
    """Allocatable amounts, where `zones` has what is available of them; read only under `restricted`, which asks."""
    distances: Mapping[int, Mapping[int, int]] = msgspec.field(default_factory=dict)
    be_pool: CPUSet = EMPTY
    topology_policy: str = ""
    topology_scope: str = "container"
    cpu_manager: nrt.CPUManagerPolicy = NO_CPU_MANAGER
    reservation: node.Reservation | None = None
    system_qos: node.SystemQoS | None = None
    allocs: Mapping[str, nrt.PodCPUAlloc] = msgspec.field(default_factory=dict)
    """CPUs kubelet gave to pods alone, by uid."""
    placements: Mapping[str, tuple[nrt.ContainerPlacement, ...]] = msgspec.field(default_factory=dict)
    """Containers by pod uid."""
    koordinator: NodeTopology = NO_REPORT
    """The node as Koordinator's scheduler reads it."""
    by_crane: CPUSet = EMPTY
    """CPUs that Crane keeps, from its own kind."""


def read(obj: wire.NRTObject, problems: list[Problem]) -> tuple[Report, float | None]:
    """The report of one node, and when its agent saw where containers are, in seconds since the epoch: None when it
    does not say, minus infinity when that cannot be read. What cannot be read is added to `problems`."""
    known = Reader(obj, problems, max_numa_nodes=nrt.MAX_NUMA_NODES)
    placement, policy = known.placement, known.policy
    # Koordinator's rules, and kubelet's `restricted`, go through sets of NUMA nodes.
    is_searched = len(known.nodes) <= defaults.NUMA_NODES
    if not is_searched and (policy.policy == "restricted" or known.topology.cpus):
        reader.numa_nodes(obj.zones, known.owner, problems)
    found = Report(
        topology=known.topology,
        zones=known.available,
        zone_totals=known.allocatable if policy.policy == "restricted" and is_searched else {},
        distances=known.distances,
        be_pool=known.be_pool,
        topology_policy=policy.policy,
        topology_scope=policy.scope or "container",
        cpu_manager=known.cpu_manager,
        reservation=known.reservation,
        system_qos=known.system_qos,
        allocs={alloc.uid: alloc for alloc in known.kubelets_pods},
        placements=_by_uid(placement.containers if placement else ()),
        koordinator=node_report.of_reader(known, obj.topology_policies or ()) if is_searched else NO_REPORT,
    )
    return found, _seen_at(placement, known.owner, problems)


def observed_at(obj: wire.NRTObject) -> str | None:
    """When the agent looked last; None when there is no placement, or it cannot be read."""
    text = (obj.metadata.annotations or {}).get(keys.PLACEMENT)
    try:
        return msgspec.json.decode(text, type=_ObservedAt).observed_at if text else None
    except UNREADABLE:
        return None  # `read` reports it, with the whole annotation.


class _ObservedAt(msgspec.Struct, frozen=True, rename="camel"):
    observed_at: str | None = None


def _by_uid(containers: Iterable[nrt.ContainerPlacement]) -> dict[str, tuple[nrt.ContainerPlacement, ...]]:
    found: dict[str, list[nrt.ContainerPlacement]] = defaultdict(list)
    for container in containers:
        found[container.uid].append(container)
    return {uid: tuple(placed) for uid, placed in found.items()}


def _seen_at(placement: nrt.Placement | None, owner: str, problems: list[Problem]) -> float | None:
    if placement is None:
        return None
    try:
        return times.parse(placement.observed_at)
    except ValueError as error:
        do = "the agent writes it; without a time the placement counts as too old"
        problems.append(Problem(owner, f"{keys.PLACEMENT} observedAt", placement.observed_at, str(error), do))
        return float("-inf")
