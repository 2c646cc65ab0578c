"""TopologyAffinityErrors: piles of pods that kubelet refused."""

from __future__ import annotations

from typing import Any

import pytest

from descheduler.framework import Finding, Note
from descheduler.plugins import topology_affinity_errors
from tests.support.handles import said


def refused(cluster: Any, name: str, *, node: str = "a", reason: str = "TopologyAffinityError", **more: Any) -> Any:
    pod = cluster.pod(name, node, started=more.pop("made", "2026-01-01T11:50:00Z"), **more)
    pod["status"] = {"phase": "Failed", "reason": reason}
    return pod


def judge(cluster: Any, **config: Any) -> tuple[list[Note], list[Finding]]:
    answers = said(topology_affinity_errors, cluster.view(), **config)
    return [a for a in answers if isinstance(a, Note)], [a for a in answers if isinstance(a, Finding)]


@pytest.fixture
def strict(cluster: Any) -> Any:
    """Two nodes that align to single NUMA nodes; on a, CPUs 0-3 are a pod's own."""
    for name in ("a", "b"):
        cluster.node(name)
        cluster.report(name, policy="SingleNUMANodeContainerLevel")
    cluster.pinned("held", "a", "0-3", owner="other")
    return cluster


def test_a_pile_is_reported_with_what_is_free_there(strict: Any) -> None:
    for number in range(3):
        refused(strict, f"p-{number}")
    (note,), findings = judge(strict)
    assert (note.node, note.reason) == ("a", "TopologyErrorPile")
    assert note.text == (
        "scheduler and kubelet disagree on this node: 3 pods of ReplicaSet/default/app failed with "
        "TopologyAffinityError; kubelet's topology policy is single-numa-node; free CPUs: 4 on NUMA 0, 8 on NUMA 1"
    )
    assert [(f.pod, f.severity) for f in findings] == [(f"uid-p-{n}", "exposed") for n in range(3)]


@pytest.mark.parametrize(
    ("pods", "piles"),
    [
        pytest.param([("a", "app")] * 2, 0, id="two are no pile"),
        pytest.param([("a", "app"), ("a", "app"), ("b", "app")], 0, id="of one node"),
        pytest.param([("a", "app"), ("a", "app"), ("a", "web")], 0, id="of one owner"),
        pytest.param([("a", "app")] * 3 + [("b", "app")] * 3, 2, id="each node has its own"),
    ],
)
def test_pods_are_counted_by_owner_and_node(strict: Any, pods: list[tuple[str, str]], piles: int) -> None:
    for number, (node, owner) in enumerate(pods):
        refused(strict, f"p-{number}", node=node, owner=owner)
    assert len(judge(strict)[0]) == piles


def test_only_recent_pods_make_a_pile_but_all_of_it_goes(strict: Any) -> None:
    for number in range(2):
        refused(strict, f"old-{number}", made="2026-01-01T09:00:00Z")
    refused(strict, "new")
    assert judge(strict) == ([], [])
    _, findings = judge(strict, min_pods=1, delete=True)
    assert {(f.pod, f.severity) for f in findings} == {(f"uid-{n}", "hard") for n in ("new", "old-0", "old-1")}


@pytest.mark.parametrize(
    ("reason", "counts"),
    [("TopologyAffinityError", 1), ("Topology Affinity Error", 1), ("SMTAlignmentError", 1), ("Evicted", 0), ("", 0)],
)
def test_only_refusals_for_the_topology_count(strict: Any, reason: str, counts: int) -> None:
    refused(strict, "p", reason=reason)
    assert len(judge(strict, min_pods=1)[1]) == counts


def test_pods_that_ran_and_failed_are_no_pile(strict: Any) -> None:
    for number in range(3):
        refused(strict, f"p-{number}")["status"]["phase"] = "Succeeded"
    assert judge(strict) == ([], [])


def test_a_pile_is_deleted_when_asked_for(strict: Any) -> None:
    for number in range(3):
        refused(strict, f"p-{number}")
    policy = """
profiles:
- name: test
  pluginConfig:
  - name: TopologyAffinityErrors
    args: {delete: DELETE}
  plugins: {deschedule: {enabled: [TopologyAffinityErrors]}}
"""
    kept, gone = (strict.plan(policy.replace("DELETE", word)) for word in ("false", "true"))
    assert [o.reasons[0].reason for o in kept.kept] == ["OnlyExposed"] * 3
    assert [o.pod.pod.name for o in gone.evict] == ["p-0", "p-1", "p-2"]
