"""What a node keeps back by annotation is nobody's: no pod is placed that the descheduler would move again."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
import slices

from descheduler.framework import Finding
from descheduler.plugins import reserved_cpus
from descheduler.snapshot import assemble, files
from koordlite.model import keys
from koordlite.model.wire import objects
from koordlite.scheduler.judgement.pods import shape_of
from tests.scheduler.builders import Scene, as_object
from tests.support.handles import said

NOW = "2026-01-01T12:00:00Z"
RESOURCES = ({"cpu": "4"}, {"cpu": "2500m", "memory": "8Gi"}, {"memory": "20Gi"}, {})


def node(name: str, reservation: Any = None, cpu: str = "32", memory: str = "64Gi", **notes: str) -> dict[str, Any]:
    kept = {keys.RESERVATION: reservation if isinstance(reservation, str) else json.dumps(reservation)}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    meta = {"name": name, "annotations": {**(kept if reservation is not None else {}), **notes}}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": meta, "spec": {}, "status": status}


def pod(name: str, cpu: str, memory: str = "1Gi", **labels: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    main = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    owner = {"kind": "ReplicaSet", "name": "app", "uid": "uid-app", "controller": True}
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "labels": labels, "ownerReferences": [owner]}
    spec = {"containers": [main], "schedulerName": "koordlite-scheduler"}
    return {"kind": "Pod", "metadata": {**meta, "annotations": {}}, "spec": spec, "status": {"phase": "Pending"}}


def put(scene: Scene, obj: dict[str, Any]) -> None:
    scene.cluster.put_node(msgspec.convert(obj, objects.NodeObject))


def refusal(scene: Scene, cpu: str, memory: str = "1Gi", **labels: str) -> str:
    _, refused = scene.filter(pod("asked", cpu, memory, **labels), "a")
    return refused.get("a", "")


@pytest.mark.parametrize(
    ("reservation", "cpu", "memory", "passes"),
    [
        pytest.param({"resources": {"cpu": "4"}}, "30", "1Gi", False, id="32 − 4 = 28 < 30"),
        pytest.param({"resources": {"cpu": "4"}}, "28", "1Gi", True, id="28 fit"),
        pytest.param({"reservedCPUs": "0-3"}, "29", "1Gi", False, id="by list"),
        pytest.param({"resources": {"cpu": "4"}, "applyPolicy": "ReservedCPUsOnly"}, "30", "1Gi", True, id="ids only"),
        pytest.param({"resources": {"memory": "4Gi"}}, "1", "61Gi", False, id="memory as well: 64 − 4 = 60 < 61"),
        pytest.param(None, "32", "64Gi", True, id="nothing is kept back"),
    ],
)
def test_a_pod_fits_beside_what_its_node_keeps_back(reservation: Any, cpu: str, memory: str, passes: bool) -> None:
    scene = Scene()
    put(scene, node("a", reservation))
    assert (refusal(scene, cpu, memory, **{keys.QOS_CLASS: "LS"}) == "") == passes


def test_the_refusal_has_its_numbers() -> None:
    scene = Scene()
    put(scene, node("a", {"resources": {"cpu": "4"}}))
    first = pod("first", "3")
    first["spec"]["nodeName"], first["status"] = "a", {"phase": "Running", "startTime": NOW}
    scene.cluster.put_pod(as_object(first))
    assert refusal(scene, "26") == (
        "node(s) with too little cpu beside node.koordinator.sh/reservation "
        "(it has 28 CPUs beside it, 3 CPUs are requested, the pod requests 26 CPUs)"
    )


def test_an_annotation_that_cannot_be_read_leaves_the_last_one_in_force(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    put(scene, node("a", {"resources": {"cpu": "4"}}))
    put(scene, node("a", "{"))
    assert refusal(scene, "30")
    assert "node.koordinator.sh/reservation" in caplog.text
    put(scene, node("a"))
    assert refusal(scene, "30") == ""


@pytest.mark.sliced
@pytest.mark.parametrize("seed", range(slices.amount(200, 20)))
def test_no_pod_is_placed_that_the_descheduler_would_move(seed: int) -> None:
    """Both in turns over a random cluster, whose nodes keep back other amounts from time to time."""
    random, scene, found = Random(seed), Scene(), list[Finding]()
    nodes: dict[str, Any] = {}
    pods: dict[str, Any] = {}
    for name in ("a", "b", "c"):
        amplified = {keys.AMPLIFICATION_RATIO: '{"cpu":1.5}'} if random.random() < 0.3 else {}
        reservation = {"resources": random.choice(RESOURCES), "applyPolicy": random.choice(["", "Default"])}
        nodes[name] = node(name, reservation, **amplified)
        put(scene, nodes[name])
    for step in range(30):
        asked = pod(f"p{step}", random.choice(["500m", "2", "5", "11"]), random.choice(["1Gi", "6Gi", "17Gi"]))
        # kube-scheduler's own part: what fits by what the node has in all.
        free = {name: scene.cluster.row(name) for name in nodes}
        passed, _ = scene.filter(asked, *(name for name, row in free.items() if row and _fits(asked, row)))
        if passed:
            chosen = random.choice(passed)
            asked["spec"]["nodeName"], asked["status"] = chosen, {"phase": "Running", "startTime": NOW}
            scene.cluster.put_pod(as_object(asked))
            pods[f"p{step}"] = asked
        found = _findings([*nodes.values(), *pods.values()])
        assert not found, (step, found)
    assert len(pods) > 5


def _fits(asked: dict[str, Any], row: Any) -> bool:
    used = [each.shape.total for each in row.pods]
    total = shape_of(as_object(asked)).total
    return all(sum(one.get(r, 0) for one in used) + total[r] <= row.allocatable[r] for r in ("cpu", "memory"))


def _findings(items: list[dict[str, Any]]) -> list[Finding]:
    read = files.Objects()
    for item in items:
        files.take(read, msgspec.json.encode(item), "test")
    answers = said(reserved_cpus, assemble.view(read, NOW))
    return [a for a in answers if isinstance(a, Finding) and a.reason == "OvercommittedBesideReserve"]
