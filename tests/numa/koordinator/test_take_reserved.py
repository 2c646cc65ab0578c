"""CPUs and NUMA amounts of reservations: owners get them, others do not, and none is lost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from koordinator_nodes import machine, node, wanted

from koordlite.model.cpuset import CPUSet
from koordlite.numa.koordinator import schedule
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.values import Allocation, NodeAllocation, Refusal, Reservations, Reserved

SINGLE = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}


def seen(
    labels: dict[str, str], pods: list[Allocation], reservation: Reserved, *, matched: bool, nominated: bool = True
) -> KoordinatorNode:
    """The node for a pod that may, or may not, take the reservation."""
    known = Reservations(
        matched=(reservation,) if matched else (),
        others=() if matched else (reservation,),
        nominated=reservation.uid if matched and nominated else "",
    )
    bare = node(machine(), labels=labels)
    return msgspec.structs.replace(bare, allocated=NodeAllocation.of(bare.topology.machine, pods), reservations=known)


@pytest.mark.parametrize(
    ("policy", "count", "cpus"),
    [
        pytest.param("Aligned", "2", "4,12", id="CPUs of the reservation come first"),
        pytest.param("Aligned", "6", "0-1,4,8-9,12", id="the rest comes from the node"),
        pytest.param("Restricted", "2", "4,12", id="all of it fits into the reservation"),
        pytest.param("Restricted", "6", "scope", id="the rest must not come from the node"),
    ],
)
def test_an_owner_takes_what_is_reserved(policy: str, count: str, cpus: str) -> None:
    held = Allocation(uid="r", cpus=CPUSet.parse("4,12"))
    found = schedule.bind(wanted(count), seen({}, [held], Reserved.of(policy, held, []), matched=True), uid="p")
    if cpus == "scope":
        assert isinstance(found, Refusal)
        assert found.reasons == ("pod has a nominated reservation but cannot be allocated within its NUMA scope",)
    else:
        assert isinstance(found, Allocation)
        assert str(found.cpus) == cpus


def test_a_pod_that_must_take_it_hears_why_it_cannot() -> None:
    held = Allocation(uid="r", cpus=CPUSet.parse("4,12"))
    ask = msgspec.structs.replace(wanted("4", spec='{"requiredCPUBindPolicy":"FullPCPUs"}'), needs_reservation=True)
    current = seen({}, [held], Reserved.of("Restricted", held, []), matched=True)
    reason = "Reservation(s) not enough cpus available to satisfy request"
    assert schedule.filter_node(ask, current) == Refusal((reason,))


@given(
    some.sampled_from([{}, SINGLE]),
    some.sampled_from(["Aligned", "Restricted"]),
    some.sampled_from(["2", "4", "6"]),
    some.lists(some.tuples(some.booleans(), some.sampled_from(["1", "2", "3", "4"])), max_size=8),
)
def test_no_cpu_has_two_owners_and_what_is_reserved_stays(
    labels: dict[str, str], policy: str, size: str, pods: list[tuple[bool, str]]
) -> None:
    held = schedule.bind(wanted(size), node(machine(), labels=labels), uid="r")
    assert isinstance(held, Allocation)
    owners: list[Allocation] = []
    others: list[Allocation] = []
    for number, (owner, count) in enumerate(pods):
        reservation = Reserved.of(policy, held, owners)
        current = seen(labels, [held, *owners, *others], reservation, matched=owner)
        found = schedule.bind(wanted(count), current, uid=str(number))
        if isinstance(found, Refusal):
            continue
        assert isinstance(found, Allocation)
        (owners if owner else others).append(found)
        if policy == "Restricted":
            assert not owner or found.cpus <= held.cpus
        assert 0 <= schedule.score_node(wanted(count), current, None) <= 100
    assert not any(pod.cpus & held.cpus for pod in others)
    every = [cpu for pod in (*owners, *others) for cpu in pod.cpus]
    assert len(every) == len(set(every))


def test_a_pod_that_ignores_reservations_takes_their_cpus() -> None:
    held = Allocation(uid="r", cpus=CPUSet(range(15)))
    current = seen({}, [held], Reserved.of("", held, []), matched=True)
    ignoring = msgspec.structs.replace(
        current, reservations=msgspec.structs.replace(current.reservations, ignored=True)
    )
    found = schedule.bind(wanted("16"), ignoring, uid="p")
    assert isinstance(found, Allocation)
    assert len(found.cpus) == 16
