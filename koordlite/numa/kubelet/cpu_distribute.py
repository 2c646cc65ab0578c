"""CPUs spread evenly over NUMA nodes where one node is not enough: option `distribute-cpus-across-numa`.

Source: kubelet 1.36, `cm/cpumanager/cpu_assignment.go` (KEP 2902).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from koordlite.model.cpuset import CPUSet
from koordlite.numa.kubelet.cpu_take import Taker, take_packed
from koordlite.numa.kubelet.machine import Machine

Left = Mapping[int, int]
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
    left = {node: len(machine.nodes[node] & taker.free) for node in taker.nodes()}
    for size in _sizes(machine, left, count, group):
        best = _best_nodes(left, size, count, group)
        if best is not None:
            return _taken(taker, *best, count=count, group=group, spread_cores=spread_cores)
    return take_packed(machine, available, count, spread_cores=spread_cores)


def _sizes(machine: Machine, left: Left, count: int, group: int) -> range:
    """Numbers of NUMA nodes to try: from the fewest that could hold it, to one for each group or all that have any."""
    groups_each = math.ceil(math.ceil(len(machine.by_id) / group) / len(machine.nodes))
    wanted = math.ceil(count / group)
    return range(math.ceil(wanted / groups_each), min(wanted, len(left)) + 1)


def _best_nodes(left: Left, size: int, count: int, group: int) -> tuple[Sequence[int], Sequence[int]] | None:
    """(nodes, those of them that give the remainder) with the best balance; None when no combination can serve it."""
    best, best_balance = None, math.inf
    for nodes in _combinations(list(left), size):
        if best_balance == 0:
            break
        remainder = _best_remainder(left, nodes, count, group)
        if remainder is not None and remainder[0] < best_balance:
            best_balance, best = remainder[0], (nodes, remainder[1])
    return best


def _best_remainder(left: Left, nodes: Sequence[int], count: int, group: int) -> tuple[float, Sequence[int]] | None:
    """(balance afterwards, nodes that give what cannot be split evenly); None when the nodes cannot serve it."""
    share = count // len(nodes) // group * group
    in_groups = sum(left[node] // group for node in nodes) * group
    if in_groups < count or any(left[node] < share for node in nodes):
        return None
    after = {node: free - share if node in nodes else free for node, free in left.items()}
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


def _balance_after(left: Left, subset: Sequence[int], remainder: int, group: int) -> float | None:
    """The balance after these nodes gave the remainder, a group each in turn.

    None when they have too little. Kubelet asks for CPUs, not groups, and does not return where only groups are short.
    """
    if sum(left[node] // group for node in subset) * group < remainder:
        return None
    after = dict(left)
    while remainder > 0:
        for node in subset:
            if remainder and after[node] >= group:
                after[node] -= group
                remainder -= group
    return _balance(after)


def _balance(left: Left) -> float:
    """Standard deviation of the free CPUs by NUMA node, to three decimals: kubelet rounds the mean as well."""
    mean = _three_decimals(sum(left.values()) / len(left))
    return _three_decimals(math.sqrt(sum((free - mean) ** 2 for free in left.values()) / len(left)))


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

    def extend(chosen: list[int], start: int) -> Iterator[Sequence[int]]:
        length = len(chosen)
        if length == size:
            yield chosen
            return
        shared = length & (length - 1)
        for position in range(start, len(items) - (size - length) + 1):
            if shared:
                del chosen[length:]
            longer = chosen if shared else chosen[:length]
            longer.append(items[position])
            yield from extend(longer, position + 1)

    yield from extend([], 0)
