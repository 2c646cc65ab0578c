"""The NUMA zones of a node: what each has, what kubelet may give out of it, and what it has given: what a scheduler has
to know to predict kubelet.

Sources: resource-topology-exporter and NFD's topology-updater (capacity, allocatable, available of each NUMA node).
They disagree about memory of several NUMA nodes; here it is split, the lowest node first, as kubelet's memory manager
takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from koordlite.model.cpuset import union
from koordlite.model.picture.kubelet import Devices, MemoryBlock, ResourceSet
from koordlite.model.quantity import ZERO, Format, Quantity
from koordlite.model.topology import NUMANode

Resources = Mapping[str, Quantity]

HUGE_PAGES = {"hugepages-1Gi": 2**30, "hugepages-2Mi": 2**21}
"""Resource name → bytes of one page."""


def capacity(node: NUMANode, *, huge_pages: bool = True) -> dict[str, Quantity]:
    """Logical CPUs, huge pages, and the memory that is not huge pages.

    Without `huge_pages` all memory counts as ordinary. Source: Koordinator `calTopologyZoneList`.
    """
    pages = {name: dict(node.huge_pages).get(size, 0) if huge_pages else 0 for name, size in HUGE_PAGES.items()}
    plain = max(0, node.memory - sum(pages.values()))
    amounts = {"cpu": len(node.cpus), **pages, "memory": plain}
    return {name: Quantity.of(amount, "DecimalSI" if name == "cpu" else "BinarySI") for name, amount in amounts.items()}


def allocatable(zones: Sequence[Resources], reserved: Resources) -> list[dict[str, Quantity]]:
    """capacity − ⌈reserved / n⌉ for each zone, where n zones have the resource at all.

    A zone without CPUs bears no part of the reserved CPUs. Source: Koordinator `applyNUMAReservationToZoneResources`,
    which refuses machines with such zones.
    """
    shares = {
        name: share(amount, sum(1 for zone in zones if name in zone and zone[name].nano))
        for name, amount in reserved.items()
    }
    return [without(zone, shares) for zone in zones]


def share(amount: Quantity, count: int) -> Quantity:
    """⌈amount / count⌉ in thousandths, 0 for no parts. Source: Koordinator `divideResourceByCount`."""
    return Quantity.of_milli(-(-amount.milli // count)) if count > 0 else ZERO


def without(zone: Resources, shares: Resources) -> dict[str, Quantity]:
    """max(zone − share, 0); shares that are not positive take nothing."""
    return {
        name: Quantity(max(0, amount.nano - max(0, shares[name].nano)), amount.format) if name in shares else amount
        for name, amount in zone.items()
    }


class Amounts(msgspec.Struct, frozen=True):
    """A resource of a zone."""

    capacity: Quantity
    allocatable: Quantity
    available: Quantity


def amounts(
    nodes: Sequence[NUMANode],
    capacities: Sequence[Resources],
    *,
    unmanaged: Sequence[Resources],
    allocatable: ResourceSet,
    allocations: Collection[ResourceSet],
) -> list[dict[str, Amounts]]:
    """Each zone's resources, in the order of `nodes`.

    `allocatable` is what kubelet may give out, `allocations` what containers that have not ended have of it. A
    resource that kubelet does not manage is available as the machine has it, or as `unmanaged` says.
    """
    zones = [
        {name: Amounts(whole, unmanaged[place][name], unmanaged[place][name]) for name, whole in capacity.items()}
        for place, capacity in enumerate(capacities)
    ]
    exclusive, claimed = union(each.cpus for each in allocations), union(each.claimed for each in allocations)
    memory = _memory_left(allocatable.memory, [block for each in allocations for block in each.memory])
    devices = _device_ids(allocatable.devices)
    used = _device_ids(device for each in allocations for device in each.devices)
    for node, zone, capacity in zip(nodes, zones, capacities, strict=True):
        if allocatable.cpus:
            mine = allocatable.cpus & node.cpus
            zone["cpu"] = _amounts(len(mine), len(mine - exclusive - claimed), "DecimalSI", capacity.get("cpu"))
        elif (taken_here := claimed & node.cpus) and "cpu" in zone:
            # A DRA driver gives CPUs where kubelet does not.
            free = max(zone["cpu"].available.milli - 1000 * len(taken_here), 0)
            zone["cpu"] = msgspec.structs.replace(zone["cpu"], available=Quantity.of_milli(free))
        for kind, by_node in memory.items():
            most, free = by_node.get(node.id, (0, 0))
            zone[kind] = _amounts(most, free, "BinarySI", capacity.get(kind))
        for resource, ids in devices.items():
            here = ids.get(node.id, frozenset())
            in_use = used.get(resource, {}).get(node.id, frozenset())
            zone[resource] = _amounts(len(here), len(here - in_use), "DecimalSI", None)
    return zones


def _amounts(allocatable: int, available: int, form: Format, capacity: Quantity | None) -> Amounts:
    """A zone that may give out more than it seems to have has as much as it gives out."""
    most = Quantity.of(allocatable, form)
    return Amounts(max(capacity or most, most), most, Quantity.of(available, form))


def _memory_left(
    allocatable: Iterable[MemoryBlock], blocks: Iterable[MemoryBlock]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Allocatable and free bytes, by kind and NUMA node."""
    most: dict[str, dict[int, int]] = {}
    for block in allocatable:
        for node in block.nodes[:1]:
            kind = most.setdefault(block.kind, {})
            kind[node] = kind.get(node, 0) + block.size
    free = {kind: dict(nodes) for kind, nodes in most.items()}
    # Blocks of one node first: those of several take what is left.
    for block in sorted(blocks, key=lambda block: len(block.nodes)):
        size, kind = block.size, free.get(block.kind, {})
        for node in sorted(block.nodes):
            part = min(size, kind.get(node, 0))
            size -= part
            if node in kind:
                kind[node] -= part
    return {kind: {node: (amount, free[kind][node]) for node, amount in nodes.items()} for kind, nodes in most.items()}


def _device_ids(devices: Iterable[Devices]) -> dict[str, dict[int, frozenset[str]]]:
    """Ids by resource and NUMA node. A device at two nodes can be had at either, so it counts at both; one whose node
    nobody knows is in no zone."""
    by_resource: dict[str, dict[int, frozenset[str]]] = {}
    for each in devices:
        for node in each.nodes:
            nodes = by_resource.setdefault(each.resource, {})
            nodes[node] = nodes.get(node, frozenset()) | frozenset(each.ids)
    return by_resource
