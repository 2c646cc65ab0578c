"""Kubelet's static CPU manager policy and the agent on one node: neither is in the other's way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from emulated import Emulated

RESERVED = '{"reservedCPUs": "0"}'


@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
@pytest.mark.parametrize("shape", ["small", "arm"])
def test_a_new_container_starts_beside_a_reservation(
    emulate: Callable[[str], Emulated], shape: str, policy: str
) -> None:
    node = emulate(shape)
    node.node(cpu_manager="static", reservation=RESERVED)
    node.slo(policy=policy)
    with node.at_work() as agent:
        node.ticks(agent, 5)
        node.pod("late", "BE", "greedy")
        node.ticks(agent, 5)
    late = node.sandbox.kubelet.running["uid-late"]
    assert not late.waiting
    (container,) = late.workloads
    group = node.sandbox.cgroups.cpuset.find(container.group)
    assert group is not None
    assert 0 not in group.cpus, "the reservation holds at the container"
