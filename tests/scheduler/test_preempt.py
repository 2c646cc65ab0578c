"""Preemption: only victims that free one NUMA node; a node on which the pod would be refused afterwards is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordlite.model import keys
from koordlite.scheduler.nominations import LEAVING, Victims
from koordlite.scheduler.report import documents
from koordlite.scheduler.service import Arguments, filter_answer
from tests.scheduler.builders import Scene, as_object, bound, pod

FREE, TAKEN, HALF = {"cpu": "8", "memory": "32Gi"}, {"cpu": "0", "memory": "8Gi"}, {"cpu": "4", "memory": "16Gi"}
MOST = {"cpu": "8", "memory": "32Gi"}


def placed(where: dict[str, int]) -> dict[str, str]:
    """Our annotation: the NUMA node of each pod's container."""
    rows = ",".join(
        f'{{"namespace":"ns","pod":"{name}","uid":"uid-{name}","container":"c","source":"kubelet","exclusive":true,'
        f'"promisedNodes":[{node}]}}'
        for name, node in where.items()
    )
    return {keys.PLACEMENT: f'{{"observedAt":"2026-01-01T00:00:00Z","generation":1,"containers":[{rows}]}}'}


def world(where: dict[str, int], zones: tuple[Any, ...] = (TAKEN, TAKEN), *, signed: bool = True) -> Scene:
    """Node `a` is full of pods of 4 CPUs and priority 0."""
    scene = Scene()
    pods = [pod(name, "4", "12Gi") for name in where]
    for each in pods:
        scene.put(bound(each, "a"))
    scene.node("a", *zones, signed=pods if signed else None, totals=MOST, annotations=placed(where))
    return scene


def preempt(scene: Scene, high: Any, *victims: str, node: str = "a") -> dict[str, Victims]:
    return scene.extender.preempt(as_object(high), {node: Victims(tuple(f"uid-{name}" for name in victims), 0)})


def test_victims_that_free_one_numa_node_are_taken_as_they_are() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    high = pod("high", "8", "20Gi", priority=100)
    assert preempt(scene, high, "y", "z") == {"a": Victims(("uid-y", "uid-z"))}


def test_victims_on_two_numa_nodes_are_changed_for_some_on_one() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    high = pod("high", "8", "20Gi", priority=100)
    result = preempt(scene, high, "w", "y")
    assert set(result["a"].uids) in ({"uid-w", "uid-x"}, {"uid-y", "uid-z"}), "and the one on the other node is spared"


def test_a_node_where_no_eviction_helps_is_dropped_with_the_reason() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    low = pod("not-higher", "8", "20Gi", priority=0)
    scene.filter(low, "a")
    assert preempt(scene, low, "w", "y") == {}
    attempt = scene.extender.attempts.get("ns/not-higher")
    assert attempt is not None
    assert "no eviction of pods of lower priority frees a NUMA node" in attempt.events[0]


def test_more_than_any_numa_node_has_is_no_reason_to_evict() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    assert preempt(scene, pod("huge", "12", "20Gi", priority=100), "w", "y", "z") == {}


def test_a_node_without_a_report_and_an_unknown_one_are_left_to_the_scheduler() -> None:
    scene = world({"w": 0})
    scene.node("plain")
    high = pod("high", "8", priority=100)
    for node in ("plain", "unknown"):
        assert preempt(scene, high, "w", node=node) == {node: Victims(("uid-w",))}


def test_a_pod_that_is_not_aligned_keeps_the_victims_of_the_scheduler() -> None:
    scene = world({"w": 0, "x": 1})
    shared = pod("shared", "8", priority=100, qos="Burstable")
    assert preempt(scene, shared, "w", "x") == {"a": Victims(("uid-w", "uid-x"))}


@pytest.mark.parametrize("signed", [True, False])
def test_the_filter_lets_the_pod_pass_when_the_victims_are_gone_and_the_report_is_not_there_yet(signed: bool) -> None:
    """Otherwise the scheduler evicts on the next node, and on the next: four pods for one that was never placed."""
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1}, signed=signed)
    high = pod("high", "8", "20Gi", priority=100)
    assert scene.filter(high, "a") == ([], {"a": "cannot align container"})
    victims = preempt(scene, high, "y", "z")["a"].uids
    assert scene.filter(high, "a")[0] == [], "the victims are still there"
    for uid in victims:
        scene.cluster.remove_pod(f"ns/{uid.removeprefix('uid-')}")
    assert scene.filter(high, "a") == (["a"], {})
    scene.put(high)
    assert scene.bind(high, "a") == ""


def test_pods_that_are_being_deleted_are_not_chosen() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    for name in ("w", "y"):
        leaving = bound(pod(name, "4", "12Gi"), "a")
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        scene.put(leaving)
    assert preempt(scene, pod("high", "8", "20Gi", priority=100), "x") == {}


def nominated(obj: Any, node: str) -> Any:
    return {**obj, "status": {**obj["status"], "nominatedNodeName": node}}


def test_while_victims_leave_the_node_stays_resolvable_and_no_other_is_emptied() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    for name in ("s", "t"):
        scene.put(bound(pod(name, "4", "12Gi"), "b"))
    scene.node("b", TAKEN, TAKEN, signed=[pod("s"), pod("t")], totals=MOST, annotations=placed({"s": 0, "t": 0}))
    high = pod("high", "8", "20Gi", priority=100)
    victims = preempt(scene, high, "y", "z")["a"].uids
    scene.put(nominated(high, "a"))
    assert scene.filter(nominated(high, "a"), "a")[1] == {"a": LEAVING}
    assert preempt(scene, nominated(high, "a"), "s", "t", node="b") == {}
    for uid in victims:
        scene.cluster.remove_pod(f"ns/{uid.removeprefix('uid-')}")
    assert scene.filter(nominated(high, "a"), "a", "b")[0] == ["a"]


def test_a_node_that_another_pod_took_is_no_longer_waited_for() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    high = pod("high", "8", "20Gi", priority=100)
    victims = preempt(scene, high, "y", "z")["a"].uids
    scene.put(nominated(high, "a"))
    for uid in victims:
        scene.cluster.remove_pod(f"ns/{uid.removeprefix('uid-')}")
    scene.filter(nominated(high, "a"), "a")
    thief = bound(pod("thief", "4", "12Gi"), "a")
    scene.put(thief)
    scene.clock.pass_(5.0)
    free = [pod(name) for name in ("w", "x", "thief")]
    scene.report("a", TAKEN, HALF, signed=free, totals=MOST, annotations=placed({"w": 0, "x": 0, "thief": 1}))
    assert scene.filter(nominated(high, "a"), "a")[1] == {"a": "cannot align container"}
    assert set(preempt(scene, high, "thief")["a"].uids) == {"uid-thief"}


def test_the_answer_tells_a_node_that_is_being_emptied_from_one_that_no_eviction_helps() -> None:
    request = Arguments(pod=as_object(pod("p")), node_names=["a", "b"])
    answer = json.loads(filter_answer(request, ["a", "b"], [], {"a": LEAVING, "b": "cannot align pod"}))
    assert answer["FailedNodes"] == {"a": LEAVING}
    assert answer["FailedAndUnresolvableNodes"] == {"b": "cannot align pod"}


def test_a_report_that_does_not_say_where_pods_are_is_named_as_the_reason() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    scene.report("a", TAKEN, TAKEN, signed=[pod(name) for name in ("w", "x", "y", "z")], totals=MOST)
    high = pod("high", "8", "20Gi", priority=100)
    scene.filter(high, "a")
    assert preempt(scene, high, "w", "y") == {}
    attempt = scene.extender.attempts.get("ns/high")
    assert attempt is not None
    assert "its report does not say on which NUMA nodes its pods are" in attempt.events[0]


def test_two_pods_never_count_on_the_same_victims() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    first, second = (pod(name, "8", "20Gi", priority=100) for name in ("first", "second"))
    one = preempt(scene, first, "y", "z")["a"].uids
    scene.put(nominated(first, "a"))
    two = preempt(scene, second, "w", "x", "y", "z")["a"].uids
    assert set(one) | set(two) == {"uid-w", "uid-x", "uid-y", "uid-z"}
    assert not set(one) & set(two)


def test_explain_knows_a_pod_that_was_only_asked_about_for_victims() -> None:
    scene = world({"w": 0, "x": 0, "y": 1, "z": 1})
    preempt(scene, pod("high", "8", "20Gi", priority=100), "y", "z")
    document = documents.of_pod(scene.extender, "ns/high")
    assert document is not None
    assert document["refused"] == {"too little in all for the pod, as kube-scheduler counts": 1}
    assert document["events"] == ["preemption: 1 of 1 nodes offered"]
