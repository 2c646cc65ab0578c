"""The zones of Crane's NodeResourceTopology: what each NUMA node has, and what of it is reserved.

Source: crane-agent `pkg/topology/node_resource_topology.go`. Reserved CPUs count on the NUMA node they belong to;
amounts without ids are taken from the first NUMA nodes on. Where an amount is larger than a NUMA node, ours takes the
rest from the next one; Crane adds it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.quantity import NANO, ZERO, Quantity
from koordlite.model.topology import CPU, NUMANode
from koordlite.model.wire.crane import Zone, ZoneResources, zone_name
from koordlite.numa.kubelet.cpu_take import take_packed
from koordlite.numa.machine import Machine


def reserved_by_number(machine: Machine, count: int) -> CPUSet:
    """Take CPUs from the first NUMA nodes on, packed as kubelet does. Source: crane-agent `buildReservedCPUSet`."""
    parts: list[CPUSet] = []
    for node in sorted(machine.nodes):
        part = min(count, len(machine.nodes[node]))
        parts.append(take_packed(machine, CPUSet(machine.nodes[node]), part))
        count -= part
    return union(parts)


def node_zones(
    nodes: Sequence[NUMANode], *, reserved_cpus: CPUSet, reserved: Mapping[str, Quantity], unavailable: CPUSet = EMPTY
) -> Iterator[Zone]:
    """A zone for each NUMA node. `reserved` are kubelet's amounts (kubeReserved + systemReserved); of cpu it counts
    only while `reserved_cpus` names no CPU. CPUs that are `unavailable` are not allocatable. Costs are SLIT distances.
    """
    remaining = dict(reserved)
    whole = 0 if reserved_cpus else -(-reserved.get("cpu", ZERO).nano // NANO)
    for node in nodes:
        ids = node.cpus & reserved_cpus
        count = len(ids) if reserved_cpus else min(whole, len(node.cpus))
        whole -= 0 if reserved_cpus else count
        if reserved_cpus:
            remaining["cpu"] = Quantity.of(len(ids))
        capacity = {"cpu": Quantity.of(len(node.cpus))}
        if node.memory:
            capacity["memory"] = Quantity.of(node.memory, "BinarySI")
        allocatable = {name: _less(amount, remaining, name) for name, amount in capacity.items()}
        others_nano = len(node.cpus & unavailable - ids) * NANO
        allocatable["cpu"] = Quantity(max(allocatable["cpu"].nano - others_nano, 0))
        yield Zone(
            name=zone_name(node.id),
            type="Node",
            costs=tuple({"name": zone_name(other), "value": far} for other, far in node.distances) or None,
            resources=ZoneResources(
                capacity={name: str(amount) for name, amount in capacity.items()},
                allocatable={name: str(amount) for name, amount in allocatable.items()},
                reserved_cpu_nums=count,
            ),
        )


def part_zones(cpus: Sequence[CPU]) -> Iterator[Zone]:
    """A zone for each socket, and one for each core with its NUMA node as parent; their CPUs are an attribute.

    They have no resources: Crane's scheduler counts every zone with resources as a NUMA node.
    """
    for socket in sorted({cpu.socket for cpu in cpus}):
        yield _part(f"socket{socket}", "Socket", "", [cpu for cpu in cpus if cpu.socket == socket])
    for core in sorted({cpu.core for cpu in cpus}):
        members = [cpu for cpu in cpus if cpu.core == core]
        yield _part(f"core{core}", "Core", zone_name(members[0].node), members)


def _part(name: str, kind: str, parent: str, members: Sequence[CPU]) -> Zone:
    return Zone(name=name, type=kind, parent=parent, attributes={"cpus": str(CPUSet(cpu.id for cpu in members))})


def _less(amount: Quantity, remaining: dict[str, Quantity], name: str) -> Quantity:
    """`amount` without what is reserved of it, at least 0; the rest is `remaining`."""
    reserved = remaining.get(name, ZERO)
    share = min(reserved, amount)
    remaining[name] = reserved - share
    return amount - share
