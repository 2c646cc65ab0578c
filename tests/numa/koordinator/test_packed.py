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


@pytest.mark.parametrize(
    ("available", "count", "taken"),
    [
        pytest.param("0-15", 0, "", id="nothing asked, nothing taken"),
        pytest.param("0-15", -3, "", id="a negative count takes nothing"),
        pytest.param("0-15", 1, "0", id="one CPU is the first"),
        pytest.param("0-15", 2, "0,8", id="two CPUs are one core"),
        pytest.param("0-15", 3, "0-1,8", id="a core and a thread"),
        pytest.param("0-15", 4, "0-1,8-9", id="two cores of the first NUMA node, which is whole"),
        pytest.param("0-15", 8, "0-3,8-11", id="a whole socket"),
        pytest.param("0-15", 10, "0-4,8-12", id="a whole socket, then a core of the next"),
        pytest.param("1-15", 8, "4-7,12-15", id="the socket that is still whole comes first"),
        pytest.param("1-15", 4, "2-3,10-11", id="the NUMA node that is still whole, in the socket with fewer free"),
        pytest.param("1-2,9", 1, "2", id="singles come from the NUMA node with the fewest free CPUs"),
        pytest.param("0-1,8", 1, "1", id="a half-used core is broken before a free one"),
        pytest.param("0-15", 16, "0-15", id="everything"),
    ],
)
def test_takes_whole_parts_first(available: str, count: int, taken: str) -> None:
    cpus = cpus_of(sockets=2, nodes_per_socket=2, cores_per_node=2)
    assert take_by_topology(cpus=cpus, available=parse(available), count=count) == parse(taken)


def test_too_few_cpus_is_an_error() -> None:
    with pytest.raises(ValueError, match="not enough cpus available to satisfy request"):
        take_by_topology(cpus=cpus_of(), available=parse("0-2"), count=4)


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
