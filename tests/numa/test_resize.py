"""CPUs of a pod whose request was changed in place: it keeps what it has, and grows beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from koordinator_nodes import machine

from koordlite.model.cpuset import CPUSet
from koordlite.numa.machine import NO_MACHINE
from koordlite.numa.resize import resized

TWO = machine(sockets=2)
"""Two NUMA nodes of four cores: CPUs 0 to 3 and their siblings 8 to 11, 4 to 7 and 12 to 15."""


@pytest.mark.parametrize(
    ("held", "count", "free", "cpus"),
    [
        pytest.param("0-1,8-9", 2, "", "0,8", id="a whole core stays"),
        pytest.param("0-2,8", 2, "", "0,8", id="what is left of cores goes first"),
        pytest.param("0-1,8-9,4,12", 4, "", "0-1,8-9", id="the NUMA node with most of them stays"),
        pytest.param("0-1,8-9", 4, "2-3,10-11", "0-1,8-9", id="as many as before: nothing changes"),
        pytest.param("0-1", 0, "", "", id="none"),
        pytest.param("0,8", 4, "1-7,9-15", "0-1,8-9", id="it grows by a whole core of its NUMA node"),
        pytest.param("0,8", 3, "1,9,3", "0,3,8", id="a broken core, where a whole one is not needed"),
        pytest.param("0-1", 3, "2,8,10", "0-1,8", id="the other thread of its own core first"),
        pytest.param("0,4", 4, "1,5,8,12", "0,4,8,12", id="a pod on two NUMA nodes grows on both"),
    ],
)
def test_the_cpus_after_a_resize(held: str, count: int, free: str, cpus: str) -> None:
    assert str(resized(CPUSet.parse(held), count, TWO, CPUSet.parse(free))) == cpus


def test_a_pod_that_cannot_grow_on_its_numa_node_is_told_how_much_lacks() -> None:
    with pytest.raises(ValueError, match=r"its NUMA nodes \(0\) have 1 free CPUs, and it needs 2 more there"):
        resized(CPUSet.parse("0,8"), 4, TWO, CPUSet.parse("1,4-7"))


def test_without_a_machine_the_lowest_stay() -> None:
    assert str(resized(CPUSet.parse("7,3,5"), 2, NO_MACHINE)) == "3,5"


SETS = some.sets(some.integers(0, 15), min_size=1).map(CPUSet)


@given(SETS, SETS, some.integers(0, 16), some.integers(0, 16))
def test_a_part_when_it_shrinks_all_and_more_of_the_same_numa_nodes_when_it_grows(
    held: CPUSet, free: CPUSet, count: int, later: int
) -> None:
    nodes = {TWO.by_id[cpu].node for cpu in held}
    try:
        found = resized(held, count, TWO, free)
    except ValueError:
        assert len((free - held) & CPUSet(c.id for c in TWO.cpus if c.node in nodes)) < count - len(held)
        return
    assert len(found) == count
    assert (found <= held) if count <= len(held) else (held <= found <= held | free)
    assert {TWO.by_id[cpu].node for cpu in found} <= nodes
    if later <= count <= len(held):
        assert resized(held, later, TWO) <= found, "a second shrink takes from the rest of the first"
        assert resized(found, later, TWO) <= found
