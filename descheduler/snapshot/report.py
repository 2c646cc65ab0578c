"""A node's NodeResourceTopology, read once: topology, zones, kubelet's policies, placements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from descheduler.picture.cluster import NodeReport
from koordlite.model import defaults, keys, node, nrt, times
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.wire import objects as wire
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.koordinator import node_report
from koordlite.numa.koordinator.node_report import NO_REPORT
from koordlite.numa.nrt import reader
from koordlite.numa.nrt.reader import Reader


class Report(NodeReport, frozen=True, kw_only=True):
    """The reports on a node as values, with what they say of its pods and of what is kept from them."""

    reservation: node.Reservation | None = None
    system_qos: node.SystemQoS | None = None
    allocs: Mapping[str, nrt.PodCPUAlloc] = msgspec.field(default_factory=dict)
    """CPUs kubelet gave to pods alone, by uid."""
    placements: Mapping[str, tuple[nrt.ContainerPlacement, ...]] = msgspec.field(default_factory=dict)
    """Containers by pod uid."""
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
    placements: dict[str, list[nrt.ContainerPlacement]] = defaultdict(list)
    for container in placement.containers if placement else ():
        placements[container.uid].append(container)
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
        placements={uid: tuple(containers) for uid, containers in placements.items()},
        koordinator=node_report.of_reader(known, obj.topology_policies or ()) if is_searched else NO_REPORT,
    )
    return found, _seen_at(placement, known.owner, problems)


def observed_at(obj: wire.NRTObject) -> str | None:
    """Time of the agent's last look; None when there is no placement, or it cannot be read."""
    text = (obj.metadata.annotations or {}).get(keys.PLACEMENT)
    try:
        return msgspec.json.decode(text, type=_ObservedAt).observed_at if text else None
    except UNREADABLE:
        return None  # `read` reports it, with the whole annotation.


class _ObservedAt(msgspec.Struct, frozen=True, rename="camel"):
    observed_at: str | None = None


def _seen_at(placement: nrt.Placement | None, owner: str, problems: list[Problem]) -> float | None:
    if placement is None:
        return None
    try:
        return times.parse(placement.observed_at)
    except ValueError as error:
        do = "the agent writes it; without a time the placement counts as too old"
        problems.append(Problem(owner, f"{keys.PLACEMENT} observedAt", placement.observed_at, str(error), do))
        return float("-inf")


def crane_reserved(obj: TopologyObject | None, problems: list[Problem]) -> CPUSet:
    """CPUs that Crane keeps from pods which ask for it; what cannot be read is added to `problems`."""
    text = (obj.attributes or {}).get(keys.CRANE_RESERVED_CPUS, "") if obj else ""
    try:
        return CPUSet.parse(text)
    except ValueError as error:
        owner = f"{keys.CRANE_GROUP}noderesourcetopology/{obj.metadata.name if obj else ''}"
        do = "write CPUs like 0-3,8; no CPU counts as reserved by Crane until then"
        problems.append(Problem(owner, f"attributes[{keys.CRANE_RESERVED_CPUS}]", text, str(error), do))
        return EMPTY
