"""What is remembered of pods: bounded, and of old attempts the chosen node and samples."""

from __future__ import annotations

import pytest

from koordlite.scheduler import extender
from koordlite.scheduler.report import documents
from tests.scheduler.builders import Scene, as_object, pod

FREE, TAKEN = {"cpu": "8", "memory": "32Gi"}, {"cpu": "0", "memory": "0"}


def world(monkeypatch: pytest.MonkeyPatch, *, rows: int, pods: int = 100) -> Scene:
    monkeypatch.setattr(extender, "MOST_ROWS", rows)
    monkeypatch.setattr(extender, "MOST_PODS", pods)
    scene = Scene()
    for number in range(40):
        scene.node(f"n{number:02}", *([FREE] if number % 2 else [TAKEN]), signed=[])
    return scene


def test_old_attempts_keep_the_chosen_node_and_some_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = world(monkeypatch, rows=200)
    names = sorted(scene.cluster.nodes)
    for number in range(6):
        obj = pod(f"p{number}")
        scene.put(obj)
        passed, _ = scene.filter(obj, *names)
        scene.extender.prioritize(as_object(obj), passed)
        scene.bind(obj, "n39")
    oldest, newest = (documents.of_pod(scene.extender, f"ns/p{number}") for number in (0, 5))
    assert oldest is not None
    assert newest is not None
    assert (len(newest["nodes"]), newest["onlySomeNodes"]) == (40, False)
    retained = {each["node"] for each in oldest["nodes"]}
    assert oldest["onlySomeNodes"]
    assert "n39" in retained
    assert sum(bool(each["refusal"]) for each in oldest["nodes"]) == extender.SAMPLES
    assert (oldest["passed"], oldest["refused"]) == (20, {"cannot align container": 20})


def test_the_number_of_pods_is_bounded_and_one_pod_is_remembered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = world(monkeypatch, rows=10_000, pods=5)
    for _ in range(3):
        for number in range(8):
            scene.filter(pod(f"p{number}"), "n01")
    assert len(scene.extender.attempts) == 5
    assert len(scene.extender.attempts._whole) == 5
    assert documents.of_pod(scene.extender, "ns/p0") is None
    for _ in range(4):
        scene.filter(pod("p7"), "n01")
    document = documents.of_pod(scene.extender, "ns/p7")
    assert document is not None
    assert document["attempts"] == 5
    assert scene.extender.attempts._rows == sum(len(each.rows) for each in scene.extender.attempts._attempts.values())
