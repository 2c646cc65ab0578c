"""RemoveDuplicates: an even share of the nodes that an owner's pods may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NAME = "RemoveDuplicates"
Object = dict[str, Any]


def replicas(cluster: Any, node: str, count: int, *, owner: str = "app") -> list[Object]:
    """`count` more pods of `owner` on `node`."""
    name = owner.rpartition("/")[2]
    return [cluster.pod(f"{name}-{len(cluster.objects):03}", node, owner=owner, cpu="100m") for _ in range(count)]


def test_a_cordoned_node_takes_no_share(cluster: Any, evicted: Callable[..., Any]) -> None:
    cluster.node("a")
    cluster.node("b")["spec"] = {"unschedulable": True}
    replicas(cluster, "a", 2)
    assert evicted(NAME) == []


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
