"""The reservation annotation on a machine."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import reservation
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.node import Reservation, parse_reservation
from koordlite.model.quantity import Quantity
from koordlite.model.topology import CPU


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in texts.items()}


def listed(text: str, **texts: str) -> Reservation:
    return Reservation(amounts(**texts), CPUSet.parse(text))


def counted(cpu: str, policy: str = "", **texts: str) -> Reservation:
    return Reservation(amounts(cpu=cpu, **texts), None, policy)


@pytest.mark.parametrize(
    ("written", "pinned", "held", "fallback"),
    [
        pytest.param(None, "", "none:", "", id="no annotation reserves nothing"),
        pytest.param(Reservation(amounts(memory="4Gi")), "", "none:", "", id="memory alone reserves no CPU"),
        pytest.param(listed("0-1", cpu="6"), "", "list:0-1", "", id="the list wins over the quantity"),
        pytest.param(listed("0,7-9"), "", "list:0,7", "no CPU 8-9 of", id="ids the machine lacks are dropped"),
        pytest.param(listed("90-91"), "", "list:", "no CPU is reserved", id="no id exists, none is reserved"),
        pytest.param(listed("3-1"), "", "list:", "names no CPU", id="an empty range reserves none and says so"),
        pytest.param(listed("0-999"), "", "list:0-6", "CPUs 0-6 are", id="an overshooting list leaves one CPU"),
        pytest.param(listed("0-7"), "", "list:0-7", "", id="exactly the whole machine is what was asked"),
        pytest.param(listed("0-1"), "0-3", "list:0-1", "", id="a list does not mind pinned CPUs"),
        pytest.param(counted("2"), "", "quantity:0,4", "", id="a quantity takes whole cores"),
        pytest.param(counted("2500m"), "", "quantity:0-1,4", "", id="a started CPU counts"),
        pytest.param(counted("2"), "0", "quantity:1,5", "", id="pinned CPUs are avoided"),
        pytest.param(counted("2"), "1,2,6", "quantity:0,4", "", id="pinned CPUs elsewhere change nothing"),
        pytest.param(counted("2"), "0-6", "quantity:0,4", "of which 0,4 are pinned", id="unless too few are free"),
        pytest.param(counted("8"), "", "quantity:0-7", "", id="exactly the whole machine by number"),
        pytest.param(counted("12"), "", "quantity:0-3,4-6", "12 CPUs .* has 8; 7 are", id="more than there are"),
        pytest.param(counted("-2"), "", "none:", "cpu -2 is negative", id="a negative amount reserves nothing"),
    ],
)
def test_resolve_on_four_cores(machine, written, pinned: str, held: str, fallback: str) -> None:
    found = reservation.resolve(written=written, cpus=machine(), pinned=CPUSet.parse(pinned))
    source, _, cpus = held.partition(":")
    assert (found.source, found.cpus) == (source, CPUSet.parse(cpus))
    assert re.search(fallback, found.fallback)
    assert bool(fallback) == bool(found.fallback)


@pytest.mark.parametrize(
    ("written", "cpu"),
    [
        pytest.param(listed("0-1", cpu="6"), "2", id="the number of listed CPUs"),
        pytest.param(listed("6-9"), "2", id="those that exist"),
        pytest.param(counted("2500m"), "2500m", id="a fraction stays one"),
        pytest.param(counted("12"), "7", id="what holds when there are not enough"),
        pytest.param(counted("-2"), "0", id="a negative amount counts as 0"),
    ],
)
def test_resolved_cpu_amount(machine, written: Reservation, cpu: str) -> None:
    assert reservation.resolve(written=written, cpus=machine()).resources["cpu"] == Quantity.parse(cpu)


def test_a_misspelt_name_does_not_reserve_nothing_unseen(machine) -> None:
    written = parse_reservation('{"reservedCpu":"1"}', "node/n")
    assert "reservedCpu is an unknown key: did you mean reservedCPUs?" in (
        reservation.resolve(written=written, cpus=machine()).fallback
    )


def test_other_amounts_stay_and_the_written_annotation_is_kept(machine) -> None:
    written = counted("2", memory="4Gi")
    found = reservation.resolve(written=written, cpus=machine())
    assert found.resources["memory"] == Quantity.parse("4Gi")
    assert found.written is written


@pytest.mark.parametrize(
    ("written", "resources"),
    [
        pytest.param(None, {}, id="nothing"),
        pytest.param(listed("0-99"), {"cpu": "100"}, id="the list is not compared with the machine"),
        pytest.param(listed("0-1", cpu="9", memory="1Gi"), {"cpu": "2", "memory": "1Gi"}, id="only cpu is replaced"),
        pytest.param(counted("1500m"), {"cpu": "1500m"}, id="a quantity as written"),
    ],
)
def test_written_resources(written: Reservation | None, resources: dict[str, str]) -> None:
    assert reservation.written_resources(written) == amounts(**resources)


@pytest.mark.parametrize(
    ("written", "count"),
    [(None, 0), (counted("1m"), 1), (counted("1001m"), 2), (counted("-2"), 0), (listed("0-3", cpu="9"), 0)],
    ids=["nothing", "ceil of a milli", "ceil of more", "negative", "a list has no count"],
)
def test_cpu_count(written: Reservation | None, count: int) -> None:
    assert reservation.cpu_count(written) == count


def test_kubelet_keeps_the_difference_of_cpu_and_memory() -> None:
    found = reservation.from_kubelet(
        capacity=amounts(cpu="8", memory="16Gi", pods="110"), allocatable=amounts(cpu="9", memory="15Gi", pods="100")
    )
    assert found == amounts(cpu="0", memory="1Gi")


def test_larger_is_key_wise_and_keeps_single_keys() -> None:
    found = reservation.larger(amounts(cpu="1", memory="2Gi"), amounts(cpu="2", pods="5"))
    assert found == amounts(cpu="2", memory="2Gi", pods="5")


@pytest.mark.parametrize(
    ("written", "cpu"),
    [
        pytest.param(counted("2"), "6", id="no policy trims"),
        pytest.param(counted("2", "Default"), "6", id="Default trims"),
        pytest.param(counted("2", "ReservedCPUsOnly"), "8", id="ReservedCPUsOnly does not"),
        pytest.param(counted("2", "default"), "8", id="case matters"),
        pytest.param(counted("20"), "0", id="never below zero"),
        pytest.param(None, "8", id="no annotation"),
        pytest.param(counted("0"), "8", id="nothing reserved"),
    ],
)
def test_trimmed_cpu(written: Reservation | None, cpu: str) -> None:
    found = reservation.trim_allocatable(allocatable=amounts(cpu="8"), written=written)
    assert found["cpu"] == Quantity.parse(cpu)


def test_trimming_leaves_batch_resources() -> None:
    before = {**amounts(cpu="8"), "kubernetes.io/batch-cpu": Quantity.of(5000)}
    found = reservation.trim_allocatable(allocatable=before, written=counted("2", memory="1Gi"))
    assert {name: amount.value for name, amount in found.items()} == {
        "cpu": 6,
        "memory": 0,
        "kubernetes.io/batch-cpu": 5000,
        "kubernetes.io/batch-memory": 0,
    }


@given(count=st.integers(-3, 40), pinned=st.sets(st.integers(0, 15)).map(CPUSet), cores=st.integers(1, 8))
def test_a_quantity_never_takes_the_last_cpu_by_mistake(count: int, pinned: CPUSet, cores: int) -> None:
    cpus = [CPU(id=i, core=i // 2, socket=0, node=0) for i in range(2 * cores)]
    found = reservation.resolve(written=counted(str(count)), cpus=cpus, pinned=pinned)
    assert found.cpus <= CPUSet(range(2 * cores))
    assert len(found.cpus) == (max(count, 0) if count <= len(cpus) else len(cpus) - 1)
    if found.cpus & pinned != EMPTY:
        assert found.fallback
