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
from koordlite.reservation.pods import PodShape
from koordlite.reservation.world import World
from koordlite.scheduler.judgement import judge
from tests.scheduler.builders import Scene, as_object
from tests.scheduler.test_reservations import put as put_reservation
from tests.scheduler.test_reservations import reservation, stand_in
from tests.support.handles import said

NOW = "2026-01-01T12:00:00Z"
CPUS = {
    keys.CPU_TOPOLOGY: json.dumps(
        {"detail": [{"id": n, "core": n // 2, "socket": 0, "node": n // 16} for n in range(32)]}
    )
}
HALF = {"cpu": "16", "memory": "32Gi"}
RESOURCES = ({"cpu": "4"}, {"cpu": "2500m", "memory": "8Gi"}, {"memory": "20Gi"}, {})


def node(name: str, reservation: Any = None, cpu: str = "32", memory: str = "64Gi", **notes: str) -> dict[str, Any]:
    retained = {keys.RESERVATION: reservation if isinstance(reservation, str) else json.dumps(reservation)}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    meta = {"name": name, "annotations": {**(retained if reservation is not None else {}), **notes}}
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
@pytest.mark.parametrize("seed", range(slices.amount(200, 8)))
def test_no_pod_is_placed_that_the_descheduler_would_move(seed: int) -> None:
    """Both in turns over a random cluster, whose nodes keep back other amounts from time to time."""
    random, scene, findings = Random(seed), Scene(), list[Finding]()
    nodes: dict[str, Any] = {}
    pods: dict[str, Any] = {}
    for name in ("a", "b", "c"):
        amplified = {keys.AMPLIFICATION_RATIO: '{"cpu":1.5}'} if random.random() < 0.3 else {}
        reservation = {"resources": random.choice(RESOURCES), "applyPolicy": random.choice(["", "Default"])}
        nodes[name] = node(name, reservation, **amplified)
        put(scene, nodes[name])
    for step in range(30):
        request = pod(f"p{step}", random.choice(["500m", "2", "5", "11"]), random.choice(["1Gi", "6Gi", "17Gi"]))
        # kube-scheduler's own part: what fits by what the node has in all.
        free = {name: scene.cluster.row(name) for name in nodes}
        passed, _ = scene.filter(request, *(name for name, row in free.items() if row and _fits(request, row)))
        if passed:
            target = random.choice(passed)
            request["spec"]["nodeName"], request["status"] = target, {"phase": "Running", "startTime": NOW}
            scene.cluster.put_pod(as_object(request))
            pods[f"p{step}"] = request
        findings = _findings([*nodes.values(), *pods.values()])
        assert not findings, (step, findings)
    assert len(pods) > 5


@pytest.mark.sliced
@pytest.mark.parametrize("seed", range(slices.amount(200, 8)))
def test_none_either_with_cpus_of_their_own_and_reservations(seed: int) -> None:
    """The same on nodes that report their CPUs, with pods that get CPUs of their own, best-effort pods, nodes that keep
    back CPUs by list or only as ids, and Reservations whose placeholders make way for their owners."""
    random, scene = Random(seed), Scene()
    retained: tuple[Any, ...] = ({"reservedCPUs": "0-3"}, {"resources": {"cpu": "5", "memory": "9Gi"}}, {})
    retained += ({"reservedCPUs": "0-5", "applyPolicy": "ReservedCPUsOnly"},)
    objects_: dict[str, Any] = {}
    waiting: list[str] = []
    for name in ("a", "b", "c"):
        amplified = {keys.AMPLIFICATION_RATIO: json.dumps({"cpu": random.choice([1.5, 2.0])})}
        objects_[name] = node(name, random.choice(retained), cpu="32", **(amplified if random.random() < 0.6 else {}))
        put(scene, objects_[name])
        scene.report(name, HALF, HALF, policy="none", annotations=CPUS)

    def place(request: dict[str, Any]) -> bool:
        rows = {name: scene.cluster.row(name) for name in ("a", "b", "c")}
        passed, _ = scene.filter(request, *(name for name, row in rows.items() if row and _fits(request, row)))
        target = random.choice(passed) if passed else ""
        if not target or scene.bind(request, target):
            return False
        request["metadata"]["annotations"] = {**request["metadata"]["annotations"], **scene.api.bound[-1][2]}
        request["spec"]["nodeName"], request["status"] = target, {"phase": "Running", "startTime": NOW}
        scene.cluster.put_pod(as_object(request))
        objects_[request["metadata"]["name"]] = request
        return True

    for step in range(30):
        name, cpu = f"p{step}", random.choice(["1", "2", "4", "8"])
        labels = random.choice([{}, {keys.QOS_CLASS: "LSR", keys.PRIORITY_CLASS: "koord-prod"}, {keys.QOS_CLASS: "BE"}])
        request = pod(name, cpu, random.choice(["1Gi", "6Gi"]), **labels)
        if (kind := random.random()) < 0.2:
            request = stand_in(pod(f"reservation-uid-r{step}-0", cpu, **labels), f"r{step}")
            if place(request):
                where = request["spec"]["nodeName"]
                status = {"allocatable": {"cpu": cpu, "memory": "1Gi"}}
                put_reservation(scene, reservation(f"r{step}", where, cpu, status=status))
                waiting.append(f"r{step}")
        elif kind < 0.4 and waiting:
            holding = waiting.pop(random.randrange(len(waiting)))
            stand = objects_.pop(f"reservation-uid-{holding}-0")
            cpu = stand["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            own = pod(name, cpu, **{**stand["metadata"]["labels"], "app": holding})
            own["metadata"]["labels"].pop(keys.RESERVATION_UID)
            scene.cluster.remove_pod(f"ns/reservation-uid-{holding}-0")
            row = scene.cluster.row(stand["spec"]["nodeName"])
            assert place(own) or (row and not row.limits), "what the placeholder held is there for its owner"
            scene.cluster.remove_reservation(holding)
        else:
            place(request)
        findings = _findings(list(objects_.values()))
        assert not findings, (step, request["metadata"], findings)
    assert sum(each["kind"] == "Pod" for each in objects_.values()) > 5


def test_a_node_that_keeps_much_back_is_rated_by_the_rest() -> None:
    """16 CPUs on each NUMA node and 32 in all, of which 28 are kept back: 4 are left, and 2 of 4 is half."""
    scene = Scene()
    for name, reservation_ in (("a", None), ("b", {"resources": {"cpu": "28"}})):
        put(scene, node(name, reservation_))
        scene.report(name, HALF, HALF)
    request = pod("asked", "2", "16Gi")
    shape, rows = PodShape(as_object(request)), {name: scene.cluster.row(name) for name in ("a", "b")}
    # (14/16 + 16/32) / 2 and (2/4 + 16/32) / 2
    points = {name: judge.points(shape, row, scene.cluster.settings) for name, row in rows.items() if row}
    assert points == {"a": 68, "b": 50}
    assert scene.filter(request, "a", "b")[0] == ["a", "b"]
    assert dict(scene.extender.prioritize(as_object(request), ["a", "b"])) == {"a": 10, "b": 0}


def test_the_controller_sees_no_room_where_the_extender_sees_none() -> None:
    world = World()
    world.put_node(msgspec.convert(node("a", {"resources": {"cpu": "4"}}), objects.NodeObject))
    where = world.capacity("a")
    assert where is not None
    assert (where.allocatable["cpu"], where.allocatable["memory"]) == (28_000, 64 * 2**30)
    world.put_node(msgspec.convert(node("a", "{"), objects.NodeObject))
    assert (second := world.capacity("a")) and second.allocatable["cpu"] == 28_000, "what it said before holds"


def _fits(request: dict[str, Any], row: Any) -> bool:
    used = [each.shape.total for each in row.pods]
    total = PodShape(as_object(request)).total
    return all(sum(one.get(r, 0) for one in used) + total[r] <= row.allocatable[r] for r in ("cpu", "memory"))


def _findings(items: list[dict[str, Any]]) -> list[Finding]:
    read = files.Objects()
    for item in items:
        files.take(read, msgspec.json.encode(item), "test")
    answers = said(reserved_cpus, assemble.view(read, NOW))
    return [a for a in answers if isinstance(a, Finding) and a.reason == "OvercommittedBesideReserve"]
