"""Which CPUs the static policy takes: what holds on any machine, and where equal machines are taken differently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU
from koordlite.numa.kubelet.cpu_manager import CPUOptions
from koordlite.numa.kubelet.cpu_take import take_distributed, take_packed
from koordlite.numa.machine import Machine

HYBRID = Machine((CPU(0, 0, 0, 0), CPU(1, 0, 0, 0), CPU(2, 2, 0, 0), CPU(3, 3, 0, 0), CPU(4, 4, 0, 0)))
"""One core with two CPUs, three with one: the average is one."""


def machine(*, sockets: int, nodes: int, cores: int, threads: int) -> Machine:
    """`cores` per NUMA node, numbered as Linux does: first threads first."""
    total = nodes * cores
    return Machine(
        tuple(
            CPU(core + thread * total, core, core * sockets // total, core // cores, core // 2)
            for thread in range(threads)
            for core in range(total)
        )
    )


@st.composite
def occupied(draw: st.DrawFn) -> tuple[Machine, CPUSet, int]:
    """A machine, what is free on it, and how many CPUs are wanted."""
    sockets, nodes = draw(st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 4), (2, 4), (4, 2), (4, 4), (2, 8)]))
    found = machine(sockets=sockets, nodes=nodes, cores=draw(st.integers(1, 4)), threads=draw(st.integers(1, 2)))
    free = CPUSet(draw(st.sets(st.sampled_from(sorted(found.all.ids)))))
    return found, free, draw(st.integers(0, len(found.all) + 1))


@given(case=occupied(), spread=st.booleans(), uncore=st.booleans())
def test_packed_takes_just_what_is_asked_of_what_is_free(
    case: tuple[Machine, CPUSet, int], spread: bool, uncore: bool
) -> None:
    found, free, count = case
    if count > len(free):
        with pytest.raises(ValueError, match=f"requested={count}, available={len(free)}"):
            take_packed(found, free, count, spread_cores=spread, align_uncore=uncore)
        return
    cpus = take_packed(found, free, count, spread_cores=spread, align_uncore=uncore)
    assert len(cpus) == count
    assert cpus <= free


@given(case=occupied(), group=st.integers(1, 2))
def test_distributed_takes_just_what_is_asked_or_says_what_is_missing(
    case: tuple[Machine, CPUSet, int], group: int
) -> None:
    found, free, count = case
    try:
        cpus = take_distributed(found, free, count, group=group)
    except ValueError as error:
        # Kubelet's own accounting error needs four NUMA nodes at least.
        assert count > len(free) or ("accounting error" in str(error) and len(found.nodes) >= 4)
        return
    assert len(cpus) == count
    assert cpus <= free


@given(case=occupied())
def test_distributed_uses_no_more_numa_nodes_than_one_where_one_is_enough(case: tuple[Machine, CPUSet, int]) -> None:
    found, free, count = case
    if not any(len(cpus & free.ids) >= count for cpus in found.nodes.values()):
        return
    cpus = take_distributed(found, free, count)
    assert len({found.by_id[cpu].node for cpu in cpus}) <= 1


def test_a_core_of_which_one_cpu_is_in_use_is_never_taken_whole() -> None:
    assert take_packed(HYBRID, CPUSet.parse("1-4"), 2) == CPUSet.parse("2-3")


def test_the_remembered_nodes_are_overwritten_as_kubelets_are() -> None:
    """Four of five empty NUMA nodes: 0, 1, 2, 3 is found first and becomes 0, 1, 2, 4, the last with that beginning."""
    found = machine(sockets=5, nodes=5, cores=4, threads=1)
    assert take_distributed(found, found.all, 14) == CPUSet.parse("0-10,16-18")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"full-cores": "true"}, "unknown CPU Manager Policy option: 'full-cores'"),
        ({"full-pcpus-only": "yes"}, "'yes' is neither true nor false"),
        (
            {"full-pcpus-only": "true", "distribute-cpus-across-cores": "1"},
            "full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
        ),
    ],
)
def test_options_that_kubelet_does_not_start_with_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CPUOptions.parse(options)


def test_options_that_are_off_exclude_nothing() -> None:
    options = {"full-pcpus-only": "true", "distribute-cpus-across-cores": "false"}
    assert CPUOptions.parse(options) == CPUOptions(full_cores=True)


def test_alignment_by_socket_needs_numa_nodes_inside_sockets() -> None:
    with pytest.raises(ValueError, match="more sockets than NUMA nodes"):
        CPUOptions(by_socket=True).check(machine(sockets=4, nodes=2, cores=2, threads=1), "best-effort")
    with pytest.raises(ValueError, match="single-numa-node"):
        CPUOptions(by_socket=True).check(machine(sockets=1, nodes=2, cores=2, threads=1), "single-numa-node")
