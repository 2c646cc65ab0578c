"""Machines."""

from __future__ import annotations

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import CPU, NUMANode, Topology

TOPOLOGY = Topology(
    cpus=(CPU(0, 0, 0, 0, 0), CPU(1, 1, 0, 0, 0), CPU(4, 2, 1, 1, 8), CPU(5, 3, 1, 1, None)),
    nodes=(NUMANode(0, CPUSet([0, 1]), 2**30), NUMANode(1, CPUSet([4, 5]), 2**30), NUMANode(2, EMPTY, 2**34)),
)


def test_gaps_are_normal() -> None:
    assert str(TOPOLOGY.cpuset) == "0-1,4-5"
    assert TOPOLOGY.l3_ids == (0, 8)
    assert TOPOLOGY.by_id[4].socket == 1


def test_numa_nodes_of_cpus_ignore_ids_the_machine_lacks() -> None:
    assert TOPOLOGY.numa_of(CPUSet([1, 4, 99])) == {0, 1}
    assert TOPOLOGY.numa_of(EMPTY) == frozenset()
