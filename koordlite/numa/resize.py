"""CPUs of a pod's own after its request was changed in place: it keeps what it has, as far as it still may.

Neither kubelet nor Koordinator does so: kubelet refuses to resize pods with CPUs of their own, and Koordinator's
scheduler assigns them once, at the binding. The order depends on the machine and the promise alone, so scheduler and
agent arrive at the same CPUs, a second shrink takes from the first one's rest, and growing again gives the same back.
"""

from __future__ import annotations

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.numa.machine import Machine


def resized(current: CPUSet, count: int, machine: Machine, free: CPUSet = EMPTY) -> CPUSet:
    """`count` CPUs: a part of the `current` ones, or all of it and `free` ones of its NUMA nodes.

    ValueError when those have too few: a pod that grows stays on the NUMA nodes that its memory is on.
    """
    if count <= len(current):
        return CPUSet(shrinking(current, machine)[: max(count, 0)])
    nodes = {machine.by_id[cpu].node for cpu in current if cpu in machine.by_id}
    cores = {machine.by_id[cpu].core for cpu in current if cpu in machine.by_id}
    near = CPUSet(cpu.id for cpu in machine.cpus if cpu.node in nodes) & free - current
    if len(current) + len(near) < count:
        where = ", ".join(map(str, sorted(nodes))) or "none that is known"
        raise ValueError(
            f"its NUMA nodes ({where}) have {len(near)} free CPUs, and it needs {count - len(current)} more there"
        )
    beside = [cpu for cpu in near if machine.by_id[cpu].core in cores]
    free_cores = _whole_cores(near - CPUSet(beside), machine)
    whole = sorted(free_cores, key=lambda cpu: _place(cpu, machine))
    broken = [cpu for cpu in near if cpu not in free_cores and cpu not in beside]
    more = count - len(current)
    threads = max(machine.per_core, 1)
    entire = max(more - len(beside), 0) // threads * threads
    # The other threads of its own cores, whole cores, and for the rest what is left of cores.
    order = [*beside, *whole[:entire], *broken, *whole[entire:]]
    return current | CPUSet(order[:more])


def shrinking(current: CPUSet, machine: Machine) -> list[int]:
    """The `current` CPUs in the order in which they are retained: those of the NUMA node with most of them first, there
    whole cores first."""
    whole = _whole_cores(current, machine)
    by_node: dict[int, int] = {}
    for cpu in current:
        node = _place(cpu, machine)[0]
        by_node[node] = by_node.get(node, 0) + 1

    def rank(cpu: int) -> tuple[int, bool, tuple[int, int, int]]:
        return -by_node[_place(cpu, machine)[0]], cpu not in whole, _place(cpu, machine)

    return sorted(current, key=rank)


def _place(cpu: int, machine: Machine) -> tuple[int, int, int]:
    """NUMA node, core and number; a CPU that the machine does not have is on none."""
    place = machine.by_id.get(cpu)
    return (place.node, place.core, cpu) if place else (-1, cpu, cpu)


def _whole_cores(cpus: CPUSet, machine: Machine) -> frozenset[int]:
    return frozenset(cpu for core in machine.cores.values() if core <= cpus.ids for cpu in core)
