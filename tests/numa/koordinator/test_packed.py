"""Which CPUs are taken when only their number is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordinator_nodes import machine

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU
from koordlite.numa.kubelet.cpu_take import take_by_topology


def cpus_of(sockets: int = 1, nodes_per_socket: int = 1, cores_per_node: int = 4) -> list[CPU]:
    return list(machine(sockets, nodes_per_socket, cores_per_node).cpus)


def parse(text: str) -> CPUSet:
    return CPUSet.parse(text)


def test_ids_the_machine_lacks_are_not_available() -> None:
    with pytest.raises(ValueError, match="not enough"):
        take_by_topology(cpus=cpus_of(), available=parse("0,100-103"), count=2)


def test_a_core_with_an_offline_sibling_counts_as_whole() -> None:
    """CPU 4 is offline: core 0 has CPU 0 alone and is free with it."""
    cpus = [cpu for cpu in cpus_of() if cpu.id != 4]
    assert take_by_topology(cpus=cpus, available=parse("0-3,5-7"), count=3) == parse("0-1,5")


@given(st.data())
def test_takes_exactly_as_many_as_asked_from_the_available(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=24))
    cpus = [CPU(id=i, core=core + 10 * node, socket=socket, node=node) for i, (core, socket, node) in enumerate(rows)]
    available = CPUSet(data.draw(st.sets(st.sampled_from(range(len(rows))))))
    count = data.draw(st.integers(0, len(available)))
    taken = take_by_topology(cpus=cpus, available=available, count=count)
    assert len(taken) == count
    assert taken <= available
