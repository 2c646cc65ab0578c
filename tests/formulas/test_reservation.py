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


@given(count=st.integers(-3, 40), pinned=st.sets(st.integers(0, 15)).map(CPUSet), cores=st.integers(1, 8))
def test_a_quantity_never_takes_the_last_cpu_by_mistake(count: int, pinned: CPUSet, cores: int) -> None:
    cpus = [CPU(id=i, core=i // 2, socket=0, node=0) for i in range(2 * cores)]
    found = reservation.resolve(written=counted(str(count)), cpus=cpus, pinned=pinned)
    assert found.cpus <= CPUSet(range(2 * cores))
    assert len(found.cpus) == (max(count, 0) if count <= len(cpus) else len(cpus) - 1)
    if found.cpus & pinned != EMPTY:
        assert found.fallback


def test_a_negative_reservation_adds_nothing_to_what_a_scheduler_may_hand_out() -> None:
    written = Reservation(amounts(cpu="-2", memory="1Gi"))
    found = reservation.trim_allocatable(allocatable=amounts(cpu="8", memory="4Gi"), written=written)
    assert (found["cpu"], found["memory"]) == (Quantity.parse("8"), Quantity.parse("3Gi"))
