"""Optimal NUMA distance: what the policy changes in scores and in what the allocator takes, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordlite.model import keys
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.numa.nrt import score
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.report import documents
from tests.scheduler.builders import Scene, as_object, pod

OPEN, CLOSED = JudgeSettings(numa_distance=True), JudgeSettings()
ZONE = {"cpu": "4", "memory": "32Gi"}
TOTALS = {"cpu": "4", "memory": "32Gi"}
FAR, NEAR = ((10, 32), (32, 10)), ((10, 12), (12, 10))
FOUR = ((10, 32, 12, 32), (32, 10, 32, 32), (12, 32, 10, 32), (32, 32, 32, 10))
"""NUMA nodes 0 and 2 are near together, all others far."""
CPUS = {
    keys.CPU_TOPOLOGY: json.dumps(
        {"detail": [{"id": n, "core": n, "socket": n // 4, "node": n // 4} for n in range(16)]}
    )
}
LSR = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}


def kubelets(settings: JudgeSettings, policy: str) -> Scene:
    """Nodes far and near, alike but for the distance of their two NUMA nodes."""
    scene = Scene(settings)
    scene.node("far", ZONE, ZONE, policy=policy, totals=TOTALS, distances=FAR)
    scene.node("near", ZONE, ZONE, policy=policy, totals=TOTALS, distances=NEAR)
    return scene


def stands(scene: Scene, amounts: Any) -> dict[str, int]:
    assert scene.filter(amounts, "far", "near")[0] == ["far", "near"]
    return dict(scene.extender.prioritize(as_object(amounts), ["far", "near"]))


@pytest.mark.parametrize("policy", ["restricted", "best-effort"])
def test_the_nearer_numa_nodes_win_where_a_pod_needs_two(policy: str):
    wide = pod("wide", "6", "40Gi")
    assert stands(kubelets(OPEN, policy), wide) == {"far": 0, "near": 10}
    assert stands(kubelets(CLOSED, policy), wide) == {"far": 0, "near": 0}


@pytest.mark.parametrize(
    ("policy", "cpu", "memory"),
    [("restricted", "2", "1Gi"), ("single-numa-node", "2", "1Gi"), ("none", "6", "40Gi")],
)
def test_distance_says_nothing_where_one_numa_node_will_do_or_kubelet_aligns_nothing(
    policy: str, cpu: str, memory: str
):
    assert stands(kubelets(OPEN, policy), pod("p", cpu, memory)) == {"far": 0, "near": 0}


def test_explain_shows_the_distance_as_a_term_of_the_score():
    scene = kubelets(OPEN, "restricted")
    stands(scene, pod("wide", "6", "40Gi"))
    document = documents.of_pod(scene.extender, "ns/wide")
    assert document is not None
    by_node = {each["node"]: (each["score"], each["terms"]["NUMADistance"]) for each in document["nodes"]}
    # 100 × 10 / mean: (10 + 32 + 32 + 10) / 4 = 21, and (10 + 12 + 12 + 10) / 4 = 11; half of it beside amounts of 0.
    assert by_node == {"far": (23, 47), "near": (45, 90)}


def test_a_switch_counts_from_the_next_question_on():
    scene, wide = kubelets(CLOSED, "restricted"), pod("wide", "6", "40Gi")
    assert stands(scene, wide) == {"far": 0, "near": 0}
    scene.cluster.switch(NUMAPolicy(distance=True))
    assert stands(scene, wide) == {"far": 0, "near": 10}
    scene.cluster.switch(NUMAPolicy(distance=False))
    assert stands(scene, wide) == {"far": 0, "near": 0}


def allocated(settings: JudgeSettings, cpu: str, **notes: str) -> Any:
    scene = Scene(settings)
    scene.node("a", *[ZONE] * 4, policy="none", annotations=CPUS, distances=FOUR, totals=TOTALS)
    amounts = pod("p", cpu, annotations={f"scheduling.koordinator.sh/{name}": text for name, text in notes.items()})
    amounts["metadata"]["labels"] = LSR
    scene.put(amounts)
    assert scene.schedule(amounts, "a") == "a"
    return json.loads(scene.api.bound[0][2][keys.RESOURCE_STATUS])


def test_the_allocator_takes_the_nearest_numa_nodes_when_it_needs_two():
    assert allocated(OPEN, "8")["cpuset"] == "0-3,8-11"
    assert allocated(CLOSED, "8")["cpuset"] == "0-7", "as Koordinator: in the order of their numbers"
    assert allocated(OPEN, "4") == allocated(CLOSED, "4"), "one NUMA node will do"


def test_a_pod_that_is_aligned_by_policy_gets_the_nearest_as_well():
    numa = {"numa-topology-spec": '{"numaTopologyPolicy":"Restricted"}'}
    nodes = [[each["node"] for each in allocated(s, "8", **numa)["numaNodeResources"]] for s in (OPEN, CLOSED)]
    assert nodes == [[0, 2], [0, 1]]


def test_a_distance_that_is_not_reported_counts_as_far_as_can_be():
    assert score.nearness((0,), {}) == 100
    assert score.nearness((0, 1), {}) == 3
    assert score.nearness((0, 1), {0: {0: 10, 1: 20}, 1: {0: 20, 1: 10}}) == 66
