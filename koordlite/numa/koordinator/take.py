"""Choice of CPUs: Koordinator's bind policies, exclusive policies and NUMA strategies.

FullPCPUs takes whole free cores of one NUMA node, of one socket, then whole sockets; SpreadByPCPUs one thread of each
core of one NUMA node, then of one socket. What neither gives is taken CPU by CPU. Source: Koordinator v1.9
`takeCPUs` (cpu_accumulator.go).
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import CPU
from koordlite.numa.koordinator.values import (
    FULL_PCPUS,
    MOST_ALLOCATED,
    NOT_ENOUGH_CPUS,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    AllocatedCPU,
)
from koordlite.numa.machine import NODE, SOCKET, Level, Machine


class TakePolicy(msgspec.Struct, frozen=True):
    """Policies by which CPUs are chosen; any other word than those named means none."""

    bind: str = ""
    """FullPCPUs or SpreadByPCPUs."""
    exclusive: str = ""
    """PCPULevel or NUMANodeLevel: not beside CPUs of pods that ask for the same, where that can be had."""
    strategy: str = ""
    """MostAllocated: the fullest NUMA node that suffices first; any other word: the emptiest."""
    most_holders: int = 1
    """Maximum number of pods that may hold one CPU."""


NO_POLICY = TakePolicy()


def take_preferred(
    machine: Machine,
    allocated_cpus: Mapping[int, AllocatedCPU],
    policy: TakePolicy,
    *,
    available: CPUSet,
    preferred: CPUSet,
    count: int,
) -> CPUSet:
    """`count` of the available CPUs, from the `preferred` ones as long as there are any.

    ValueError, in Koordinator's words, when there are too few. Source: `takePreferredCPUs`.
    """
    first = preferred & available
    result = take(machine, allocated_cpus, policy, available=first, count=min(count, len(first)))
    if count <= len(result):
        return result
    return result | take(machine, allocated_cpus, policy, available=available - first, count=count - len(result))


def take(
    machine: Machine, allocated_cpus: Mapping[int, AllocatedCPU], policy: TakePolicy, *, available: CPUSet, count: int
) -> CPUSet:
    """`count` of the available CPUs; ValueError, in Koordinator's words, when there are too few."""
    if count < 1:
        return EMPTY
    taker = _Taker(machine, allocated_cpus, policy, available, count)
    if count > len(taker.free):
        raise ValueError(NOT_ENOUGH_CPUS)
    if not taker.fill():
        raise ValueError("failed to allocate cpus")
    return CPUSet(taker.result)


class _Taker:
    """State of an allocation: CPUs that are free, CPUs taken, and the number still needed."""

    def __init__(
        self,
        machine: Machine,
        allocated_cpus: Mapping[int, AllocatedCPU],
        policy: TakePolicy,
        available: CPUSet,
        count: int,
    ) -> None:
        self.machine, self.policy, self.need = machine, policy, count
        self.free = {cpu: machine.by_id[cpu] for cpu in available if cpu in machine.by_id}
        self.holders: dict[int, int] = {}
        if policy.most_holders > 1:
            self.holders = {cpu: allocated.holders for cpu, allocated in allocated_cpus.items() if cpu in self.free}
        self.cores_avoided = {
            allocated.core for allocated in allocated_cpus.values() if allocated.exclusive == PCPU_LEVEL
        }
        self.nodes_avoided = {
            allocated.node for allocated in allocated_cpus.values() if allocated.exclusive == NUMA_NODE_LEVEL
        }
        self.sign = 1 if policy.strategy == MOST_ALLOCATED else -1
        self.result: list[int] = []

    def fill(self) -> bool:
        """Take by one rule after the other until there is enough; False when all of them give too little."""
        whole = self.policy.bind == FULL_PCPUS
        if (whole or self.machine.per_core == 1) and (
            self._in_one_part(NODE, cores=True)
            or self._in_one_part(SOCKET, cores=True)
            or self._cores_of_several_sockets()
        ):
            return True
        if not whole and (self._in_one_part(NODE, cores=False) or self._in_one_part(SOCKET, cores=False)):
            return True
        return any(self._take(self._spread(self._all_free(aware))[: self.need]) for aware in (True, False))

    def _in_one_part(self, level: Level, *, cores: bool) -> bool:
        """All from the first part of the machine that suffices: whole cores, or spread over them."""
        if self.need > (self.machine.per_node if level is NODE else self.machine.per_socket):
            return False
        # `aware`: beside nobody who wants to be alone there, too. Koordinator does not ask that of a socket's cores.
        for aware in (False,) if cores and level is SOCKET else (True, False):
            for cpus in self._free_parts(level, cores=cores, aware=aware):
                if len(cpus) >= self.need:
                    return self._take((cpus if cores else self._spread(cpus))[: self.need])
        return False

    def _cores_of_several_sockets(self) -> bool:
        """The largest free sockets as a whole, then cores of the smallest that is left."""
        larger: list[list[int]] = []
        for cpus in sorted(self._free_parts(SOCKET, cores=True, aware=False), key=len, reverse=True):
            if len(cpus) > self.need:
                larger.append(cpus)
            elif self._take(cpus):
                return True
        threads = self.machine.per_core
        for cpus in sorted(larger, key=len):
            for first in range(0, len(cpus), threads):
                if self.need < threads:
                    return False
                if self._take(cpus[first : first + threads]):
                    return True
        return False

    def _take(self, cpus: Sequence[int]) -> bool:
        """Take these CPUs. True when no more are needed."""
        self.result.extend(cpus)
        self.need -= len(cpus)
        for cpu in cpus:
            place = self.free.pop(cpu)
            if self.policy.exclusive == PCPU_LEVEL:
                self.cores_avoided.add(place.core)
            elif self.policy.exclusive == NUMA_NODE_LEVEL:
                self.nodes_avoided.add(place.node)
        return self.need < 1

    def _eligible(self, *, cores: bool, nodes: bool) -> Iterator[CPU]:
        """Free CPUs, without the cores or NUMA nodes of others that want to be alone there too."""
        cores = cores and self.policy.exclusive == PCPU_LEVEL
        nodes = nodes and self.policy.exclusive == NUMA_NODE_LEVEL
        for cpu in self.free.values():
            if not (cores and cpu.core in self.cores_avoided) and not (nodes and cpu.node in self.nodes_avoided):
                yield cpu

    def _free_parts(self, level: Level, *, cores: bool, aware: bool) -> list[list[int]]:
        """CPUs for each part of the machine, in the order the parts are tried: those of entirely free cores, or all
        that are free, one of each core when `aware`. Parts go by their size, NUMA nodes then by what is free on their
        socket, then by number."""
        eligible = list(self._eligible(cores=aware and not cores, nodes=aware and (cores or level is NODE)))
        parts: dict[int, list[int]] = collections.defaultdict(list)
        for together in self._whole_cores(eligible) if cores else ([cpu] for cpu in self._by_holders(eligible)):
            parts[level(self.free[together[0]])].extend(together)
        sizes = {part: len(cpus) for part, cpus in parts.items()}
        if aware and not cores:
            for part, cpus in parts.items():
                first: dict[int, int] = {}
                for cpu in cpus:
                    first.setdefault(self.free[cpu].core, cpu)
                parts[part] = list(first.values())
                sizes[part] = len(parts[part]) if level is SOCKET else sizes[part]
        on_socket = collections.Counter(cpu.socket for cpu in eligible) if level is NODE else {}

        def rank(part: int) -> tuple[int, int, int]:
            socket = self.free[parts[part][0]].socket
            return self.sign * sizes[part], self.sign * on_socket.get(socket, 0), part

        return [parts[part] for part in sorted(parts, key=rank)]

    def _whole_cores(self, cpus: Iterable[CPU]) -> list[list[int]]:
        """The CPUs of each core that is entirely among `cpus`: those that fewest pods hold first."""
        cores: dict[int, list[int]] = collections.defaultdict(list)
        for cpu in cpus:
            cores[cpu.core].append(cpu.id)
        ordered = sorted(cores, key=lambda core: (self._holder_count(cores[core]), core))
        return [sorted(cores[core]) for core in ordered if len(cores[core]) == self.machine.per_core]

    def _all_free(self, aware: bool) -> list[int]:
        """Free CPUs core by core: beside what was taken first, then by strategy, broken cores before whole ones."""
        cores: dict[int, list[CPU]] = collections.defaultdict(list)
        on_socket: collections.Counter[int] = collections.Counter()
        on_node: collections.Counter[int] = collections.Counter()
        for cpu in self._eligible(cores=aware, nodes=aware):
            cores[cpu.core].append(cpu)
            on_socket[cpu.socket] += 1
            on_node[cpu.node] += 1
        beside = collections.Counter(self.machine.by_id[cpu].socket for cpu in self.result)

        def rank(core: int) -> tuple[int, ...]:
            cpu = cores[core][-1]
            free = self.sign * on_socket[cpu.socket], self.sign * on_node[cpu.node], len(cores[core])
            return -beside[cpu.socket], *free, cpu.socket, self._holder_count([c.id for c in cores[core]]), core

        ordered = sorted(cores, key=rank)
        return [cpu for core in ordered for cpu in self._by_holders(cores[core])]

    def _spread(self, cpus: Sequence[int]) -> list[int]:
        """The first thread of each core, then the second threads, and so on."""
        if len(cpus) <= self.machine.per_core:
            return list(cpus)
        turns: collections.Counter[int] = collections.Counter()
        ordered: list[tuple[int, int]] = []
        for cpu in cpus:
            core = self.machine.by_id[cpu].core
            ordered.append((turns[core], cpu))
            turns[core] += 1
        return [cpu for _, cpu in sorted(ordered, key=lambda pair: pair[0])]

    def _holder_count(self, cpus: Sequence[int]) -> int:
        return sum(self.holders.get(cpu, 0) for cpu in cpus)

    def _by_holders(self, cpus: Iterable[CPU]) -> list[int]:
        return sorted((cpu.id for cpu in cpus), key=lambda cpu: (self.holders.get(cpu, 0), cpu))
