"""The CPUs of a machine, in groups by NUMA node, socket, core and uncore cache, and sets of NUMA nodes as masks.

Source: kubelet 1.36, `cm/cpumanager/topology`. A core has as many CPUs as the machine has on average, rounded down;
so do sockets and uncore caches. On machines with unequal cores kubelet's answers follow from that average.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU

Groups = Mapping[int, frozenset[int]]
"""Id of a part → the ids of its CPUs."""

Level = Callable[[CPU], int]
NODE, SOCKET, CORE = operator.attrgetter("node"), operator.attrgetter("socket"), operator.attrgetter("core")
"""A CPU → the id of the part of the machine that it is in."""

MAX_NODES = 64
"""NUMA node ids beyond 63 fit in no mask of kubelet."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """All CPUs, in any order; equal machines share what is computed about them if they are the same object."""

    cpus: tuple[CPU, ...]

    @classmethod
    def of(cls, cpus: Iterable[CPU]) -> Machine:
        """The machine of these CPUs; core numbers that repeat on each socket are made unique."""
        return cls(tuple(msgspec.structs.replace(cpu, core=cpu.socket << 16 | cpu.core) for cpu in cpus))

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
        return self._grouped(NODE)

    @functools.cached_property
    def sockets(self) -> Groups:
        """CPUs by socket."""
        return self._grouped(SOCKET)

    @functools.cached_property
    def cores(self) -> Groups:
        """CPUs by physical core."""
        return self._grouped(CORE)

    @functools.cached_property
    def uncores(self) -> Groups:
        """CPUs by last-level cache; a CPU without one counts to the cache with the id of its socket."""
        return self._grouped(uncore)

    @functools.cached_property
    def numa_first(self) -> bool:
        """NUMA nodes are as large as sockets, or larger: whole NUMA nodes are taken before whole sockets."""
        return len(self.sockets) >= len(self.nodes)

    @functools.cached_property
    def per_core(self) -> int:
        """CPUs of a core, on average."""
        return self._per(lambda cpu: (cpu.socket, cpu.node, cpu.core))

    @functools.cached_property
    def per_node(self) -> int:
        """CPUs of a NUMA node, on average."""
        return self._per(lambda cpu: (cpu.socket, cpu.node))

    @functools.cached_property
    def per_socket(self) -> int:
        """CPUs of a socket, on average."""
        return self._per(SOCKET)

    @functools.cached_property
    def per_uncore(self) -> int:
        """CPUs of an uncore cache, on average."""
        return self._per(uncore)

    @functools.cached_property
    def by_node(self) -> Mapping[int, CPUSet]:
        """CPUs by NUMA node, in the order of the machine's list."""
        return {node: CPUSet(self.nodes[node]) for node in dict.fromkeys(cpu.node for cpu in self.cpus)}

    def by_core(self, cpus: Iterable[int]) -> dict[int, list[int]]:
        """Select those of `cpus` that the machine has, by core, ascending."""
        cores: dict[int, list[int]] = defaultdict(list)
        for cpu in sorted(cpus):
            if cpu in self.by_id:
                cores[self.by_id[cpu].core].append(cpu)
        return cores

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

    def _per(self, part: Callable[[CPU], object]) -> int:
        return len(self.by_id) // len({part(cpu) for cpu in self.cpus}) if self.cpus else 0

    def _grouped(self, level: Level) -> Groups:
        groups: dict[int, set[int]] = defaultdict(set)
        for cpu in self.cpus:
            groups[level(cpu)].add(cpu.id)
        return {part: frozenset(groups[part]) for part in sorted(groups)}


def uncore(cpu: CPU) -> int:
    """The id of the CPU's last-level cache, else that of its socket."""
    return cpu.socket if cpu.l3 is None else cpu.l3


NO_MACHINE = Machine(())


def mask_of(nodes: Iterable[int]) -> int:
    """The mask of these NUMA nodes; ValueError names an id that fits in none."""
    mask = 0
    for node in nodes:
        if not 0 <= node < MAX_NODES:
            raise ValueError(f"NUMA node {node} is outside 0-{MAX_NODES - 1}, the ids kubelet aligns")
        mask |= 1 << node
    return mask


def nodes_of(mask: int) -> tuple[int, ...]:
    """The NUMA nodes in a mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def subsets(nodes: Iterable[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """All non-empty subsets with their masks: the small ones first, those of one size in order of their ids."""
    ordered = sorted(nodes)
    for size in range(1, len(ordered) + 1):
        for members in itertools.combinations(ordered, size):
            yield members, mask_of(members)
