"""CPUs that kubelet's static policy takes. Packed: whole large parts first, then cores, then single CPUs; or spread
evenly over NUMA nodes where one is not enough, option `distribute-cpus-across-numa` (KEP 2902).

Source: kubelet 1.36, `cm/cpumanager/cpu_assignment.go`. One difference: where cores or sockets differ in size, kubelet
can take a part of average size for a whole one and give away CPUs that are in use; here a part is whole only when all
of it is free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import CPU
from koordlite.numa.machine import CORE, NODE, SOCKET, Groups, Level, Machine, uncore


def take_packed(
    machine: Machine, available: CPUSet, count: int, *, spread_cores: bool = False, align_uncore: bool = False
) -> CPUSet:
    """`count` of the available CPUs: whole NUMA nodes and sockets, then whole cores, then single CPUs.

    Among equals the part with the fewest free CPUs goes first, then the lowest id. With `spread_cores` (option
    `distribute-cpus-across-cores`) cores are not taken whole; with `align_uncore` (`prefer-align-cpus-by-uncorecache`)
    uncore caches come before cores. ValueError with kubelet's text when there are too few.
    """
    taker = Taker(machine, available, count)
    if count <= 0:
        return EMPTY
    taker.refuse_when_short(available)
    for level in taker.levels[:2]:
        taker.take_whole(level, machine.per_socket if level is SOCKET else None)
    if align_uncore:
        taker.take_uncores()
    if not spread_cores:
        taker.take_whole(CORE, machine.per_core)
    taker.take_singles(SOCKET if spread_cores else CORE)
    return CPUSet(taker.taken)


def take_by_topology(*, cpus: Sequence[CPU], available: CPUSet, count: int) -> CPUSet:
    """`count` of the available CPUs: free sockets, then free NUMA nodes, then free cores, then single CPUs.

    Among equals the part with the fewest free CPUs goes first, then the lowest id, so that what remains is whole.
    A part counts as free when all its CPUs on this machine are free, also where sockets or cores differ in size.

    ValueError when fewer than `count` CPUs are available. Source: Koordinator `takeByTopology`, kubelet's packed
    algorithm with the socket always as the first level.
    """
    taker = Taker(Machine(tuple(cpus)), available, count, numa_first=False)
    if count < 1:
        return EMPTY
    if count > len(taker.free):
        raise ValueError("not enough cpus available to satisfy request")
    for level in taker.levels:
        taker.take_whole(level)
    taker.take_singles(CORE)
    return CPUSet(taker.taken)


class Taker:
    """State of an allocation: CPUs that are free, CPUs taken, and the number still needed."""

    def __init__(self, machine: Machine, available: CPUSet, count: int, *, numa_first: bool | None = None) -> None:
        """`numa_first`: whole NUMA nodes are taken before whole sockets; None: as the machine is built."""
        self.machine = machine
        first = machine.numa_first if numa_first is None else numa_first
        self.levels: tuple[Level, ...] = (NODE, SOCKET, CORE) if first else (SOCKET, NODE, CORE)
        """Parts of the machine from the largest to the smallest."""
        self.above: dict[Level, Level] = {self.levels[1]: self.levels[0], CORE: self.levels[1], uncore: NODE}
        self.groups: dict[Level, Groups] = {
            NODE: machine.nodes,
            SOCKET: machine.sockets,
            CORE: machine.cores,
            uncore: machine.uncores,
        }
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

    def order(self, level: Level) -> list[int]:
        """Parts of `level` with free CPUs, in the order they are tried: by the order of the larger parts they are in,
        then the fullest, then the lowest id."""
        above = self.above.get(level)
        larger = [self.groups[above][part] & self.free for part in self.order(above)] if above else [self.free]
        tried: dict[int, None] = {}
        for cpus in larger:
            parts = {level(self.machine.by_id[cpu]) for cpu in cpus}
            tried |= dict.fromkeys(sorted(parts, key=lambda part: (len(self.groups[level][part] & self.free), part)))
        return list(tried)

    def take_whole(self, level: Level, size: int | None = None) -> None:
        """Take every entirely free part, of `size` CPUs where that is asked, that is not larger than what is needed."""
        parts = [self.groups[level][part] for part in self.order(level)]
        for cpus in [cpus for cpus in parts if cpus <= self.free]:
            if size in (None, len(cpus)) and 0 < len(cpus) <= self.need:
                self.take(cpus)

    def take_uncores(self) -> None:
        """Whole uncore caches, then a part of the first one that can serve what is left."""
        for part in self.order(uncore):
            if self.need >= self.machine.per_uncore:
                self.take_whole(uncore)
            if self.need > 0:
                self._take_part_of_uncore(part)

    def take_singles(self, level: Level) -> None:
        """Take what is still needed CPU by CPU, part by part."""
        if self.need > 0:
            cpus = [cpu for part in self.order(level) for cpu in sorted(self.groups[level][part] & self.free)]
            self.take(cpus[: self.need])

    def _take_part_of_uncore(self, part: int) -> None:
        """Take as many of its cores as are needed, the lowest first, if that is just the number of CPUs needed."""
        machine = self.machine
        core_count = -(-self.need // machine.per_core)
        cores = sorted({machine.by_id[cpu].core for cpu in machine.uncores[part] & self.free})[:core_count]
        cpus = sorted(cpu for core in cores for cpu in machine.cores[core] & self.free)
        if self.need % 2 and machine.per_core > 1 and len(cpus) > self.need:
            cpus.pop()
        if len(cpus) == self.need:
            self.take(cpus)


FreeCPUs = Mapping[int, int]
"""NUMA node → CPUs still free on it."""


def take_distributed(
    machine: Machine, available: CPUSet, count: int, *, group: int = 1, spread_cores: bool = False
) -> CPUSet:
    """`count` of the available CPUs, as many from each of the fewest NUMA nodes that can serve them.

    CPUs go in groups of `group`. Of equally many nodes those that leave the machine most even. What cannot be spread
    is packed. ValueError with kubelet's text when there are too few.
    """
    taker = Taker(machine, available, count)
    if count % group:
        return take_packed(machine, available, count, spread_cores=spread_cores)
    if count <= 0:
        return CPUSet()
    taker.refuse_when_short(available)
    free_cpus = {node: len(machine.nodes[node] & taker.free) for node in taker.order(NODE)}
    for size in _sizes(machine, free_cpus, count, group):
        best = _best_nodes(free_cpus, size, count, group)
        if best is not None:
            return _taken(taker, *best, count=count, group=group, spread_cores=spread_cores)
    return take_packed(machine, available, count, spread_cores=spread_cores)


def _sizes(machine: Machine, free_cpus: FreeCPUs, count: int, group: int) -> range:
    """Numbers of NUMA nodes to try: from the fewest that could hold it, to one for each group or all that have any."""
    groups_each = math.ceil(math.ceil(len(machine.by_id) / group) / len(machine.nodes))
    group_count = math.ceil(count / group)
    return range(math.ceil(group_count / groups_each), min(group_count, len(free_cpus)) + 1)


def _best_nodes(free_cpus: FreeCPUs, size: int, count: int, group: int) -> tuple[Sequence[int], Sequence[int]] | None:
    """(nodes, those of them that give the remainder) with the best balance; None when no combination can serve it."""
    best, best_balance = None, math.inf
    for nodes in _combinations(list(free_cpus), size):
        if best_balance == 0:
            break
        remainder = _best_remainder(free_cpus, nodes, count, group)
        if remainder is not None and remainder[0] < best_balance:
            best_balance, best = remainder[0], (nodes, remainder[1])
    return best


def _best_remainder(
    free_cpus: FreeCPUs, nodes: Sequence[int], count: int, group: int
) -> tuple[float, Sequence[int]] | None:
    """(balance afterwards, nodes that give what cannot be split evenly); None when the nodes cannot serve it."""
    share = count // len(nodes) // group * group
    in_groups = sum(free_cpus[node] // group for node in nodes) * group
    if in_groups < count or any(free_cpus[node] < share for node in nodes):
        return None
    after = {node: free - share if node in nodes else free for node, free in free_cpus.items()}
    remainder = count - share * len(nodes)
    if not remainder:
        return _balance(after), ()
    givers = [node for node in nodes if after[node] >= group]
    best: tuple[float, Sequence[int]] | None = None
    for size in range(len(givers), 0, -1):
        for subset in _combinations(givers, size):
            balance = _balance_after(after, subset, remainder, group)
            if balance is not None and (best is None or balance < best[0]):
                best = balance, subset
    return best


def _balance_after(free_cpus: FreeCPUs, subset: Sequence[int], remainder: int, group: int) -> float | None:
    """The balance after these nodes gave the remainder, a group each in turn.

    None when they have too little. Kubelet asks for CPUs, not groups, and does not return where only groups are short.
    """
    if sum(free_cpus[node] // group for node in subset) * group < remainder:
        return None
    after = dict(free_cpus)
    while remainder > 0:
        for node in subset:
            if remainder and after[node] >= group:
                after[node] -= group
                remainder -= group
    return _balance(after)


def _balance(free_cpus: FreeCPUs) -> float:
    """Standard deviation of the free CPUs by NUMA node, to three decimals: kubelet rounds the mean as well."""
    mean = _three_decimals(sum(free_cpus.values()) / len(free_cpus))
    return _three_decimals(math.sqrt(sum((free - mean) ** 2 for free in free_cpus.values()) / len(free_cpus)))


def _three_decimals(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000


def _taken(
    taker: Taker, nodes: Sequence[int], givers: Sequence[int], *, count: int, group: int, spread_cores: bool
) -> CPUSet:
    """An even share of each node, then the remainder group by group. ValueError when that does not add up."""
    machine = taker.machine
    share = count // len(nodes) // group * group

    def take(node: int, size: int) -> bool:
        here = CPUSet(machine.nodes[node] & taker.free)
        if len(here) < size:
            return False
        taker.take(take_packed(machine, here, size, spread_cores=spread_cores))
        return True

    for node in nodes:
        take(node, share)
    remainder, stuck = count - share * len(nodes), False
    while remainder > 0 and not stuck:
        stuck = True
        for node in givers:
            if remainder > 0 and take(node, group):
                remainder, stuck = remainder - group, False
    if taker.need:
        raise ValueError(f"accounting error, not enough CPUs allocated, remaining: {taker.need}")
    return CPUSet(taker.taken)


def _combinations(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """All combinations in order of their positions, in lists that a later combination may overwrite.

    Kubelet appends to slices and remembers the best one. Where a slice has spare capacity, which is at lengths that
    are no power of two, the next combination with the same beginning writes into the same memory, so that from four
    NUMA nodes on the remembered combination can be the last such one instead of the best.
    """

    def extend(prefix: list[int], start: int) -> Iterator[Sequence[int]]:
        length = len(prefix)
        if length == size:
            yield prefix
            return
        shared = length & (length - 1)
        for position in range(start, len(items) - (size - length) + 1):
            if shared:
                del prefix[length:]
            longer = prefix if shared else prefix[:length]
            longer.append(items[position])
            yield from extend(longer, position + 1)

    yield from extend([], 0)
