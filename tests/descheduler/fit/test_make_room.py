"""Room for a waiting pod: the moves that are found work, and no fewer do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import slices

from descheduler.fit import room
from descheduler.fit.search import FitSearch, Place
from descheduler.framework import PodView, View
from koordlite.formulas.make_room import Rooms
from koordlite.model import keys
from tests.descheduler.conftest import Cluster

RULE = "requiredDuringSchedulingIgnoredDuringExecution"


def waiting(cluster: Cluster, name: str = "big", **more: Any) -> Any:
    obj = cluster.pod(name, "", **more)
    obj["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    return obj


def found(view: View, objection: room.Objection = lambda _: "", most: int = 3) -> Rooms[PodView]:
    (pod,) = view.unbound
    return room.find(view, FitSearch(view), pod, inside="", objection=objection, most_moves=most)


def told(rooms: Rooms[PodView]) -> list[tuple[str, list[str]]]:
    return [(one.node, [f"{move.item.pod.name}→{move.node}" for move in one.moves]) for one in rooms.rooms]


def alone(obj: Any, label: str) -> Any:
    """The pod shares no node with another of the same label."""
    obj["metadata"]["labels"] = {"app": label}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": label}}}
    obj["spec"]["affinity"] = {"podAntiAffinity": {RULE: [term]}}
    return obj


def test_the_fewest_moves_and_the_cheapest_of_them(cluster: Cluster) -> None:
    for name, cpu in (("a", "8"), ("b", "8"), ("c", "4")):
        cluster.node(name, cpu=cpu)
    cluster.pod("a1", "a", cpu="4", owner="x")
    cluster.pod("a2", "a", cpu="3", owner="y")
    cluster.pod("b1", "b", cpu="4", owner="z", annotations={keys.EVICTION_COST: "5"})
    cluster.pod("b2", "b", cpu="3", owner="z")
    waiting(cluster, cpu="5")
    rooms = found(cluster.view())
    assert told(rooms) == [("a", ["a1→c"]), ("b", ["b1→c"])]
    assert rooms.exact and [one.cost.eviction_cost for one in rooms.rooms] == [0, 5]


def test_a_pod_that_fits_needs_no_move(cluster: Cluster) -> None:
    cluster.node("a")
    waiting(cluster)
    assert told(found(cluster.view())) == [("a", [])]


def test_what_is_moved_away_may_have_to_be_made_room_for_as_well(cluster: Cluster) -> None:
    cluster.node("a", cpu="8", labels={"disk": "ssd"})
    cluster.node("b", cpu="4")
    cluster.node("c", cpu="2")
    cluster.pod("large", "a", cpu="4", owner="x")
    cluster.pod("small", "b", cpu="2", owner="y")
    cluster.pod("rest", "a", cpu="2", owner="r")["metadata"]["annotations"][keys.EVICTION_COST] = "9"
    waiting(cluster, cpu="6")["spec"]["nodeSelector"] = {"disk": "ssd"}
    assert told(found(cluster.view())) == [("a", ["large→b", "small→c"])]
    assert told(found(cluster.view(), most=1)) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda pods: "a guard", "the pods that may leave hold too little", id="nothing may go"),
        pytest.param(
            lambda pods: "a budget" if len(pods) > 1 else "",
            "the pods that would have to leave fit nowhere else, or may not all go",
            id="not both may go",
        ),
    ],
)
def test_where_there_is_no_room_it_says_why(cluster: Cluster, change: room.Objection, why: str) -> None:
    cluster.node("a", cpu="8")
    cluster.node("b", cpu="4")
    for name in ("p", "q", "r", "s"):
        cluster.pod(name, "a", owner=name)
    waiting(cluster, cpu="4")
    cluster.pod("t", "b", cpu="1", owner="t")
    rooms = found(cluster.view(), change)
    assert (rooms.rooms, rooms.exact) == ((), True)
    assert why in rooms.why_not
    assert sum(rooms.why_not.values()) == 2


def test_nobody_moves_for_one_that_is_less_important(cluster: Cluster) -> None:
    cluster.node("a", cpu="4")
    cluster.node("b", cpu="4")
    cluster.pod("p", "a", cpu="3")["spec"]["priority"] = 10
    cluster.pod("q", "b", cpu="2")["spec"]["priority"] = 10
    pod = waiting(cluster, cpu="3")
    pod["spec"]["priority"] = 5
    assert found(cluster.view()).best is None
    pod["spec"]["priority"] = 10
    assert told(found(cluster.view())) == []
    cluster.node("c", cpu="2")
    assert told(found(cluster.view())) == [("b", ["q→c"])]


def test_numa_nodes_count_for_those_that_move(cluster: Cluster) -> None:
    """Of two pods with CPUs of their own only one finds a whole NUMA node elsewhere."""
    for name in ("a", "b"):
        cluster.node(name)
        cluster.report(name)
    cluster.pinned("wide", "a", "0-5", single=True)
    cluster.pinned("narrow", "a", "8-11", single=True)
    cluster.pinned("there-0", "b", "0-3", single=True)
    cluster.pinned("there-1", "b", "8-11", single=True)
    waiting(cluster, cpu="9")
    rooms = found(cluster.view())
    assert told(rooms) == [("a", ["narrow→b"]), ("b", ["there-0→a"])], "six CPUs of one NUMA node are free nowhere"
    assert list(replayed(cluster.view(), rooms)) == []


def places(view: View, fit: FitSearch) -> dict[str, Any]:
    return {pod.key: (fit.search(pod).places, fit.search(pod).why_not) for pod in view.everything()}


def small_cluster(seed: int) -> tuple[Cluster, Mapping[str, Any]]:
    """Up to four nodes and ten pods that ask for CPUs and memory; some are alone on a node, some have budgets."""
    chance, cluster = random.Random(seed), Cluster()
    nodes = [f"n{i}" for i in range(chance.randint(2, 4))]
    size = {name: (chance.randint(4, 9), chance.randint(4, 9)) for name in nodes}
    for name, (cpu, memory) in size.items():
        cluster.node(name, cpu=str(cpu), memory=f"{memory}Gi")
    free = {name: list(amounts) for name, amounts in size.items()}
    pods: dict[str, Any] = {}
    for number in range(chance.randint(3, 12)):
        cpu, memory, node = chance.randint(1, 3), chance.randint(1, 3), chance.choice(nodes)
        group = chance.choice(["", "", "", "g", "h"])
        with_same = [one for one in pods.values() if group and one["group"] == group and one["node"] == node]
        if free[node][0] < cpu or free[node][1] < memory or with_same:
            continue
        free[node][0] -= cpu
        free[node][1] -= memory
        name, budget = f"p{number}", chance.choice(["", "", "one", "none"])
        obj = cluster.pod(name, node, cpu=str(cpu), memory=f"{memory}Gi", owner=f"o{number % 4}")
        obj["metadata"]["labels"] = {"budget": budget}
        cost = chance.randint(0, 3)
        obj["metadata"]["annotations"] = {keys.EVICTION_COST: str(cost)}
        if group:
            alone(obj, group)["metadata"]["labels"]["budget"] = budget
        pods[name] = {"cpu": cpu, "memory": memory, "node": node, "group": group, "budget": budget, "cost": cost}
    most = [max(amounts[i] for amounts in free.values()) + chance.choice([0, 1, 1, 2, 3]) for i in range(2)]
    big = {"cpu": max(most[0], 1), "memory": max(most[1], 1), "group": chance.choice(["", "", "g"])}
    obj = waiting(cluster, cpu=str(big["cpu"]), memory=f"{big['memory']}Gi")
    if big["group"]:
        alone(obj, big["group"])
    return cluster, {"size": size, "pods": pods, "big": big}


def together(pods: Sequence[PodView]) -> str:
    """Of pods with the budget `one` one may go, of those with `none` none."""
    budgets = [pod.pod.labels.get("budget") for pod in pods]
    return "none" if "none" in budgets else "one" if budgets.count("one") > 1 else ""


def optimum(model: Mapping[str, Any], most: int) -> tuple[int, int] | None:
    """The fewest moves, and the least cost of so many, by trying everything: which pods go, and where to."""
    nodes, pods = list(model["size"]), model["pods"]
    movable = [name for name, pod in pods.items() if pod["budget"] != "none"]
    for count in range(most + 1):
        costs = [
            sum(pods[name]["cost"] for name in going)
            for going in itertools.combinations(movable, count)
            if sum(pods[name]["budget"] == "one" for name in going) <= 1 and any(rearranged(model, going, nodes))
        ]
        if costs:
            return count, min(costs)
    return None


def rearranged(model: Mapping[str, Any], going: Sequence[str], nodes: Sequence[str]) -> Iterator[bool]:
    pods = model["pods"]
    for target, *homes in itertools.product(nodes, repeat=1 + len(going)):
        if all(home != pods[name]["node"] for name, home in zip(going, homes, strict=True)):
            where = {**{name: pod["node"] for name, pod in pods.items()}, **dict(zip(going, homes, strict=True))}
            yield fits(model, where, target)


def fits(model: Mapping[str, Any], where: Mapping[str, str], target: str) -> bool:
    for node, (cpu, memory) in model["size"].items():
        here = [model["pods"][name] for name, home in where.items() if home == node]
        here += [model["big"]] if node == target else []
        groups = [pod["group"] for pod in here if pod["group"]]
        if sum(pod["cpu"] for pod in here) > cpu or sum(pod["memory"] for pod in here) > memory:
            return False
        if len(set(groups)) < len(groups):
            return False
    return True


def replayed(view: View, rooms: Rooms[PodView]) -> Iterator[str]:
    """What is wrong with the best room when its moves are made one after the other in a fresh search."""
    best = rooms.best
    if best is None:
        return
    fit, (pod,) = FitSearch(view), view.unbound
    for move in best.moves:
        fit.leave(move.item)
    for item, node in ((pod, best.node), *best.moves):
        why, bookings = fit.answer(item, node)
        if why:
            yield f"{item.key} does not fit on {node}: {why}"
        fit.move(item, Place(node, bookings=bookings))


@pytest.mark.sliced
@pytest.mark.parametrize("batch", slices.first(list(range(20)), 2))
def test_it_finds_the_fewest_moves_that_there_are(batch: int) -> None:
    for seed in range(batch * 100, batch * 100 + 100):
        cluster, model = small_cluster(seed)
        view = cluster.view()
        rooms = found(view, together)
        assert list(replayed(view, rooms)) == [], seed
        best = rooms.best
        assert (best and (len(best.moves), best.cost.eviction_cost)) == optimum(model, 3), (seed, rooms.exact)
        assert best is None or together([move.item for move in best.moves]) == ""


@pytest.mark.parametrize("seed", range(30))
def test_an_attempt_leaves_no_trace_and_says_the_same_twice(seed: int) -> None:
    view = small_cluster(seed)[0].view()
    fit, (pod,) = FitSearch(view), view.unbound
    before, capacities = places(view, fit), dict(fit.by_node)
    first = room.find(view, fit, pod, inside="", objection=together, most_moves=3)
    assert (places(view, fit), fit.by_node) == (before, capacities)
    assert room.find(view, fit, pod, inside="", objection=together, most_moves=3) == first
