"""Two strategies that evict, asked one after the other on one picture, do not evict twice for one cause."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite import strategies
from koordlite.changes.eviction import EvictPod
from koordlite.model import keys
from koordlite.model.node import Node
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.values import ContainerInfo
from koordlite.model.quantity import Quantity
from koordlite.model.settings import Mode
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import cpu_evict, memory_evict
from koordlite.strategies.shared.evict import EvictionMemory

CAPACITY = {"cpu": Quantity.of(8), "memory": Quantity.of(100)}


@pytest.fixture
def pressed(build: Any) -> Snapshot:
    """CPU and memory are both over their thresholds; any pod alone would be enough for either."""
    pods = tuple(
        build.pod(
            name,
            "BE",
            priority=5000,
            labels={keys.EVICTION_ENABLED: "true"},
            containers=(ContainerInfo("main", "", True, {}, {}),),
        )
        for name in "ab"
    )
    # The larger user goes first, so that each for itself they choose different pods.
    by_pod = {"a": Use(3000, 20), "b": Use(2900, 40)}
    usage = Usage(Use(6500, 90), by_pod, {}, samples=60)
    threshold = {
        "cpu_evict_threshold_percent": 80,
        "evict_enabled_priority_threshold": 5999,
        "memory_evict_threshold_percent": 85,
        "memory_evict_lower_percent": 80,
    }
    picture: Snapshot = build.snapshot(
        pods=pods,
        usage=usage,
        windows={1: usage},
        slo=build.suppression(**threshold),
        node=Node(name="n", capacity=CAPACITY, allocatable=CAPACITY),
        remembered={"cpuEvict": EvictionMemory(started=0.0)},
    )
    return picture


def gone(seen: Snapshot, mode: Mode) -> dict[str, list[str]]:
    settings = {
        "cpuEvict": cpu_evict.Config(mode=mode, cpu_evict=True),
        "memoryEvict": memory_evict.Config(mode=mode, be_memory_evict=True),
    }
    decisions = strategies.decide_all(seen, settings)
    return {
        name: [c.uid for d in decisions for c in d.changes if isinstance(c, EvictPod) and d.strategy == name]
        for name in settings
    }


def test_the_victim_of_one_counts_for_the_other(pressed: Snapshot) -> None:
    assert gone(pressed, "enforce") == {"cpuEvict": ["a"], "memoryEvict": []}


def test_a_strategy_that_only_observes_evicts_nobody_and_counts_for_nothing(pressed: Snapshot) -> None:
    assert gone(pressed, "observe") == {"cpuEvict": ["a"], "memoryEvict": ["b"]}
