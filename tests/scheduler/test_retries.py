"""Pods that no node may have are given back to their scheduler when what refused them has changed, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from koordlite.model import keys
from koordlite.model.wire import objects
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.extender import BindError
from koordlite.scheduler.retries import LAST_PAUSE, MOST_AT_ONCE, UNKNOWN_SECONDS, Retries
from tests.scheduler.builders import Scene, bound, pod
from tests.scheduler.test_load_aware import World, measured
from tests.scheduler.test_reservations import owner, plain, put, reservation

FULL, FREE = {"cpu": "1", "memory": "60Gi"}, {"cpu": "8", "memory": "60Gi"}


class Waker:
    """Retries of a scene, and the pods they wake."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.refusal = scene, ""
        self.woken: list[tuple[str, str]] = []
        self.retries = Retries(scene.extender, self.annotate, wall=lambda: scene.clock.wall)

    def annotate(self, pod: ClusterPod, annotations: Mapping[str, str]) -> None:
        if self.refusal:
            raise BindError(self.refusal, is_certain=True)
        self.woken.append((pod.name, annotations[keys.RETRY]))

    def look(self) -> list[str]:
        """The pods that are woken now, once the verdicts about pods that wait are those of the present."""
        before = len(self.woken)
        if not self.scene.extender.not_ready():
            self.scene.extender.warm()
        self.retries.look()
        return [name for name, _ in self.woken[before:]]


def full(*pods: Any) -> Waker:
    """One full node, and pods that it refuses."""
    scene = Scene()
    scene.node("a", FULL, FULL)
    for each in pods:
        scene.put(each)
        assert scene.filter(each, "a")[0] == []
    return Waker(scene)


def large() -> Scene:
    """A hundred full nodes, and one with room."""
    scene = Scene()
    for number in range(101):
        scene.node(f"n{number:03}", FULL if number < 100 else FREE)
    return scene


def waiting() -> tuple[Waker, Any]:
    """A pod that goes nowhere else while room is made for it where it is reserved."""
    scene = plain()
    put(scene, reservation())
    waker, mine = Waker(scene), owner(pod("mine", "4"))
    scene.put(mine)
    assert scene.filter(mine, "b")[0] == []
    return waker, mine


def test_a_report_with_room_wakes_the_pod_once_and_says_why() -> None:
    waker = full(pod("p", "4"))
    assert waker.look() == []
    waker.scene.report("a", FULL, FULL, totals={"cpu": "16"})
    assert waker.look() == [], "the report is new, and the node as full"
    waker.scene.report("a", FULL, FREE)
    assert waker.look() == ["p"]
    assert waker.woken[0][1] == "2027-01-15T08:00:00Z: a has room for it now"
    waker.scene.clock.pass_(100)
    assert waker.look() == []
    attempt = waker.scene.extender.attempts.get("ns/p")
    assert attempt is not None
    assert attempt.events == ["its scheduler was asked to try it again: a has room for it now"]


def test_room_that_came_between_two_looks_and_a_question_about_another_pod_counts() -> None:
    waker = full(pod("p", "4"), pod("q", "4"))
    waker.scene.report("a", FULL, FREE)
    waker.scene.filter(pod("other", "4"), "a")
    assert waker.look() == ["p", "q"]


def test_a_pod_that_is_woken_in_vain_is_woken_less_and_less_often() -> None:
    p = pod("p", "4")
    waker, times = full(p), []
    for second in range(200):
        waker.scene.report("a", FULL, FREE)
        if waker.look():
            times.append(second)
        waker.scene.report("a", FULL, FULL)
        assert waker.scene.filter(p, "a")[0] == []
        waker.scene.clock.pass_(1)
    assert times == [0, 1, 3, 7, 15, 31, 63, 123, 183], f"1, 2, 4, … {LAST_PAUSE:g} s"


def test_what_changes_during_the_pause_counts_after_it() -> None:
    p = pod("p", "4")
    waker = full(p)
    waker.scene.report("a", FULL, FREE)
    assert waker.look() == ["p"]
    waker.scene.report("a", FULL, FULL)
    waker.scene.filter(p, "a")
    waker.scene.report("a", FULL, FREE)
    assert waker.look() == []
    waker.scene.clock.pass_(1)
    assert waker.look() == ["p"]


def test_pods_that_fit_nowhere_do_not_stand_in_the_way_of_one_that_does() -> None:
    """Verdicts about four kinds of pods are renewed at a time, while reports change all the while."""
    scene = Scene()
    scene.node("a", FULL, FULL)
    scene.node("b", FULL, FULL)
    for name, cpu in (*((f"large-{number}", f"{10 + number}") for number in range(9)), ("small", "4")):
        scene.put(pod(name, cpu))
        assert scene.filter(pod(name, cpu), "a", "b")[0] == []
    waker = Waker(scene)
    scene.report("a", FULL, FREE)
    woken = []
    for number in range(6):
        scene.report("b", FULL, {"cpu": "1", "memory": f"{50 + number}Gi"})
        woken += waker.look()
    assert woken == ["small"]


def test_what_changed_before_a_later_attempt_wakes_nobody() -> None:
    p = pod("p", "4")
    waker = full(p)
    waker.scene.report("a", FULL, FREE)
    assert waker.look() == ["p"]
    waker.scene.report("a", FULL, FULL)
    waker.scene.filter(p, "a")
    waker.scene.report("a", FULL, FREE)
    assert waker.look() == [], "its pause"
    waker.scene.report("a", FULL, FULL)
    waker.scene.filter(p, "a")
    waker.scene.clock.pass_(100)
    assert waker.look() == []


def test_room_on_a_node_that_will_not_do_for_the_pod_wakes_nobody() -> None:
    scene = Scene()
    scene.node("a", FULL)
    scene.node("b", FULL)
    waker, p = Waker(scene), pod("p", "4")
    scene.put(p)
    scene.filter(p, "a")
    scene.report("b", FREE)
    assert waker.look() == []
    scene.report("a", FREE)
    assert waker.look() == ["p"]


def test_many_pods_are_woken_a_few_at_a_time() -> None:
    waker = full(*(pod(f"p{number}", "4") for number in range(25)))
    waker.scene.report("a", FULL, FREE)
    assert [len(waker.look()) for _ in range(4)] == [MOST_AT_ONCE, MOST_AT_ONCE, 5, 0]


def test_a_pod_that_is_bound_gone_or_passed_meanwhile_is_not_woken() -> None:
    first, second, third = (pod(name, "4") for name in ("first", "second", "third"))
    waker = full(first, second, third)
    waker.scene.put(bound(first, "b"))
    waker.scene.cluster.remove_pod("ns/second")
    waker.scene.clock.pass_(UNKNOWN_SECONDS + 1)
    waker.scene.report("a", FULL, FREE)
    assert waker.scene.filter(third, "a")[0] == ["a"]
    assert waker.look() == []
    assert waker.scene.extender.refused_pods == {}


def test_a_pod_that_our_watch_does_not_know_yet_is_woken() -> None:
    scene = Scene()
    scene.node("a", FULL)
    waker = Waker(scene)
    scene.filter(pod("p", "4"), "a")
    scene.report("a", FREE)
    assert waker.look() == ["p"]


def test_a_load_that_falls_wakes_the_pod_that_it_kept_off() -> None:
    world = World().load()
    waker, p = Waker(world), pod("p")
    world.put(p)
    assert world.filter(p, "busy")[0] == []
    world.loads.put_metric(measured("busy", cpu="59"))
    assert waker.look() == [], "still too much"
    world.loads.put_metric(measured("busy", cpu="5"))
    assert waker.look() == ["p"]
    assert waker.woken[0][1].endswith(": busy is not too busy for it any more")


@pytest.mark.parametrize(("names", "woken"), [(100, ["p"]), (99, [])], ids=["a-part-of-the-nodes", "all-that-will-do"])
def test_a_node_that_the_scheduler_did_not_ask_about_wakes_the_pod(names: int, woken: list[str]) -> None:
    scene = large()
    waker, p = Waker(scene), pod("p", "4")
    scene.put(p)
    assert scene.filter(p, *(f"n{number:03}" for number in range(names)))[0] == []
    assert waker.look() == woken
    assert [text.partition(": ")[2] for _, text in waker.woken] == [
        "n100, which its scheduler did not ask about, may have room for it" for _ in woken
    ]
    scene.clock.pass_(100)
    assert waker.look() == []


def test_a_node_that_was_not_asked_about_and_takes_no_pods_wakes_nobody() -> None:
    scene = large()
    cordoned = {"metadata": {"name": "n100"}, "spec": {"unschedulable": True}}
    scene.cluster.put_node(msgspec.convert(cordoned, objects.NodeObject))
    waker, p = Waker(scene), pod("p", "4")
    scene.put(p)
    assert scene.filter(p, *(f"n{number:03}" for number in range(100)))[0] == []
    assert waker.look() == []


def test_nodes_that_the_scheduler_never_asks_about_wake_nobody() -> None:
    """Its own filters leave the same ones out each time: a selector, for example."""
    scene = large()
    waker, p = Waker(scene), pod("p", "4")
    scene.put(p)
    for _ in range(2):
        assert scene.filter(p, *(f"n{number:03}" for number in range(100)))[0] == []
    for _ in range(10):
        assert waker.look() == []
        scene.clock.pass_(60)


def test_a_measurement_that_is_gone_wakes_the_pod_that_it_kept_off() -> None:
    world = World().load()
    waker, p = Waker(world), pod("p")
    world.put(p)
    world.filter(p, "busy")
    world.loads.remove_metric("busy")
    assert waker.look() == ["p"]


def test_a_reservation_that_comes_to_be_for_the_pod_wakes_it() -> None:
    scene = plain()
    put(scene, reservation("r", cpu="60"))
    waker, mine = Waker(scene), owner(pod("mine", "60"), "later")
    scene.put(mine)
    assert scene.filter(mine, "a")[0] == []
    assert waker.look() == []
    put(scene, reservation("r", cpu="60", app="later"))
    assert waker.look() == ["mine"]
    assert scene.filter(mine, "a")[0] == ["a"]


def test_a_reservation_that_is_gone_wakes_the_pod_that_waited_for_it() -> None:
    waker, mine = waiting()
    scene = waker.scene
    scene.cluster.remove_reservation("r")
    assert waker.look() == ["mine"]
    assert scene.filter(mine, "b")[0] == ["b"]


def test_the_end_of_the_wait_for_a_reservation_wakes_the_pod() -> None:
    waker, mine = waiting()
    scene = waker.scene
    scene.clock.pass_(30)
    assert waker.look() == []
    scene.clock.pass_(31)
    assert waker.look() == ["mine"]
    assert waker.woken[0][1].endswith(": it need not wait for its reservation any longer")
    assert waker.look() == []
    assert scene.filter(mine, "b")[0] == ["b"]


def test_a_refusal_of_the_api_server_is_logged_once_and_the_pod_woken_later(caplog: pytest.LogCaptureFixture) -> None:
    waker = full(pod("p", "4"))
    waker.refusal = 'pods "p" is forbidden'
    waker.scene.report("a", FULL, FREE)
    for _ in range(3):
        assert waker.look() == []
        waker.scene.clock.pass_(100)
    assert caplog.text.count('ns/p cannot be given back to its scheduler: pods "p" is forbidden') == 1
    waker.refusal = ""
    assert waker.look() == ["p"]
    assert waker.retries.results == {"failed": 3, "woken": 1}


def test_nothing_is_woken_by_a_picture_that_is_too_old() -> None:
    waker = full(pod("p", "4"))
    waker.scene.report("a", FULL, FREE)
    waker.scene.age = None
    assert waker.look() == []
    waker.scene.age = 0.0
    assert waker.look() == ["p"]
