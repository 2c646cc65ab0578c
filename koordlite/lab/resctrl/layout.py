"""Online CPUs of the emulated machine, and the caches they leave: the domains of resctrl."""

from __future__ import annotations

from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.rdt import RDT


class DomainLayout:
    """The caches with online CPUs. A cache whose last CPU goes offline is gone until one comes back."""

    def __init__(self, machine: Machine, rdt: RDT) -> None:
        self._machine = machine
        self.online = machine.cpuset
        self.size = len(machine.cpus)
        self._places: dict[int, dict[int, int | None]] = {
            2: dict(machine.l2_ids()),
            3: {cpu.id: cpu.l3 for cpu in machine.cpus},
        }
        nodes: dict[int, set[int]] = {}
        for cpu in machine.cpus:
            if cpu.l3 is not None:
                nodes.setdefault(cpu.l3, set()).add(cpu.node)
        self._clustered = not rdt.amd and rdt.since(6, 11) and max(map(len, nodes.values()), default=1) > 1
        self._nodes = {cache: tuple(sorted(ids)) for cache, ids in nodes.items()}
        self._node_of = {cpu.id: cpu.node for cpu in machine.cpus}

    def ids(self, level: int) -> tuple[int, ...]:
        """Cache ids of that level, ascending."""
        places = {self._places[level].get(cpu) for cpu in self.online}
        return tuple(sorted(place for place in places if place is not None))

    def clusters(self, l3: int) -> tuple[int, ...]:
        """NUMA nodes below one L3 cache, when the machine counts them apart (SNC, Linux 6.11); else none."""
        return self._nodes[l3] if self._clustered else ()

    def parts(self, l3: int) -> tuple[int, ...]:
        """Nodes of the cluster with online CPUs, by their number below the cache; the one of others is 0."""
        nodes = {self._node_of[cpu] for cpu in self.online}
        return tuple(number for number, node in enumerate(self.clusters(l3)) if node in nodes) or (0,)

    @property
    def clusters_per_cache(self) -> int:
        """Into how many parts the RMIDs of an L3 cache are cut."""
        return max((len(nodes) for nodes in self._nodes.values()), default=1) if self._clustered else 1

    def bytes(self, level: int) -> int:
        """Size of one cache."""
        return self._machine.l3_bytes if level == 3 else self._machine.l2_bytes
