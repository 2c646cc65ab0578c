"""What a node's NodeResourceTopology says, read once: topology, zones, kubelet's policies, placements."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from descheduler.framework import NO_CPU_MANAGER, NO_TOPOLOGY
from koordlite.model import cpuset, keys, node, nrt, times
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError, Problem
from koordlite.model.quantity import Quantity
from koordlite.model.topology import Topology
from koordlite.model.wire import objects as wire
from koordlite.numa.koordinator import node_report
from koordlite.numa.koordinator.node_report import NO_REPORT, NodeTopology
from koordlite.numa.nrt import policy as topology_manager

T = TypeVar("T")


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
    owner = f"noderesourcetopology/{obj.metadata.name}"
    note = _Annotations(obj.metadata.annotations or {}, owner, problems)
    placement = note.get(keys.PLACEMENT, nrt.decode_placement)
    policy, scope = _topology_manager(obj)
    found = Report(
        topology=note.get(keys.CPU_TOPOLOGY, _topology) or NO_TOPOLOGY,
        zones=_zones(obj.zones or (), "available", owner, problems),
        zone_totals=_zones(obj.zones or (), "allocatable", owner, []) if policy == "restricted" else {},
        distances=_distances(obj.zones or ()),
        be_pool=cpuset.union(p.cpus for p in note.get(keys.BE_SHARED_POOLS, _be_pools) or ()),
        topology_policy=policy,
        topology_scope=scope,
        cpu_manager=note.get(keys.CPU_MANAGER_POLICY, nrt.decode_cpu_manager_policy) or NO_CPU_MANAGER,
        reservation=note.get(keys.RESERVATION, node.parse_reservation),
        system_qos=note.get(keys.SYSTEM_QOS, node.parse_system_qos),
        allocs={a.uid: a for a in note.get(keys.POD_CPU_ALLOCS, nrt.decode_pod_cpu_allocs) or () if _by_kubelet(a)},
        placements=_by_uid(placement.containers if placement else ()),
        # What cannot be read of it is in the problems already.
        koordinator=node_report.read(obj, []),
    )
    return found, _seen_at(placement, owner, problems)


def _topology(text: str, owner: str) -> Topology:
    """Machines of one type have the same text, and share what is read of it."""
    try:
        return _topology_of(text)
    except InputError:
        return nrt.decode_cpu_topology(text, owner)  # The same error, with the owner's name.


@functools.lru_cache(1024)
def _topology_of(text: str) -> Topology:
    return nrt.decode_cpu_topology(text, "")


def _by_kubelet(alloc: nrt.PodCPUAlloc) -> bool:
    """Kubelet holds these CPUs for a known pod. What Koordinator promised stands on the pod itself."""
    return alloc.managed_by_kubelet and bool(alloc.uid)


def observed_at(obj: wire.NRTObject) -> str | None:
    """When the agent looked last; None when there is no placement, or it cannot be read."""
    text = (obj.metadata.annotations or {}).get(keys.PLACEMENT)
    try:
        return msgspec.json.decode(text, type=_ObservedAt).observed_at if text else None
    except msgspec.DecodeError:
        return None  # `read` reports it, with the whole annotation.


class _ObservedAt(msgspec.Struct, frozen=True, rename="camel"):
    observed_at: str | None = None


class _Annotations(msgspec.Struct, frozen=True):
    texts: Mapping[str, str]
    owner: str
    problems: list[Problem]

    def get(self, key: str, decode: Callable[[str, str], T]) -> T | None:
        """The decoded annotation; None when it is missing, or broken and noted as a problem."""
        if not self.texts.get(key):
            return None
        try:
            return decode(self.texts[key], self.owner)
        except InputError as error:
            self.problems.extend(error.problems)
            return None


def _topology_manager(obj: wire.NRTObject) -> tuple[str, str]:
    """Kubelet's topology manager (policy, scope), from the attributes where there are any, else from the old list."""
    reported = topology_manager.by_attributes(obj.attributes or ()).over(
        topology_manager.by_policies(obj.topology_policies or ())
    )
    return reported.policy, reported.scope or "container"


def _zones(
    zones: Iterable[wire.Zone], column: str, owner: str, problems: list[Problem]
) -> dict[int, dict[str, Quantity]]:
    numbered = {nrt.numa_node_of_zone(zone.name): zone for zone in zones if zone.type == "Node"}
    known = {number: zone for number, zone in numbered.items() if number is not None}
    return {number: _amounts(known[number], column, owner, problems) for number in sorted(known)}


def _distances(zones: Iterable[wire.Zone]) -> dict[int, dict[int, int]]:
    """SLIT distances out of the zones' costs; a cost that names no NUMA node or is no whole number is left out."""
    found: dict[int, dict[int, int]] = {}
    for zone in zones:
        here = nrt.numa_node_of_zone(zone.name) if zone.type == "Node" else None
        for cost in zone.costs or ():
            there, value = nrt.numa_node_of_zone(str(cost.get("name", ""))), cost.get("value")
            if here is not None and there is not None and isinstance(value, int):
                found.setdefault(here, {})[there] = value
    return found


def _be_pools(text: str, owner: str) -> tuple[nrt.Pool, ...]:
    return nrt.decode_pools(text, owner, keys.BE_SHARED_POOLS)


def _amounts(zone: wire.Zone, column: str, owner: str, problems: list[Problem]) -> dict[str, Quantity]:
    amounts: dict[str, Quantity] = {}
    for resource in zone.resources or ():
        try:
            amounts[resource.name] = Quantity.parse(getattr(resource, column))
        except ValueError as error:
            field = f"zones[{zone.name}].resources[{resource.name}].{column}"
            do = "write a quantity; the zone counts as one without this resource"
            problems.append(Problem(owner, field, str(getattr(resource, column)), str(error), do))
    return amounts


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
