"""Tenants who use far more memory than they request, and say that they must not be evicted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tenants
from emulated import Emulated

from koordlite import config
from koordlite.agent import Agent
from koordlite.model import keys
from koordlite.report.tick import Tick

INNOCENT = ("batch-a", "batch-b", "batch-c")
BATCH = {keys.BATCH_CPU: "1000", keys.BATCH_MEMORY: "16Gi"}
SMALL = {keys.BATCH_CPU: "1000", keys.BATCH_MEMORY: "1Gi"}


@pytest.fixture
def node(tmp_path: Path) -> Emulated:
    """256 GiB of memory of which half may be used; three batch pods use less than they request."""
    node = Emulated("intel-2s-ht", tmp_path)
    strategy = {"enable": True, "memoryEvictThresholdPercent": 50, "memoryEvictLowerPercent": 45}
    strategy["evictEnabledPriorityThreshold"] = 9999
    node.raw_slo({"resource-threshold-config": {"clusterStrategy": strategy}})
    for name in INNOCENT:
        labels = {keys.EVICTION_ENABLED: "true"}
        tenants.create(node, name, "BE", namespace="batch", requests=BATCH, memory="8Gi", **labels)
    return node


def play(node: Emulated, *, rule: str = "be_memory_evict", ticks: int = 20, **options: Any) -> list[Tick]:
    """What an agent that may evict for memory does."""
    settings = config.with_modes(config.default(), "enforce")
    chosen = dataclasses.replace(settings.strategies["memoryEvict"], **{rule: True, **options})
    strategies = {**settings.strategies, "memoryEvict": chosen}
    with node.journal() as journal:
        agent = Agent(node.host(), node.cluster, msgspec.structs.replace(settings, strategies=strategies), journal)
        return node.ticks(agent, ticks)


def evicted(ticks: list[Tick]) -> list[str]:
    """Names of the pods that went, in order."""
    steps = (step for tick in ticks for step in tick.applied if str(step.place).startswith("pod/"))
    return [str(step.place).split("/")[2] for step in steps if not step.error]


SHIELDS: list[Any] = [
    pytest.param("LS", {}, {}, id="an LS label in the besteffort cgroup"),
    pytest.param("SYSTEM", {}, {}, id="a SYSTEM label there"),
    pytest.param("", {}, {}, id="no label at all"),
    pytest.param("BE", {keys.EVICTION_POLICY: "[]"}, {}, id="a policy that allows nothing"),
    pytest.param("BE", {keys.EVICTION_POLICY: "{"}, {}, id="a policy that cannot be read"),
    pytest.param("LS", {keys.EVICTION_POLICY: "[]"}, {keys.PRIORITY: "9999"}, id="all of it"),
]


@pytest.mark.parametrize(("qos", "annotations", "labels"), SHIELDS)
def test_the_pod_that_uses_the_memory_goes_and_no_other(
    node: Emulated, qos: str, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> None:
    tenants.create(node, "hog", qos, annotations=annotations, requests=SMALL, memory="110Gi", **labels)
    ticks = play(node)
    assert evicted(ticks) == ["hog"]
    said = next(d for tick in ticks for d in tenants.about(tick, "memoryEvict", "tenant/hog") if d.verdict == "evict")
    assert said.evidence["ignored"] in (keys.QOS_CLASS, keys.EVICTION_POLICY)


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({keys.EVICTION_POLICY: "[]"}, id="a policy that allows nothing"),
        pytest.param({keys.EVICTION_PRIORITY: "2147483647"}, id="an eviction priority above all others"),
    ],
)
def test_the_rule_by_priority_is_not_told_whom_to_spare(node: Emulated, annotations: Mapping[str, str]) -> None:
    labels = {keys.EVICTION_ENABLED: "true"}
    tenants.create(node, "hog", "BE", annotations=annotations, requests=SMALL, memory="110Gi", **labels)
    assert evicted(play(node, rule="memory_evict")) == ["hog"]


def test_nobody_goes_where_the_rest_cannot_bring_the_node_below_its_threshold(node: Emulated) -> None:
    """An LS pod outside the besteffort cgroup is no candidate; with it the node stays over, whoever else goes."""
    tenants.create(node, "hog", "LS", requests={"cpu": "1", "memory": "1Gi"}, memory="150Gi")
    ticks = play(node)
    assert not evicted(ticks)
    rule = next(
        d
        for t in ticks
        for d in t.decisions
        if d.subject == "evict/BEMemoryEvict" and d.evidence.get("release_memory_bytes")
    )
    assert rule.evidence["reach_memory_bytes"] < rule.evidence["release_memory_bytes"]
    (said,) = tenants.about(ticks[-1], "memoryEvict", "batch/batch-a")
    assert said.reason == "GoalOutOfReach"


def test_evict_partly_is_the_former_way(node: Emulated) -> None:
    tenants.create(node, "hog", "LS", requests={"cpu": "1", "memory": "1Gi"}, memory="150Gi")
    assert sorted(evicted(play(node, evict_partly=True))) == list(INNOCENT)


def test_an_annotation_protects_a_pod_within_its_request(node: Emulated) -> None:
    tenants.create(node, "keeper", "BE", annotations={keys.EVICTION_POLICY: "[]"}, requests=BATCH, memory="12Gi")
    tenants.create(node, "hog", "BE", requests=SMALL, memory="110Gi")
    ticks = play(node)
    assert "keeper" not in evicted(ticks)
    assert "hog" in evicted(ticks)


def test_a_small_pod_without_requests_does_not_go_for_what_others_use(node: Emulated) -> None:
    tenants.create(node, "log-shipper", "", memory="100Mi")
    tenants.create(node, "hog", "LS", requests=SMALL, memory="110Gi")
    assert evicted(play(node)) == ["hog"]
