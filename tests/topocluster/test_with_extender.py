"""With the product's extender no pod fails its admission but where it cannot know of it, and no node is refused that
kubelet would have taken."""

from __future__ import annotations

import dataclasses

import pytest
from slices import long

from tests.support.topocluster.cluster import Outcome, Setup, TopologyCluster
from tests.support.topocluster.kubelets import GIB, Delays, Shape
from tests.support.topocluster.side import Product
from tests.support.topocluster.workload import KINDS, WITH_INIT, Load

ALL_KINDS = (*KINDS, WITH_INIT)
SMALL = Setup(nodes=6, load=Load(pods=80, every=2.4, lifetime=120.0), seed=3, kinds=ALL_KINDS)
MEDIUM = Setup(nodes=12, load=Load(pods=150, every=1.2, lifetime=120.0), seed=3, kinds=ALL_KINDS)
LARGE = Setup(nodes=200, load=Load(pods=10_000, every=0.08, lifetime=120.0), seed=1, kinds=ALL_KINDS)


def both(setup: Setup) -> tuple[Outcome, Outcome]:
    """Without the extender, and with it; the counts are shown with `pytest -s`."""
    without, with_it = TopologyCluster(setup, None).run(), TopologyCluster(setup, Product).run()
    for word, outcome in (("without", without), ("with", with_it)):
        counts = f"{dict(outcome.failures)} of {outcome.pods['created']} pods, unknowable {dict(outcome.unknowable)}"
        print(f"\n{word} the extender kubelets refused {counts}; {outcome.checked} refusals checked")
    return without, with_it


@pytest.mark.parametrize(
    "setup",
    [
        pytest.param(SMALL, id="small"),
        pytest.param(dataclasses.replace(SMALL, shape=Shape(scope="pod")), id="pod-scope"),
        pytest.param(dataclasses.replace(SMALL, shape=Shape(policy="restricted")), id="restricted"),
        pytest.param(dataclasses.replace(SMALL, with_fingerprint=False), id="no-fingerprint"),
        long(dataclasses.replace(MEDIUM, shape=Shape(numa_nodes=4, cores=4)), id="four-numa-nodes"),
        long(dataclasses.replace(MEDIUM, shape=Shape(memory=14 * GIB)), id="little-memory"),
        long(dataclasses.replace(MEDIUM, delays=Delays(report=(1.0, 60.0))), id="late-reports"),
        long(dataclasses.replace(MEDIUM, extender_lag=(0.5, 3.0)), id="late-watch"),
        *(long(dataclasses.replace(LARGE, seed=seed), id=f"200-nodes-10000-pods-{seed}") for seed in (1, 2, 3)),
    ],
)
@pytest.mark.timeout(1800)
def test_no_pod_that_the_extender_placed_fails_its_admission(setup: Setup) -> None:
    without, with_it = both(setup)
    assert without.failures["TopologyAffinityError"] > 0
    assert sum(with_it.failures.values()) == with_it.unknowable.get("pod ended", 0), with_it.refusals
    assert with_it.pods["created"] >= 1000 * sum(with_it.failures.values())
    assert with_it.wrongly_refused == ()
    failed = sum(with_it.failures.values())
    assert with_it.pods["ran"] + with_it.never_placed + failed == with_it.pods["created"]
    assert with_it.never_placed <= without.pods.get("given up", 0), "pods that fit nowhere wait instead of failing"


@pytest.mark.parametrize("seed", [1, long(2), long(3)])
def test_what_another_scheduler_binds_is_the_only_thing_that_it_cannot_know(seed: int) -> None:
    load = Load(pods=150, every=1.2, lifetime=120.0, foreign=0.4)
    setup = dataclasses.replace(SMALL, nodes=8, load=load, seed=seed, extender_lag=(0.2, 1.0))
    outcome = TopologyCluster(setup, Product).run()
    assert outcome.foreign_failures.get("TopologyAffinityError", 0) > 0
    assert sum(outcome.failures.values()) == sum(outcome.unknowable.values()), outcome.refusals
    assert outcome.wrongly_refused == ()
