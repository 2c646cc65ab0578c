"""CPUs that kubelet's static policy takes: whole large parts first, then cores, then single CPUs (packed).

Source: kubelet 1.36, `cm/cpumanager/cpu_assignment.go`. One difference: where cores or sockets differ in size, kubelet
can take a part of average size for a whole one and give away CPUs that are in use; here a part is whole only when all
of it is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU
from koordlite.numa.kubelet.machine import Groups, Machine, uncore


def take_packed(
    machine: Machine, available: CPUSet, count: int, *, spread_cores: bool = False, align_uncore: bool = False
) -> CPUSet:
    """`count` of the available CPUs: whole NUMA nodes and sockets, then whole cores, then single CPUs.

    Among equals the part with the fewest free CPUs goes first, then the lowest id. With `spread_cores` (option
    `distribute-cpus-across-cores`) cores are not taken whole; with `align_uncore` (`prefer-align-cpus-by-uncorecache`)
    uncore caches come before cores. ValueError with kubelet's text when there are too few.
    """
    taker = Taker(machine, available, count)
    if taker.need <= 0:
        return CPUSet()
    taker.refuse_when_short(available)
    taker.take_large_parts()
    if align_uncore:
        taker.take_uncores()
    if not spread_cores:
        taker.take_whole(taker.cores(), machine.cores, machine.per_core)
    taker.take_singles(spread_cores=spread_cores)
    return CPUSet(taker.taken)


class Taker:
    """One allocation on its way: what is free, what is taken, how many CPUs are still needed."""

    def __init__(self, machine: Machine, available: CPUSet, count: int) -> None:
        self.machine = machine
        self.free = available.ids & machine.all.ids
        self.taken: frozenset[int] = frozenset()
        self.need = count

    def refuse_when_short(self, available: CPUSet) -> None:
        """ValueError when fewer CPUs are free than needed."""
        if self.need > len(self.free):
            counts = f"requested={self.need}, available={len(available)}"
            raise ValueError(f"not enough cpus available to satisfy request: {counts}")

    def take(self, cpus: Iterable[int]) -> None:
        """Take these."""
        got = frozenset(cpus)
        self.taken, self.free, self.need = self.taken | got, self.free - got, self.need - len(got)

    def nodes(self) -> list[int]:
        """NUMA nodes with free CPUs, in the order they are tried."""
        if self.machine.numa_first:
            return self._fullest_first(self._parts(self.free, _node), self.machine.nodes)
        return self._below(self.sockets(), self.machine.sockets, _node, self.machine.nodes)

    def sockets(self) -> list[int]:
        """Sockets with free CPUs, in the order they are tried."""
        if self.machine.numa_first:
            return self._below(self.nodes(), self.machine.nodes, _socket, self.machine.sockets)
        return self._fullest_first(self._parts(self.free, _socket), self.machine.sockets)

    def cores(self) -> list[int]:
        """Cores with free CPUs, in the order they are tried: within the smaller of socket and NUMA node."""
        if self.machine.numa_first:
            return self._below(self.sockets(), self.machine.sockets, _core, self.machine.cores)
        return self._below(self.nodes(), self.machine.nodes, _core, self.machine.cores)

    def uncores(self) -> list[int]:
        """Uncore caches with free CPUs, NUMA node by NUMA node."""
        return self._below(self.nodes(), self.machine.nodes, uncore, self.machine.uncores)

    def take_large_parts(self) -> None:
        """Whole NUMA nodes and sockets, the larger of the two first, as long as they are not more than needed."""
        machine = self.machine
        if machine.numa_first:
            self.take_whole(self.nodes(), machine.nodes)
            self.take_whole(self.sockets(), machine.sockets, machine.per_socket)
        else:
            self.take_whole(self.sockets(), machine.sockets, machine.per_socket)
            self.take_whole(self.nodes(), machine.nodes)

    def take_whole(self, order: list[int], groups: Groups, size: int | None = None) -> None:
        """Take every entirely free part, of `size` CPUs where that is asked, that is not larger than what is needed."""
        for part in [part for part in order if groups[part] <= self.free]:
            if size in (None, len(groups[part])) and 0 < len(groups[part]) <= self.need:
                self.take(groups[part])

    def take_uncores(self) -> None:
        """Whole uncore caches, then a part of the first one that can serve what is left."""
        machine = self.machine
        for part in self.uncores():
            if self.need >= machine.per_uncore:
                self.take_whole(self.uncores(), machine.uncores)
            if self.need > 0:
                self._take_part_of_uncore(part)

    def take_singles(self, *, spread_cores: bool) -> None:
        """Take what is still needed CPU by CPU: core by core, or with `spread_cores` socket by socket."""
        if self.need <= 0:
            return
        order, groups = (self.sockets(), self.machine.sockets) if spread_cores else (self.cores(), self.machine.cores)
        self.take([cpu for part in order for cpu in sorted(groups[part] & self.free)][: self.need])

    def _take_part_of_uncore(self, part: int) -> None:
        """Take as many of its cores as are needed, the lowest first, if that is just the number of CPUs needed."""
        machine = self.machine
        wanted = -(-self.need // machine.per_core)
        cores = sorted({machine.by_id[cpu].core for cpu in machine.uncores[part] & self.free})[:wanted]
        cpus = sorted(cpu for core in cores for cpu in machine.cores[core] & self.free)
        if self.need % 2 and machine.per_core > 1 and len(cpus) > self.need:
            cpus.pop()
        if len(cpus) == self.need:
            self.take(cpus)

    def _parts(self, cpus: Iterable[int], level: Callable[[CPU], int]) -> set[int]:
        return {level(self.machine.by_id[cpu]) for cpu in cpus}

    def _fullest_first(self, parts: Iterable[int], groups: Groups) -> list[int]:
        return sorted(parts, key=lambda part: (len(groups[part] & self.free), part))

    def _below(self, order: list[int], upper: Groups, level: Callable[[CPU], int], groups: Groups) -> list[int]:
        """Parts of `level` with free CPUs, those of the first upper part first."""
        nested = (self._fullest_first(self._parts(upper[above] & self.free, level), groups) for above in order)
        return list(dict.fromkeys(part for parts in nested for part in parts))


def _node(cpu: CPU) -> int:
    return cpu.node


def _socket(cpu: CPU) -> int:
    return cpu.socket


def _core(cpu: CPU) -> int:
    return cpu.core
