"""Which CPUs best-effort work runs on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import be_limit
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import CPU


def test_spread_without_hyperthreads_is_singles_node_by_node(machine) -> None:
    assert be_limit.spread(3, machine(sockets=2, cores_per_node=2, threads=1)) == (0, 2, 1)


@pytest.mark.parametrize(
    ("count", "lsr", "forbidden", "chosen"),
    [
        pytest.param(4, "", "", "0,2,4,6", id="without pinned pods all CPUs are one pool"),
        pytest.param(4, "0,4", "", "0-2,6", id="LSR CPUs are shared in proportion"),
        pytest.param(3, "0,4", "", "1-2,6", id="the share of LSR CPUs is rounded down"),
        pytest.param(4, "0,4", "2-3,6-7", "0-1,4-5", id="all allowed CPUs when just as many are wanted"),
        pytest.param(4, "0", "1-6", "0,7", id="all allowed CPUs when fewer are left than wanted"),
        pytest.param(2, "0-7", "", "0,4", id="only LSR CPUs"),
        pytest.param(2, "", "0-7", "", id="no CPU left gives the empty set"),
    ],
)
def test_be_cpuset(machine, count: int, lsr: str, forbidden: str, chosen: str) -> None:
    found = be_limit.be_cpuset(
        count=count,
        cpus=machine(sockets=2, cores_per_node=2),
        lsr=CPUSet.parse(lsr),
        forbidden=CPUSet.parse(forbidden),
    )
    assert found == CPUSet.parse(chosen)


ROWS = st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=20)
IDS = st.sets(st.integers(0, 24)).map(CPUSet)


@given(rows=ROWS, count=st.integers(-2, 24), lsr=IDS, forbidden=IDS)
def test_never_a_forbidden_cpu_and_as_many_as_possible(rows, count: int, lsr: CPUSet, forbidden: CPUSet) -> None:
    cpus = [CPU(id=i, core=core, socket=socket, node=node) for i, (core, socket, node) in enumerate(rows)]
    found = be_limit.be_cpuset(count=count, cpus=cpus, lsr=lsr, forbidden=forbidden)
    allowed = CPUSet(cpu.id for cpu in cpus) - forbidden
    assert found & forbidden == EMPTY
    assert len(found) == min(max(count, 0), len(allowed))


@given(rows=ROWS, count=st.integers(0, 20))
def test_spread_picks_each_cpu_once(rows, count: int) -> None:
    cpus = [CPU(id=i, core=core, socket=socket, node=node) for i, (core, socket, node) in enumerate(rows)]
    picked = be_limit.spread(count, cpus)
    assert len(set(picked)) == len(picked) == (count if count <= len(cpus) else 0)
