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
    ("counts", "gone"),
    [
        pytest.param((3, 0), 1, id="three on one of two nodes: two a node"),
        pytest.param((2, 1), 0, id="level"),
        pytest.param((5, 1, 1), 2, id="seven on three nodes: three a node"),
        pytest.param((2, 0, 0), 1, id="fewer than nodes"),
        pytest.param((4,), 0, id="there is no other node"),
    ],
)
def test_what_is_beyond_an_even_share_goes(
    cluster: Any, evicted: Callable[..., Any], counts: tuple[int, ...], gone: int
) -> None:
    for number, count in enumerate(counts):
        cluster.node(f"n{number}")
        replicas(cluster, f"n{number}", count)
    assert len(evicted(NAME)) == gone


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda pods: pods[0]["metadata"].update(ownerReferences=[]), id="no owner"),
        pytest.param(lambda pods: pods[0]["spec"]["containers"][0].update(image="other"), id="other images"),
        pytest.param(lambda pods: pods[0]["metadata"]["ownerReferences"][0].update(name="other"), id="another owner's"),
        pytest.param(lambda pods: pods[0]["metadata"].update(namespace="other"), id="another namespace"),
        pytest.param(lambda pods: pods[0]["metadata"]["ownerReferences"][0].update(kind="Job"), id="another kind"),
        pytest.param(lambda pods: pods[0]["status"].update(phase="Succeeded"), id="ended"),
    ],
)
def test_pods_that_are_no_duplicates(
    cluster: Any, evicted: Callable[..., Any], change: Callable[[list[Object]], None]
) -> None:
    for name in "ab":
        cluster.node(name)
    pods = replicas(cluster, "a", 2)
    assert evicted(NAME) == [pods[1]["metadata"]["name"]]
    change(pods)
    assert evicted(NAME) == []


def test_images_are_compared_in_any_order(cluster: Any, evicted: Callable[..., Any]) -> None:
    for name in "ab":
        cluster.node(name)
    pods = replicas(cluster, "a", 2)
    for pod, images in zip(pods, ("xy", "yx"), strict=True):
        pod["spec"]["containers"] = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    assert len(evicted(NAME)) == 1


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


def test_a_tolerated_taint_takes_no_share_away(cluster: Any, evicted: Callable[..., Any]) -> None:
    cluster.node("a")
    cluster.node("b")["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    replicas(cluster, "a", 2, tolerations=[{"operator": "Exists"}])
    assert len(evicted(NAME)) == 1


def test_guarded_pods_are_not_counted(cluster: Any, evicted: Callable[..., Any]) -> None:
    for name in "ab":
        cluster.node(name)
    for pod in replicas(cluster, "a", 4)[:2]:
        pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    assert len(evicted(NAME)) == 1


def test_owners_are_counted_each_by_itself(cluster: Any, evicted: Callable[..., Any]) -> None:
    """a has six on three nodes, two a node: two of n1 go. b has four, two a node: one of n2 goes."""
    for node, a, b in (("n1", 4, 1), ("n2", 1, 3), ("n3", 1, 0)):
        cluster.node(node)
        replicas(cluster, node, a, owner="a")
        replicas(cluster, node, b, owner="b")
    gone = evicted(NAME)
    assert sorted(name[0] for name in gone) == ["a", "a", "b"]


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
