"""Preemption: only victims that free one NUMA node; a node on which the pod would be refused afterwards is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite.model import keys
from koordlite.scheduler.extender import Victims
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
    found = preempt(scene, high, "w", "y")
    assert set(found["a"].uids) in ({"uid-w", "uid-x"}, {"uid-y", "uid-z"}), "and the one on the other node is spared"


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
    chosen = preempt(scene, high, "y", "z")["a"].uids
    assert scene.filter(high, "a")[0] == [], "the victims are still there"
    for uid in chosen:
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
