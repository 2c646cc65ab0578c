"""A pod moves by reservation on a stock scheduler: descheduler, reservation controller and extender against one API
server; every way to fail, and each process dead at each of its writes."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable, Iterator

import pytest
import slices
from apiserver import ApiServer, ManualClock
from migrationloop import RESERVATIONS, START, Death, Loop

from koordlite.model import keys

Begin = Callable[[Loop], None]


@pytest.fixture
def loop(tmp_path: pathlib.Path) -> Iterator[Loop]:
    clock = ManualClock(START)
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        yield Loop(server, clock, tmp_path)


def left_over(loop: Loop) -> list[str]:
    """What a migration leaves behind that is over, once jobs and reservations have been kept for their time."""
    loop.run(1, seconds=3 * 24 * 3600)
    loop.run(3)
    kinds = [
        f"{kind} {each['metadata']['name']}" for kind in ("PodMigrationJob", "Reservation") for each in loop.all(kind)
    ]
    nominated = [
        f"nomination of {name}"
        for name, pod in loop.pods().items()
        if not pod["spec"].get("nodeName") and (pod.get("status") or {}).get("nominatedNodeName")
    ]
    return [*kinds, *(f"placeholder {pod['metadata']['name']}" for pod in loop.placeholders()), *nominated]


def moved(loop: Loop) -> None:
    """A pod of two has moved, once, to the place that was held for it."""
    job = loop.job()
    assert (job["status"]["phase"], job["status"].get("message", "")[:4]) == ("Succeeded", "Bind")
    node = job["status"]["nodeName"]
    assert loop.nodes_of_pods() == sorted(["old", node])
    (place,) = loop.all("Reservation")
    assert (place["status"]["phase"], place["status"]["nodeName"]) == ("Succeeded", node)
    owner = place["status"]["currentOwners"][0]
    assert job["status"]["podRef"]["uid"] == owner["uid"]
    pod = loop.pods()[owner["name"]]
    assert pod["spec"]["nodeName"] == node
    assert place["metadata"]["uid"] in pod["metadata"]["annotations"][keys.RESERVATION_ALLOCATED]
    assert loop.placeholders() == []
    evicted = [asked for asked in loop.server.requests if asked.resource == "pods/eviction" and asked.status < 300]
    assert len(evicted) == 1


def test_a_pod_moves_to_the_place_that_was_held_for_it(loop: Loop) -> None:
    loop.plan()
    loop.run(12)
    moved(loop)
    assert left_over(loop) == []


WRITES = 17
"""Of all processes together, on the way without a death."""
FIRST = (13, 5, 15, 1)
"""In the hand-over, between reservation and job, after the successor is bound, and at the very first."""
DEATHS = [(at, after) for after in (True, False) for at in (*FIRST, *{*range(1, WRITES + 1)}.difference(FIRST))]


@pytest.mark.sliced
@pytest.mark.parametrize("when", slices.first(DEATHS, 4), ids=str)
def test_the_pod_moves_once_whichever_process_dies_before_or_after_whichever_write(
    tmp_path: pathlib.Path, when: tuple[int, bool]
) -> None:
    clock, death = ManualClock(START), Death(when[0], after=when[1])
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        loop = Loop(server, clock, tmp_path, death)
        loop.plan()
        loop.run(16)
        assert death.happened
        assert loop.promised_twice() == []
        moved(loop)
        assert left_over(loop) == []


@pytest.mark.sliced
@pytest.mark.parametrize("seed", slices.first(range(40), 3))
def test_the_pod_moves_once_though_descheduler_and_controller_die_eight_times_in_turn(
    tmp_path: pathlib.Path, seed: int
) -> None:
    chance = random.Random(seed)
    clock, death = ManualClock(START), Death(chance.randint(1, 3), after=seed % 2 == 0, count=8, chance=chance)
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        loop = Loop(server, clock, tmp_path, death)
        loop.plan()
        loop.run(40)
        assert loop.promised_twice() == []
        moved(loop)
        assert death.happened == 8
        assert left_over(loop) == []


def blocked(loop: Loop) -> None:
    """A disruption budget lets no pod go; the place is held."""
    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}
    path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
    loop.plan()
    loop.api.request("POST", path, body={"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget})
    loop.run(6)
    assert loop.job()["status"]["reason"] in ("FailedEvict", "Evicting")
    assert len(loop.placeholders()) == 1


def nowhere(loop: Loop) -> None:
    for name in ("a", "b"):
        loop.pod("other", f"full-{name}", name, cpu=3)
    loop.plan()
    loop.run(4)
    assert loop.job()["status"]["reason"] == "Unschedulable"
    assert loop.job()["status"]["phase"] == "Running", "a node may become free"


def node_gone(loop: Loop) -> None:
    blocked(loop)
    node = loop.job()["status"]["nodeName"]
    for pod in loop.placeholders():
        loop.server.objects.remove("Pod", pod["metadata"]["name"], "shop")
    loop.server.objects.remove("Node", node)


def reservation_deleted(loop: Loop) -> None:
    blocked(loop)
    loop.api.request("DELETE", f"{RESERVATIONS}/{loop.all('Reservation')[0]['metadata']['name']}")


def pod_gone(loop: Loop) -> None:
    nowhere(loop)
    loop.server.objects.remove("Pod", loop.job()["spec"]["podRef"]["name"], "shop")
    loop.server.objects.remove("Pod", "full-a", "shop")


def taken_by_another(loop: Loop) -> None:
    """The workload grows, and its new pod has the same right to the place."""
    blocked(loop)
    loop.replicas["web"] = 3


def never_ready(loop: Loop) -> None:
    loop.unready.add("web")
    loop.plan()
    loop.run(10)
    assert loop.job()["status"]["status"] == "BoundPodReady"


def without_extender(loop: Loop) -> None:
    """The successor goes where there is most room, and the place is on the other node."""
    loop.with_extender = False
    loop.plan()
    loop.run(4)
    place = loop.all("Reservation")[0]["status"]["nodeName"]
    loop.run(6)
    assert place not in loop.nodes_of_pods()


def without_controller(loop: Loop) -> None:
    loop.reserver.may = False
    loop.plan()
    loop.run(3)


@pytest.mark.parametrize(
    ("begin", "reason", "seconds"),
    [
        pytest.param(nowhere, "Timeout", 400, id="no node has room"),
        pytest.param(node_gone, "ReservationExpired", 0, id="the node of the place goes"),
        pytest.param(reservation_deleted, "MissingReservation", 0, id="the reservation is deleted"),
        pytest.param(pod_gone, "MissingPod", 0, id="the pod goes by itself"),
        pytest.param(taken_by_another, "ForbiddenMigratePod", 0, id="another pod of the workload takes the place"),
        pytest.param(blocked, "Timeout", 400, id="a disruption budget never lets it go"),
        pytest.param(never_ready, "Timeout", 400, id="the successor is never ready"),
        pytest.param(without_extender, "Timeout", 400, id="no extender keeps the successor from other nodes"),
        pytest.param(without_controller, "Timeout", 400, id="nobody places reservations"),
    ],
)
def test_a_move_that_fails_says_why_and_leaves_nothing(loop: Loop, begin: Begin, reason: str, seconds: float) -> None:
    begin(loop)
    loop.clock.advance(seconds)
    loop.run(4)
    job = loop.job()
    assert (job["status"]["phase"], job["status"]["reason"]) == ("Failed", reason)
    assert loop.placeholders() == [], "the place is given back at once"
    evicted = [asked for asked in loop.server.requests if asked.resource == "pods/eviction" and asked.status < 300]
    assert bool(evicted) is (begin in (never_ready, without_extender)), "nothing is evicted without a place"
    assert loop.promised_twice() == []
    assert left_over(loop) == []


@pytest.mark.sliced
@pytest.mark.parametrize("at", slices.first([9, *range(1, 9), *range(10, 15)], 1))
@pytest.mark.parametrize("begin", [taken_by_another, node_gone, reservation_deleted])
def test_a_death_on_the_way_to_a_failure_leaves_nothing_either(tmp_path: pathlib.Path, begin: Begin, at: int) -> None:
    clock = ManualClock(START)
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        loop = Loop(server, clock, tmp_path, Death(at, after=at % 2 == 0))
        begin(loop)
        loop.run(6)
        loop.run(4, seconds=10.0)  # An eviction whose answer was lost is asked for again after 30 s.
        assert loop.job()["status"]["phase"] == "Failed"
        assert "old" in loop.nodes_of_pods(), "nothing is evicted without a place"
        assert loop.promised_twice() == []
        assert left_over(loop) == []


@pytest.mark.parametrize("gone", ["job", "descheduler"])
def test_a_place_that_nobody_moves_to_any_more_ends_by_itself(loop: Loop, gone: str) -> None:
    blocked(loop)
    if gone == "job":
        loop.server.objects.remove("PodMigrationJob", loop.job()["metadata"]["name"])
    else:
        loop.with_descheduler = False
    loop.run(2)
    assert len(loop.placeholders()) == 1
    loop.clock.advance(400)
    loop.run(2)
    assert loop.placeholders() == []
    assert [place["status"]["phase"] for place in loop.all("Reservation")] == ["Failed"]
    loop.with_descheduler = True
    assert left_over(loop) == []
