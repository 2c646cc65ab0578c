"""Which CPUs Koordinator's policies take. The worked cases are in the vectors; here is what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from koordinator_nodes import machine

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU
from koordlite.numa.koordinator.take import TakePolicy, take, take_preferred
from koordlite.numa.koordinator.values import Allocation, NodeAllocation, available_cpus, released
from koordlite.numa.machine import Machine

POLICIES = some.builds(
    TakePolicy,
    some.sampled_from(["FullPCPUs", "SpreadByPCPUs", "", "ConstrainedBurst"]),
    some.sampled_from(["None", "PCPULevel", "NUMANodeLevel", ""]),
    some.sampled_from(["MostAllocated", "LeastAllocated", "DistributeEvenly"]),
    some.integers(1, 3),
)
SHAPES = some.builds(machine, *(some.integers(1, most) for most in (3, 2, 4, 2)))


@given(SHAPES, POLICIES, some.data())
def test_as_many_as_asked_all_of_them_available_and_the_same_again(
    cpus: Machine, policy: TakePolicy, data: some.DataObject
) -> None:
    everything = some.sets(some.sampled_from(sorted(cpus.by_id)))
    available, preferred, others = (CPUSet(data.draw(everything)) for _ in range(3))
    taken = NodeAllocation.of(cpus, [Allocation(uid="other", cpus=others, exclusive=policy.exclusive)]).cpus
    count = data.draw(some.integers(0, len(available)))
    found = take_preferred(cpus, taken, policy, available=available, preferred=preferred, count=count)
    assert len(found) == count
    assert found <= available
    assert len(found & preferred) == min(count, len(available & preferred))
    again = take_preferred(
        cpus, dict(reversed(taken.items())), policy, available=available, preferred=preferred, count=count
    )
    assert again == found


@given(SHAPES, some.data())
def test_more_than_available_is_refused_in_koordinators_words(cpus: Machine, data: some.DataObject) -> None:
    available = CPUSet(data.draw(some.sets(some.sampled_from(sorted(cpus.by_id)))))
    with pytest.raises(ValueError, match="not enough cpus available to satisfy request"):
        take(cpus, {}, TakePolicy("FullPCPUs"), available=available, count=len(available) + 1)


@given(some.lists(some.frozensets(some.integers(0, 20), max_size=9), max_size=6), some.integers(1, 3))
def test_what_is_returned_twice_was_held_twice(sets: list[frozenset[int]], most: int) -> None:
    """CPUs that pods give back are as if these had never come, also CPUs that the machine does not have."""
    cpus = machine()
    pods = [Allocation(uid=str(n), cpus=CPUSet(ids)) for n, ids in enumerate(sets)]
    some_left = released(NodeAllocation.of(cpus, pods).cpus, *(pod.cpus for pod in pods[:3]))
    assert {cpu: one.holders for cpu, one in some_left.items()} == {
        cpu: one.holders for cpu, one in NodeAllocation.of(cpus, pods[3:]).cpus.items()
    }
    free = available_cpus(cpus, some_left, reserved=CPUSet(), most_holders=most)
    assert all(sum(cpu in pod.cpus for pod in pods[3:]) < most for cpu in free)


def test_cores_of_two_sockets_are_two_cores_though_they_have_one_number() -> None:
    two = Machine.of([CPU(0, 0, 0, 0), CPU(1, 0, 1, 1)])
    assert (two.per_core, two.per_node, two.per_socket) == (1, 1, 1)
