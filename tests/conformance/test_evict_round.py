"""What explains a round that differs, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance import deviations, evict_round

BATCH = "kubernetes.io/batch-memory"
GIB = 2**30


def pod(name: str, priority: int = 5000, gib: int = 0, phase: str = "Running") -> dict[str, Any]:
    labels = {"koordinator.sh/qosClass": "BE", "koordinator.sh/eviction-enabled": "true"}
    resources = {"requests": {BATCH: str(gib * GIB)}} if gib else {}
    return {
        "metadata": {"name": name, "uid": name, "namespace": "n", "labels": labels},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": phase},
    }


def round_of(
    features: list[str], pods: list[dict[str, Any]], used_gib: dict[str, float], **more: Any
) -> dict[str, Any]:
    strategy = {
        "enable": True,
        "memoryEvictThresholdPercent": 80,
        "evictEnabledPriorityThreshold": 9999,
        "memoryAllocatableEvictThresholdPercent": 50,
        "memoryAllocatableEvictLowerPercent": 40,
        "allocatableEvictPriorityThreshold": 5999,
    }
    allocatable = {"cpu": "1", "memory": f"{100 * GIB}", BATCH: f"{20 * GIB}"}
    return {
        "enabledFeatureGates": features,
        "thresholdStrategy": strategy,
        "node": {"metadata": {"name": "n"}, "status": {"capacity": allocatable, "allocatable": allocatable}},
        "nodeMemoryUsedBytes": 90 * GIB,
        "pods": pods,
        "podMemoryUsedBytes": {name: int(gib * GIB) for name, gib in used_gib.items()},
        "cooldownElapsed": True,
        **more,
    }


IDLE = round_of(["MemoryAllocatableEvict"], [pod("idle", 100), pod("batch", gib=15)], {"idle": 1, "batch": 1})
FINISHED = round_of(["BEMemoryEvict"], [pod("over", 1, phase="Succeeded"), pod("on")], {"on": 20})
SMALL = round_of(["MemoryEvict"], [pod("small", 1), pod("large", 2)], {"small": 0.05, "large": 20})


@pytest.mark.parametrize(
    ("given", "theirs", "ours", "rule"),
    [
        pytest.param(IDLE, {"idle", "batch"}, {"batch"}, "evict-contribution", id="who releases nothing stays"),
        pytest.param(FINISHED, {"over", "on"}, {"on"}, "evict-finished", id="who has ended is no victim"),
        pytest.param(SMALL, {"small"}, {"small", "large"}, "evict-bytes", id="bytes are bytes"),
    ],
)
def test_a_rule_explains_its_difference_and_no_other(given: Any, theirs: set[str], ours: set[str], rule: str) -> None:
    assert evict_round.evicted(given, frozenset()) == theirs
    assert evict_round.evicted(given, evict_round.ALL) == ours
    explained = deviations.rule_for("memory_evict.reconcile", given, (theirs, set()), (ours, set()))
    assert explained.partition(":")[0] == rule
    assert not deviations.rule_for("memory_evict.reconcile", given, (theirs, set()), (set(), set()))


def test_a_round_without_a_defect_in_it_is_explained_by_nothing() -> None:
    given = round_of(["BEMemoryEvict"], [pod("on")], {"on": 20})
    assert evict_round.evicted(given, frozenset()) == evict_round.evicted(given, evict_round.ALL) == {"on"}
    assert not deviations.rule_for("memory_evict.reconcile", given, (set(), set()), ({"on"}, set()))


def test_single_precision_explains_kilobytes_and_not_megabytes() -> None:
    given = {**IDLE, "pods": [pod("batch", gib=15)]}
    amount = 7 * GIB
    found = {"release": {BATCH: amount}, "releaseResources": [BATCH], "podContribution": {}}
    for lost, explained in ((4096, True), (2**25, False)):
        wanted = {**found, "release": {BATCH: amount + lost}}
        assert bool(deviations.rule_for("memory_evict.allocatable_release", given, wanted, found)) is explained
