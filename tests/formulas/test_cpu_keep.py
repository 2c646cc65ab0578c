"""Of all sets that are spread alike, the one that keeps most of what was held."""

from __future__ import annotations

import collections
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import be_limit
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import CPU


@pytest.mark.parametrize(
    ("count", "held", "chosen"),
    [
        pytest.param(4, "", "0,2,4,6", id="nothing held: as they are picked"),
        pytest.param(4, "1,3,5,7", "1,3,5,7", id="other whole cores, as evenly spread, stay"),
        pytest.param(2, "3,7", "3,7", id="a pair on the other NUMA node stays there"),
        pytest.param(2, "3,4,7", "3,7", id="a whole pair is kept rather than a split one"),
        pytest.param(2, "1-2", "1,5", id="a pair that is split is made whole around one of them"),
        pytest.param(3, "1,5", "1-2,5", id="growth adds beside what is held"),
        pytest.param(3, "0-7", "0,2,4", id="of everything, what is picked first"),
        pytest.param(4, "0-1,4-5", "0,2,4,6", id="one crowded NUMA node gives up a core"),
        pytest.param(5, "1,3,5,7", "0-1,3,5,7", id="the single CPU goes where it would have gone"),
    ],
)
def test_two_nodes_of_two_cores(machine, count: int, held: str, chosen: str) -> None:
    cpus = machine(sockets=2, cores_per_node=2)
    found = be_limit.be_cpuset(count=count, cpus=cpus, lsr=EMPTY, forbidden=EMPTY, current=CPUSet.parse(held))
    assert found == CPUSet.parse(chosen)


def test_the_share_of_pinned_cpus_is_kept_too(machine) -> None:
    cpus = machine(sockets=2, cores_per_node=2)
    held, lsr = CPUSet.parse("2,5,6"), CPUSet.parse("1,5")
    assert be_limit.be_cpuset(count=4, cpus=cpus, lsr=lsr, forbidden=EMPTY, current=held) == CPUSet.parse("0,2,5-6")


def shapes(cpus: list[CPU], chosen: CPUSet) -> collections.Counter[tuple[object, ...]]:
    """For each place: how its cores are made, and how many whole pairs and single CPUs of it are chosen."""
    places: dict[tuple[int, int], dict[int, list[int]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for cpu in cpus:
        places[cpu.socket, cpu.node][cpu.core].append(cpu.id)
    return collections.Counter(
        (
            tuple(sorted(map(len, cores.values()))),
            sum(len(chosen & CPUSet(ids)) // 2 for ids in cores.values()),
            sum(len(chosen & CPUSet(ids)) % 2 for ids in cores.values()),
        )
        for cores in places.values()
    )


@st.composite
def pools(draw: st.DrawFn) -> list[CPU]:
    """A small machine with some CPUs taken out: one socket a NUMA node, one to three threads a core."""
    sockets, cores, threads = draw(st.sampled_from([(1, 4, 2), (2, 2, 2), (2, 3, 1), (3, 1, 2), (2, 1, 4), (2, 2, 1)]))
    rows = itertools.product(range(sockets), range(cores), range(threads))
    every = [CPU(id=i, core=s * cores + c, socket=s, node=s) for i, (s, c, _) in enumerate(rows)]
    gone = draw(st.sets(st.integers(0, len(every) - 1), max_size=3))
    return [cpu for cpu in every if cpu.id not in gone]


@given(cpus=pools(), count=st.integers(0, 8), held=st.sets(st.integers(0, 8)).map(CPUSet))
def test_nobody_could_keep_more(cpus: list[CPU], count: int, held: CPUSet) -> None:
    """Every set of that size is tried."""
    count = min(count, len(cpus))
    picked = CPUSet(be_limit.spread(count, cpus))
    chosen = be_limit.be_cpuset(count=count, cpus=cpus, lsr=EMPTY, forbidden=EMPTY, current=held)
    assert shapes(cpus, chosen) == shapes(cpus, picked), "it is spread as the rule asks"
    every = (CPUSet(ids) for ids in itertools.combinations([cpu.id for cpu in cpus], count))
    allowed = [ids for ids in every if shapes(cpus, ids) == shapes(cpus, picked)]
    assert len(chosen & held) == max(len(ids & held) for ids in allowed)


@given(cpus=pools(), count=st.integers(0, 8), held=st.sets(st.integers(0, 8)).map(CPUSet))
def test_what_was_chosen_stays_chosen(cpus: list[CPU], count: int, held: CPUSet) -> None:
    first = be_limit.be_cpuset(count=count, cpus=cpus, lsr=EMPTY, forbidden=EMPTY, current=held)
    assert be_limit.be_cpuset(count=count, cpus=cpus, lsr=EMPTY, forbidden=EMPTY, current=first) == first


def test_a_large_machine_costs_no_more_than_a_tick() -> None:
    """256 CPUs on 8 NUMA nodes, all of them held, half of them wanted: the tables stay small."""
    cpus = [CPU(id=i, core=i % 128, socket=i % 128 // 64, node=i % 128 // 16) for i in range(256)]
    held = CPUSet(range(256))
    found = be_limit.be_cpuset(count=129, cpus=cpus, lsr=EMPTY, forbidden=EMPTY, current=held)
    assert len(found) == 129
