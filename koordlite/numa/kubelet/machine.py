"""The CPUs of a machine as kubelet counts them: groups by NUMA node, socket, core and uncore cache.

Source: kubelet 1.36, `cm/cpumanager/topology`. A core has as many CPUs as the machine has on average, rounded down;
so do sockets and uncore caches. On machines with unequal cores kubelet's answers follow from that average.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU

Groups = Mapping[int, frozenset[int]]
"""Id of a part → the ids of its CPUs."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """All CPUs, in any order; equal machines share what is computed about them if they are the same object."""

    cpus: tuple[CPU, ...]

    @functools.cached_property
    def by_id(self) -> dict[int, CPU]:
        """CPU id → CPU."""
        return {cpu.id: cpu for cpu in self.cpus}

    @functools.cached_property
    def all(self) -> CPUSet:
        """All CPUs."""
        return CPUSet(self.by_id)

    @functools.cached_property
    def nodes(self) -> Groups:
        """CPUs by NUMA node; nodes without CPUs are not there."""
        return self._grouped(lambda cpu: cpu.node)

    @functools.cached_property
    def sockets(self) -> Groups:
        """CPUs by socket."""
        return self._grouped(lambda cpu: cpu.socket)

    @functools.cached_property
    def cores(self) -> Groups:
        """CPUs by physical core."""
        return self._grouped(lambda cpu: cpu.core)

    @functools.cached_property
    def uncores(self) -> Groups:
        """CPUs by last-level cache; a CPU without one counts to the cache with the id of its socket."""
        return self._grouped(uncore)

    @functools.cached_property
    def numa_first(self) -> bool:
        """NUMA nodes are as large as sockets, or larger: whole NUMA nodes are taken before whole sockets."""
        return len(self.sockets) >= len(self.nodes)

    @property
    def per_core(self) -> int:
        """CPUs of a core, on average."""
        return len(self.by_id) // len(self.cores) if self.cores else 0

    @property
    def per_socket(self) -> int:
        """CPUs of a socket, on average."""
        return len(self.by_id) // len(self.sockets) if self.sockets else 0

    @property
    def per_uncore(self) -> int:
        """CPUs of an uncore cache, on average."""
        return len(self.by_id) // len(self.uncores) if self.uncores else 0

    def in_nodes(self, nodes: Iterable[int]) -> frozenset[int]:
        """All CPUs of these NUMA nodes."""
        return frozenset[int]().union(*(self.nodes.get(node, frozenset()) for node in nodes))

    def sockets_of(self, nodes: Iterable[int]) -> frozenset[int]:
        """The sockets that these NUMA nodes lie on."""
        return frozenset(self.by_id[cpu].socket for cpu in self.in_nodes(nodes))

    def siblings(self, cpus: CPUSet) -> CPUSet:
        """These CPUs and all others on their cores; CPUs the machine does not have are left out."""
        cores = {self.by_id[cpu].core for cpu in cpus if cpu in self.by_id}
        return CPUSet(frozenset[int]().union(*(self.cores[core] for core in cores)))

    def _grouped(self, level: Callable[[CPU], int]) -> Groups:
        groups: dict[int, set[int]] = defaultdict(set)
        for cpu in self.cpus:
            groups[level(cpu)].add(cpu.id)
        return {part: frozenset(groups[part]) for part in sorted(groups)}


def uncore(cpu: CPU) -> int:
    """The id of the CPU's last-level cache, else that of its socket."""
    return cpu.socket if cpu.l3 is None else cpu.l3
