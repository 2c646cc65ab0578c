"""The simulated cluster: what a scheduler that does not know NUMA nodes does to it."""

from __future__ import annotations

import pytest

from tests.support.topocluster.cluster import Setup, TopologyCluster
from tests.support.topocluster.kubelets import Shape
from tests.support.topocluster.workload import Load

SMALL = Setup(nodes=12, load=Load(pods=150, every=1.2, lifetime=120.0), seed=3)


def test_without_an_extender_kubelets_refuse_pods_and_a_run_is_the_same_every_time() -> None:
    outcome = TopologyCluster(SMALL, None).run()
    assert outcome.failures["TopologyAffinityError"] > 5
    assert outcome.pods["created"] == outcome.pods["ran"] + sum(outcome.failures.values())
    assert outcome.never_placed == 0
    assert TopologyCluster(SMALL, None).run() == outcome


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_a_policy_that_aligns_nobody_strictly_refuses_nobody(policy: str) -> None:
    setup = Setup(nodes=6, load=Load(pods=60, every=2.4, lifetime=120.0), seed=2, shape=Shape(policy=policy))  # type: ignore[arg-type]
    outcome = TopologyCluster(setup, None).run()
    assert outcome.failures.get("TopologyAffinityError", 0) == 0
    assert outcome.pods["created"] == outcome.pods["ran"] + sum(outcome.failures.values())
