"""Which CPUs to take when only their number is known: whole sockets, NUMA nodes and cores first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU

Level = Callable[[CPU], int]


def take_by_topology(*, cpus: Sequence[CPU], available: CPUSet, count: int) -> CPUSet:
    """`count` of the available CPUs: free sockets, then free NUMA nodes, then free cores, then single CPUs.

    Among equals the part with the fewest free CPUs goes first, then the lowest id, so that what remains is whole.
    A part counts as free when all its CPUs on this machine are free, also where sockets or cores differ in size.

    ValueError when fewer than `count` CPUs are available. Source: Koordinator `takeByTopology`, kubelet's packed
    algorithm with the socket always as the first level.
    """
    picker = _Picker(cpus, available, count)
    if picker.need > len(picker.free):
        raise ValueError("not enough cpus available to satisfy request")
    picker.take_whole(_socket, picker.sockets)
    picker.take_whole(_node, picker.nodes)
    picker.take_whole(_core, picker.cores)
    picker.take_singles()
    return CPUSet(picker.taken)


def _socket(cpu: CPU) -> int:
    return cpu.socket


def _node(cpu: CPU) -> int:
    return cpu.node


def _core(cpu: CPU) -> int:
    return cpu.core


class _Picker:
    """One assignment on its way: what is free, what is taken, how many are still needed."""

    def __init__(self, cpus: Sequence[CPU], available: CPUSet, count: int) -> None:
        self.cpus = cpus
        self.free = {cpu.id: cpu for cpu in cpus if cpu.id in available}
        self.taken: list[int] = []
        self.need = max(count, 0)

    def sockets(self) -> list[int]:
        """Sockets with free CPUs, in the order they are tried."""
        return _fullest_last(self.free.values(), _socket)

    def nodes(self) -> list[int]:
        """NUMA nodes with free CPUs, socket by socket."""
        return self._below(_socket, self.sockets(), _node)

    def cores(self) -> list[int]:
        """Cores with free CPUs, NUMA node by NUMA node."""
        return self._below(_node, self.nodes(), _core)

    def take_whole(self, level: Level, order: Callable[[], list[int]]) -> None:
        """Take every entirely free part of `level` that is not larger than what is still needed."""
        if not self.need:
            return
        parts, free = _members(self.cpus, level), _members(self.free.values(), level)
        for part in order():
            if len(free[part]) == len(parts[part]) <= self.need:
                self._take(free[part])

    def take_singles(self) -> None:
        """Take what is still needed CPU by CPU, core by core."""
        if not self.need:
            return
        free = _members(self.free.values(), _core)
        self._take([cpu for core in self.cores() for cpu in sorted(free[core])][: self.need])

    def _below(self, upper: Level, order: list[int], lower: Level) -> list[int]:
        groups: dict[int, list[CPU]] = defaultdict(list)
        for cpu in self.free.values():
            groups[upper(cpu)].append(cpu)
        return list(dict.fromkeys(part for above in order for part in _fullest_last(groups[above], lower)))

    def _take(self, ids: Sequence[int]) -> None:
        self.taken.extend(ids)
        self.need -= len(ids)
        for cpu in ids:
            del self.free[cpu]


def _members(cpus: Iterable[CPU], level: Level) -> dict[int, list[int]]:
    members: dict[int, list[int]] = defaultdict(list)
    for cpu in cpus:
        members[level(cpu)].append(cpu.id)
    return members


def _fullest_last(cpus: Iterable[CPU], level: Level) -> list[int]:
    members = _members(cpus, level)
    return sorted(members, key=lambda part: (len(members[part]), part))
