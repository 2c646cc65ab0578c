"""CPUs to take when only their number is known: whole sockets, NUMA nodes and cores first."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import CPU
from koordlite.numa.koordinator.values import NOT_ENOUGH_CPUS
from koordlite.numa.kubelet.cpu_take import Taker
from koordlite.numa.kubelet.machine import Machine


def take_by_topology(*, cpus: Sequence[CPU], available: CPUSet, count: int) -> CPUSet:
    """`count` of the available CPUs: free sockets, then free NUMA nodes, then free cores, then single CPUs.

    Among equals the part with the fewest free CPUs goes first, then the lowest id, so that what remains is whole.
    A part counts as free when all its CPUs on this machine are free, also where sockets or cores differ in size.

    ValueError when fewer than `count` CPUs are available. Source: Koordinator `takeByTopology`, kubelet's packed
    algorithm with the socket always as the first level.
    """
    machine = _SocketsFirst(tuple(cpus))
    taker = Taker(machine, available, count)
    if count < 1:
        return EMPTY
    if taker.need > len(taker.free):
        raise ValueError(NOT_ENOUGH_CPUS)
    taker.take_whole(taker.sockets(), machine.sockets)
    taker.take_whole(taker.nodes(), machine.nodes)
    taker.take_whole(taker.cores(), machine.cores)
    taker.take_singles(spread_cores=False)
    return CPUSet(taker.taken)


class _SocketsFirst(Machine):
    @functools.cached_property
    def numa_first(self) -> bool:
        return False
