"""RemoveDuplicates: an even share of the nodes that an owner's pods may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from handles import said

from descheduler.framework import Finding
from descheduler.plugins import remove_duplicates

NAME = "RemoveDuplicates"
Object = dict[str, Any]


def replicas(cluster: Any, node: str, count: int, *, owner: str = "app", image: str = "i", **spec: Any) -> list[Object]:
    """`count` more pods of `owner` on `node`."""
    made = []
    for _ in range(count):
        pod = cluster.pod(f"{owner.rpartition('/')[2]}-{len(cluster.objects):03}", node, owner=owner, cpu="100m")
        pod["spec"]["containers"][0]["image"] = image
        pod["spec"].update(spec)
        made.append(pod)
    return made


@pytest.mark.parametrize(
    ("other", "spec"),
    [
        pytest.param({"unschedulable": True}, {}, id="cordoned"),
        pytest.param({"taints": [{"key": "k", "effect": "NoSchedule"}]}, {}, id="tainted"),
        pytest.param({"taints": [{"key": "k", "effect": "NoExecute"}]}, {}, id="tainted with NoExecute"),
        pytest.param({}, {"nodeSelector": {"kubernetes.io/hostname": "a"}}, id="not selected"),
    ],
)
def test_nodes_that_take_no_share(cluster: Any, evicted: Callable[..., Any], other: Object, spec: Object) -> None:
    cluster.node("a")
    cluster.node("b")["spec"] = other
    replicas(cluster, "a", 2, **spec)
    assert evicted(NAME) == []


def test_a_pod_that_is_one_too_many_for_two_owners_is_named_for_both(cluster: Any) -> None:
    """Four, one and one on three nodes: each owner names the same two of n1."""
    for node, count in (("n1", 4), ("n2", 1), ("n3", 1)):
        cluster.node(node)
        for pod in replicas(cluster, node, count, owner="a"):
            pod["metadata"]["ownerReferences"].append({"kind": "ReplicaSet", "name": "b", "uid": "uid-b"})
    findings = [entry for entry in said(remove_duplicates, cluster.view()) if isinstance(entry, Finding)]
    assert len(findings) == 4
    assert len({finding.pod for finding in findings}) == 2


def test_a_pod_of_two_owners_goes_once(cluster: Any, work: Callable[..., Any]) -> None:
    for name in "ab":
        cluster.node(name)
    for pod in replicas(cluster, "a", 2):
        pod["metadata"]["ownerReferences"].append({"kind": "Group", "name": "g", "uid": "uid-g"})
    plan = work(NAME)
    assert [len(o.findings) for o in plan.evict] == [1]


def test_a_replica_that_goes_anyway_is_the_one_too_many(cluster: Any, evicted: Callable[..., Any]) -> None:
    for name in "ab":
        cluster.node(name)
    pods = replicas(cluster, "a", 3)
    pods[0]["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    old = ("PodLifeTime", {"maxPodLifeTimeSeconds": 86400})
    assert evicted(NAME, before=(old,)) == [pods[0]["metadata"]["name"]]


def test_kinds_that_are_left_out(cluster: Any, evicted: Callable[..., Any]) -> None:
    for name in "ab":
        cluster.node(name)
    replicas(cluster, "a", 2)
    replicas(cluster, "a", 2, owner="Job/j")
    assert [name[:1] for name in evicted(NAME, {"excludeOwnerKinds": ["ReplicaSet"]})] == ["j"]


def test_the_finding_has_the_share(cluster: Any, work: Callable[..., Any]) -> None:
    for name in "ab":
        cluster.node(name)
    replicas(cluster, "a", 3)
    finding = work(NAME).evict[0].main
    assert finding.promise == "3 pods of ReplicaSet app on 2 nodes make 2 a node"
    assert finding.evidence == {"onNode": 3, "share": 2, "replicas": 3, "nodes": 2}
