"""What has to move so that a pod fits, by the extender's own judges: moves that hold once made, and the fewest."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import slices

from koordlite.model import keys
from koordlite.model.wire import objects
from koordlite.scheduler import making_room
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.report import texts
from koordlite.scheduler.service import Courtesy
from tests.scheduler.builders import Scene, bound, pod

ZONE = 8
"""CPUs of a NUMA node; each node has two."""
DAEMON_SET = {"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
Placed = dict[str, tuple[str, int]]
"""Node and NUMA node by pod."""


def no_pause() -> None:
    """Nobody else runs."""


def owned(obj: Any) -> Any:
    owner = {"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


def world(nodes: tuple[str, ...], placed: Placed, cpus: dict[str, int], **fields: Any) -> Scene:
    """Pods of so many CPUs where `placed` says, as their nodes' reports have counted them."""
    scene = Scene()
    for node in nodes:
        here = {name: zone for name, (at, zone) in placed.items() if at == node}
        zones = [ZONE - sum(cpus[name] for name, zone in here.items() if zone == each) for each in (0, 1)]
        running = [owned(pod(name, str(cpus[name]), **fields.get(name, {}))) for name in here]
        for each in running:
            scene.put(bound(each, node))
        free = [{"cpu": str(remaining), "memory": "60Gi"} for remaining in zones]
        rows = ",".join(
            f'{{"namespace":"ns","pod":"{name}","uid":"uid-{name}","container":"c","source":"kubelet",'
            f'"exclusive":true,"promisedNodes":[{zone}]}}'
            for name, zone in here.items()
        )
        notes = {keys.PLACEMENT: f'{{"observedAt":"2026-01-01T00:00:00Z","generation":1,"containers":[{rows}]}}'}
        obj = {"metadata": {"name": node}, "status": {"allocatable": {"cpu": "16", "memory": "128Gi", "pods": "110"}}}
        scene.cluster.put_node(msgspec.convert(obj, objects.NodeObject))
        most = {"cpu": str(ZONE), "memory": "64Gi"}
        scene.report(node, *free, signed=running, totals=most, annotations=notes)
    return scene


def explain(scene: Scene, waiting: Any) -> Any:
    scene.put(waiting)
    result = making_room.document(scene.extender, "ns/w", no_pause)
    assert result is not None
    return result


def moves(document: Any) -> list[tuple[str, str, str]]:
    return [(each["pod"], each["node"], each["to"]) for each in document["makeRoom"]["nodes"][0]["moves"]]


FULL: Placed = {"x": ("a", 0), "y": ("a", 1), "z": ("b", 0)}
CPUS = {"x": 4, "y": 4, "z": 5}


def test_nodes_are_grouped_by_what_is_against_them_with_the_nearest() -> None:
    scene = world(("a", "b"), FULL, CPUS)
    scene.node("c", {"cpu": "4", "memory": "60Gi"}, {"cpu": "0", "memory": "60Gi"}, signed=[])
    scene.put(bound(pod("hog", "60"), "c"))
    document = explain(scene, pod("w", "7"))
    assert (document["fits"], "makeRoom" in document) == (["b"], False), "nothing has to move"
    assert {group["why"]: (group["nodes"], group["nearest"]) for group in document["groups"]} == {
        "too little cpu in all": (1, "most on c, which has cpu 4 left"),
        "cannot align container": (1, "a: container c asks cpu 7; NUMA node 0 has 4, NUMA node 1 has 4"),
    }
    scene.filter(pod("w", "7"), "a", "b")
    assert explain(scene, pod("w", "7"))["fits"] == ["b"], "it is kept there, and not in its own way"


def test_the_pod_that_leaves_frees_one_numa_node_and_has_one_elsewhere() -> None:
    waiting, more = pod("w", "7", priority=9), {"priority": 5}
    scene = world(("a", "b"), {**FULL, "v": ("b", 1)}, {**CPUS, "v": 2}, x=more, y=more)
    scene.filter(waiting, "a", "b")
    document = explain(scene, waiting)
    assert moves(document) == [("ns/v", "b", "a")], "the least important that is enough"
    assert document["makeRoom"]["nodes"][0]["placed"] == "NUMA node 1"
    assert document["makeRoom"]["nodes"][0]["moves"][0]["about"] == "Guaranteed, NUMA node 0"
    assert document["makeRoom"]["exact"] is True
    output = list(texts.pod({"pod": "ns/w", "waiting": document}))
    assert "  room on    b, after 1 move; highest priority 0" in output
    assert "    move   ns/v from b to a (Guaranteed, NUMA node 0)" in "\n".join(output)
    assert any("`descheduler explain` knows them" in line for line in output)


@pytest.mark.parametrize(
    ("why", "allocated"),
    [
        ("nothing would make it anew", {"ownerReferences": []}),
        ("it is more important", {"priority": 10}),
        ("its nodeSelector may bind it", {"nodeSelector": {"disk": "ssd"}}),
        ("its volume may bind it", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
        ("a DaemonSet keeps it", {"ownerReferences": [DAEMON_SET]}),
    ],
)
def test_pods_that_stay(why: str, allocated: dict[str, Any]) -> None:
    placed = {"x": ("a", 0), "y": ("a", 1), "z": ("b", 0), "v": ("b", 1)}
    scene = world(("a", "b"), placed, dict.fromkeys(placed, 4))
    waiting = pod("w", "8")
    assert moves(explain(scene, waiting)), "one of them may go"
    for name, (node, _) in placed.items():
        obj = bound(owned(pod(name, "4")), node)
        obj["spec"].update({field: value for field, value in allocated.items() if field != "ownerReferences"})
        obj["metadata"]["ownerReferences"] = allocated.get("ownerReferences", obj["metadata"]["ownerReferences"])
        scene.put(obj)
    assert explain(scene, waiting)["makeRoom"]["nodes"] == [], why


def test_a_pod_on_its_way_to_a_node_is_not_evicted_from_it() -> None:
    scene = Scene()
    for node, cpu in (("a", "45"), ("b", "40")):
        scene.node(node)
        scene.put(bound(pod(f"on-{node}", cpu), node))
    coming, waiting = owned(pod("v", "10")), pod("w", "20")
    scene.put(coming)
    assert scene.schedule(coming, "b") == "b"
    assert explain(scene, waiting)["makeRoom"]["nodes"] == [], "it is not there yet"
    scene.put(bound(coming, "b"))
    assert moves(explain(scene, waiting)) == [("ns/v", "b", "a")]


def test_a_fault_of_ours_about_one_node_costs_that_node(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = world(("a", "b"), {**FULL, "v": ("b", 1)}, {**CPUS, "v": 2})

    def faulty(real: Any) -> Any:
        def judged(shape: Any, row: Any, settings: Any) -> Any:
            if row.name == "a":
                raise RuntimeError("broken")
            return real(shape, row, settings)

        return judged

    for name in ("refusal", "verdict"):
        monkeypatch.setattr(judge, name, faulty(getattr(judge, name)))
    groups = {group["why"][:40]: group["nodes"] for group in explain(scene, pod("w", "7"))["groups"]}
    assert groups == {"judgement of a node: a fault of the prog": 1, "cannot align container": 1}


def test_nobody_goes_to_a_tainted_node_nor_is_room_made_where_the_scheduler_does_not_ask() -> None:
    scene = world(("a", "b", "c"), {"x": ("a", 0), "y": ("a", 1)}, {"x": 4, "y": 4})
    waiting = pod("w", "8")
    scene.filter(waiting, "a")
    document = explain(scene, waiting)
    assert {g["why"]: g["nodes"] for g in document["groups"]} == {
        "kube-scheduler did not ask about them: what it alone knows is against them": 2,
        "cannot align container": 1,
    }
    assert {to for _, _, to in moves(document)} <= {"b", "c"}
    for name in ("b", "c"):
        tainted = {
            "metadata": {"name": name},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "16", "memory": "128Gi", "pods": "110"}},
        }
        scene.cluster.put_node(msgspec.convert(tainted, objects.NodeObject))
    document = explain(scene, waiting)
    assert document["makeRoom"]["nodes"] == []
    assert document["groups"][0]["why"] == "cordoned or tainted, and the pod's tolerations are not known here"


def test_pods_that_are_bound_or_unknown_wait_for_nothing() -> None:
    scene = world(("a",), FULL | {"z": ("a", 0)}, {**CPUS, "z": 1})
    assert making_room.document(scene.extender, "ns/x", no_pause) is None
    assert making_room.document(scene.extender, "ns/never", no_pause) is None


def fewest(nodes: tuple[str, ...], placed: Placed, cpus: dict[str, int], ask: int, most: int) -> int | None:
    """The fewest moves by trying all: who leaves, who settles where in which order, on the lowest free NUMA node."""

    def zone_for(state: Placed, node: str, amount: int) -> int | None:
        for zone in (0, 1):
            if ZONE - sum(cpus[name] for name, at in state.items() if at == (node, zone)) >= amount:
                return zone
        return None

    def settled(state: Placed, order: tuple[str, ...]) -> bool:
        if not order:
            return True
        name, *remainder = order
        for node in nodes:
            zone = zone_for(state, node, cpus[name])
            if (
                node != placed[name][0]
                and zone is not None
                and settled({**state, name: (node, zone)}, tuple(remainder))
            ):
                return True
        return False

    for count in range(most + 1):
        for leaving in itertools.combinations(placed, count):
            state = {name: at for name, at in placed.items() if name not in leaving}
            for node in nodes:
                zone = zone_for(state, node, ask)
                if zone is None:
                    continue
                cpus["w"] = ask
                after = {**state, "w": (node, zone)}
                if any(settled(after, order) for order in itertools.permutations(leaving)):
                    return count
    return None


def scattered(seed: int) -> Iterator[tuple[tuple[str, ...], Placed, dict[str, int], int]]:
    dice = random.Random(seed)
    nodes = ("a", "b", "c")[: dice.randint(2, 3)]
    placed: Placed = {}
    cpus: dict[str, int] = {}
    free = {(node, zone): ZONE for node in nodes for zone in (0, 1)}
    for number in range(dice.randint(3, 7)):
        amount, at = dice.randint(1, 5), dice.choice(sorted(free))
        if free[at] >= amount:
            placed[f"p{number}"], cpus[f"p{number}"] = at, amount
            free[at] -= amount
    ask = min(ZONE, max(free.values()) + dice.randint(1, 3))
    if ask > max(free.values()):
        yield nodes, placed, cpus, ask


@pytest.mark.sliced
def test_the_moves_hold_when_they_are_made_and_no_fewer_would_do() -> None:
    answered = 0
    for seed in range(slices.amount(2000, 300)):
        for nodes, placed, cpus, ask in scattered(seed):
            scene = world(nodes, placed, cpus)
            document = explain(scene, pod("w", str(ask)))
            assert document["fits"] == []
            best = document["makeRoom"]["nodes"][:1]
            least = fewest(nodes, placed, dict(cpus), ask, making_room.MOST_MOVES)
            if not best:
                assert least is None, f"seed {seed}: {least} moves do, and none were found"
                continue
            answered += 1
            assert len(best[0]["moves"]) == least, f"seed {seed}"
            obj = world(nodes, _after(best[0], nodes, placed, cpus, ask), {**cpus, "w": ask})
            total = {node: obj.zones(node) for node in nodes}
            assert all(free >= 0 for zones in total.values() for free in zones), f"seed {seed}: {total}"
    assert answered > slices.amount(200, 30)


def _after(room: Any, nodes: tuple[str, ...], placed: Placed, cpus: dict[str, int], ask: int) -> Placed:
    """Where everybody is once the moves were made: each on the lowest NUMA node that is free, one after the other."""
    removed = {each["pod"].removeprefix("ns/"): each["to"] for each in room["moves"]}
    state = {name: at for name, at in placed.items() if name not in removed}
    sizes = {**cpus, "w": ask}
    for name, node in (("w", room["node"]), *removed.items()):
        free = [ZONE - sum(sizes[other] for other, at in state.items() if at == (node, zone)) for zone in (0, 1)]
        zone = next((zone for zone in (0, 1) if free[zone] >= sizes[name]), None)
        assert zone is not None, f"{name} has no NUMA node on {node}: {free}"
        state[name] = (node, zone)
    return state


def test_a_search_leaves_the_cluster_as_it_is_and_answers_alike_twice() -> None:
    scene = world(("a", "b"), {**FULL, "v": ("b", 1)}, {**CPUS, "v": 2})
    before = {name: scene.zones(name) for name in ("a", "b")}
    first, second = (explain(scene, pod("w", "7")) for _ in range(2))
    assert first == second
    assert {name: scene.zones(name) for name in ("a", "b")} == before
    assert scene.schedule(bound(pod("w", "7"), ""), "a", "b") == "", "nothing has moved"


def test_a_question_of_the_scheduler_is_answered_while_room_is_looked_for() -> None:
    scene = world(("a", "b"), {**FULL, "v": ("b", 1)}, {**CPUS, "v": 2})
    scene.put(pod("w", "7"))
    inside, answered = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert answered.wait(10), "the filter waits for the search"

    search = threading.Thread(target=making_room.document, args=(scene.extender, "ns/w", pause))
    search.start()
    assert inside.wait(10)
    assert scene.filter(pod("other", "2"), "a", "b")[0] == ["a", "b"]
    scene.put(bound(pod("new", "1"), "a"))
    answered.set()
    search.join(10)
    assert not search.is_alive()


def test_a_search_lets_others_run_once_a_millisecond_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    clock = iter([0.0, 0.0005, 0.002, 0.0021, 0.0025])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", rests.append)
    courtesy = Courtesy()
    for _ in range(3):
        courtesy()
    assert len(rests) == 1
