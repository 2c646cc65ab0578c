"""Choice of CPUs: Koordinator's bind policies, exclusive policies and NUMA strategies.

FullPCPUs takes whole free cores of one NUMA node, of one socket, then whole sockets; SpreadByPCPUs one thread of each
core of one NUMA node, then of one socket. What neither gives is taken CPU by CPU. Source: Koordinator v1.9
`takeCPUs` (cpu_accumulator.go).
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence

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
    """So many pods may hold one CPU."""


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
    for step in taker.steps():
        step()
        if taker.need < 1:
            return CPUSet(taker.result)
    raise ValueError("failed to allocate cpus")


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

    def steps(self) -> Iterator[Callable[[], None]]:
        """Attempts, in this order."""
        full = self.policy.bind == FULL_PCPUS
        if full or self.machine.per_core == 1:
            yield lambda: self._in_one_part(NODE, cores=True)
            yield lambda: self._in_one_part(SOCKET, cores=True)
            yield self._cores_of_several_sockets
        if not full:
            yield lambda: self._in_one_part(NODE, cores=False)
            yield lambda: self._in_one_part(SOCKET, cores=False)
        yield self._singles

    def _in_one_part(self, level: Level, *, cores: bool) -> None:
        """All from the first part of the machine that suffices: whole cores, or spread over them."""
        if self.need > (self.machine.per_node if level is NODE else self.machine.per_socket):
            return
        lists = self._free_cores if cores else self._free_cpus
        aware = (False,) if cores and level is SOCKET else (True, False)
        fitting = (cpus for each in aware for cpus in lists(level, each) if len(cpus) >= self.need)
        first = next(fitting, [])
        self._take((first if cores else self._spread(first))[: self.need])

    def _cores_of_several_sockets(self) -> None:
        """The largest free sockets as a whole, then cores of the smallest that is left."""
        larger: list[list[int]] = []
        for cpus in sorted(self._free_cores(SOCKET, False), key=len, reverse=True):
            if self.need < 1:
                return
            if len(cpus) > self.need:
                larger.append(cpus)
            else:
                self._take(cpus)
        threads = self.machine.per_core
        for cpus in sorted(larger, key=len):
            for first in range(0, len(cpus), threads):
                if self.need < threads:
                    return
                self._take(cpus[first : first + threads])

    def _singles(self) -> None:
        for aware in (True, False):
            self._take(self._spread(self._all_free(aware))[: self.need])
            if self.need < 1:
                return

    def _take(self, cpus: Sequence[int]) -> None:
        self.result.extend(cpus)
        self.need -= len(cpus)
        for cpu in cpus:
            place = self.free.pop(cpu)
            if self.policy.exclusive == PCPU_LEVEL:
                self.cores_avoided.add(place.core)
            elif self.policy.exclusive == NUMA_NODE_LEVEL:
                self.nodes_avoided.add(place.node)

    def _eligible(self, *, cores: bool, nodes: bool) -> Iterator[CPU]:
        """Free CPUs, without the cores or NUMA nodes of others that want to be alone there too."""
        cores = cores and self.policy.exclusive == PCPU_LEVEL
        nodes = nodes and self.policy.exclusive == NUMA_NODE_LEVEL
        for cpu in self.free.values():
            if not (cores and cpu.core in self.cores_avoided) and not (nodes and cpu.node in self.nodes_avoided):
                yield cpu

    def _free_cores(self, level: Level, aware: bool) -> Iterator[list[int]]:
        """CPUs of entirely free cores for each part of the machine, in the order the parts are tried."""
        cores: dict[int, list[int]] = collections.defaultdict(list)
        on_socket: collections.Counter[int] = collections.Counter()
        for cpu in self._eligible(cores=False, nodes=aware):
            cores[cpu.core].append(cpu.id)
            on_socket[cpu.socket] += 1
        parts: dict[int, list[int]] = collections.defaultdict(list)
        for core in sorted(cores, key=lambda core: (self._holder_count(cores[core]), core)):
            if len(cores[core]) == self.machine.per_core:
                parts[level(self.free[min(cores[core])])].extend(sorted(cores[core]))
        sizes = {part: len(cpus) for part, cpus in parts.items()}
        yield from (parts[part] for part in self._by_strategy(parts, sizes, on_socket if level is NODE else {}))

    def _free_cpus(self, level: Level, aware: bool) -> Iterator[list[int]]:
        """Free CPUs for each part of the machine, one of each core when `aware`, in the order the parts are tried."""
        parts: dict[int, list[int]] = collections.defaultdict(list)
        on_socket: collections.Counter[int] = collections.Counter()
        for cpu in self._eligible(cores=aware, nodes=aware and level is NODE):
            parts[level(cpu)].append(cpu.id)
            on_socket[cpu.socket] += 1
        sizes = {part: len(cpus) for part, cpus in parts.items()}
        lists = {part: sorted(cpus, key=self._by_holders) for part, cpus in parts.items()}
        if aware:
            lists = {part: self._one_of_each_core(cpus) for part, cpus in lists.items()}
        if level is SOCKET:
            sizes = {part: len(cpus) for part, cpus in lists.items()}
        yield from (lists[part] for part in self._by_strategy(lists, sizes, on_socket if level is NODE else {}))

    def _one_of_each_core(self, cpus: Sequence[int]) -> list[int]:
        first: dict[int, int] = {}
        for cpu in cpus:
            first.setdefault(self.free[cpu].core, cpu)
        return list(first.values())

    def _by_strategy(
        self, parts: Mapping[int, list[int]], sizes: Mapping[int, int], on_socket: Mapping[int, int]
    ) -> list[int]:
        """Parts by their size, for NUMA nodes then by what is free on their socket, then by number."""

        def rank(part: int) -> tuple[int, int, int]:
            socket = self.free[parts[part][0]].socket
            return self.sign * sizes[part], self.sign * on_socket.get(socket, 0), part

        return sorted(parts, key=rank)

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
        return [cpu for core in ordered for cpu in sorted((c.id for c in cores[core]), key=self._by_holders)]

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

    def _by_holders(self, cpu: int) -> tuple[int, int]:
        return self.holders.get(cpu, 0), cpu
