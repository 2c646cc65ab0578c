"""The simulated scheduler does what the recordings of the real one show."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from koordlite.model.wire import objects
from tests.support.topocluster.events import Events
from tests.support.topocluster.scheduler import LONGEST_SLEEP, MOST_BINDS, NAME, Scheduler
from tests.support.topocluster.store import Store


class Scripted:
    """Answers as it is told, and remembers what it was asked and when."""

    def __init__(self, events: Events, store: Store) -> None:
        self._events, self._store = events, store
        self.calls: list[tuple[float, str, str]] = []
        self.refuse: dict[str, str] = {}
        self.scores: dict[str, int] = {}
        self.bind_errors = 0

    def filter(self, obj: objects.PodObject, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        self._called("filter", obj.metadata.name)
        return [n for n in names if n not in self.refuse], {n: self.refuse[n] for n in names if n in self.refuse}

    def prioritize(self, obj: objects.PodObject, names: Sequence[str]) -> list[tuple[str, int]]:
        self._called("prioritize", obj.metadata.name)
        return [(name, self.scores.get(name, 0)) for name in names]

    def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        self._called("bind", name)
        if self.bind_errors:
            self.bind_errors -= 1
            return "try again"
        return self._store.bind(f"{namespace}/{name}", uid, node, {})

    def _called(self, verb: str, pod: str) -> None:
        self.calls.append((self._events.now, verb, pod))

    def times(self, verb: str) -> list[float]:
        """When the verb was called."""
        return [at for at, called, _ in self.calls if called == verb]


class Scene:
    """Two nodes of 4 CPUs, the scheduler and a scripted extender."""

    def __init__(self, **more: Any) -> None:
        self.events = Events()
        self.store = Store(self.events, random.Random(1))
        self.extender = Scripted(self.events, self.store)
        self.scheduler = Scheduler(
            events=self.events, store=self.store, chance=random.Random(2), extender=self.extender, **more
        )
        self.store.watch(self.scheduler, least=0.001, most=0.002)
        for name in ("a", "b"):
            amounts: Any = {"cpu": "4", "memory": "8Gi", "pods": "110"}
            self.store.put_node(
                objects.NodeObject(
                    metadata=objects.ObjectMeta(name=name), status=objects.NodeStatus(allocatable=amounts)
                )
            )
        self.events.run(1.0)

    def pod(self, name: str, cpu: str = "1") -> None:
        resources = objects.Resources(requests={"cpu": cpu, "memory": "1Mi"})
        spec = objects.PodSpec(containers=(objects.Container(name="c", resources=resources),), scheduler_name=NAME)
        meta = objects.ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}")
        self.store.create(objects.PodObject(metadata=meta, spec=spec))

    def node_of(self, name: str) -> str:
        return self.store.pods[f"ns/{name}"].spec.node_name


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_extenders_score_decides_and_the_binding_is_the_extenders(scene: Scene) -> None:
    scene.extender.scores = {"b": 10}
    scene.pod("one")
    scene.events.run(5.0)
    assert [verb for _, verb, _ in scene.extender.calls] == ["filter", "prioritize", "bind"]
    assert scene.node_of("one") == "b"


def test_prioritize_is_not_called_with_one_node_left(scene: Scene) -> None:
    scene.extender.refuse = {"b": "no"}
    scene.pod("one")
    scene.events.run(5.0)
    assert [verb for _, verb, _ in scene.extender.calls] == ["filter", "bind"]
    assert scene.node_of("one") == "a"


def test_pods_count_on_a_node_that_is_heard_of_after_them(scene: Scene) -> None:
    amounts: Any = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    for name, cpu in (("first", "3"), ("second", "2")):
        resources = objects.Resources(requests={"cpu": cpu, "memory": "1Mi"})
        spec = objects.PodSpec(containers=(objects.Container(name="c", resources=resources),), scheduler_name=NAME)
        meta = objects.ObjectMeta(name=name, namespace="ns", uid=name)
        bound = msgspec.structs.replace(spec, node_name="c") if name == "first" else spec
        scene.scheduler.put_pod(objects.PodObject(metadata=meta, spec=bound))
    scene.scheduler.remove_node("a")
    scene.scheduler.remove_node("b")
    meta = objects.ObjectMeta(name="c")
    scene.scheduler.put_node(objects.NodeObject(metadata=meta, status=objects.NodeStatus(allocatable=amounts)))
    scene.events.run(5.0)
    assert not scene.extender.calls, "one CPU is left"


def test_filter_is_not_called_when_nothing_has_the_resources(scene: Scene) -> None:
    scene.pod("large", cpu="5")
    scene.events.run(5.0)
    assert not scene.extender.calls


def test_a_refused_pod_is_tried_once_more_and_then_sleeps_until_a_bound_pod_is_gone(scene: Scene) -> None:
    scene.pod("first")
    scene.events.run(5.0)
    scene.extender.refuse = {"a": "no", "b": "no"}
    scene.pod("one")
    scene.events.run(60.0)
    calls = scene.extender.times("filter")[1:]
    assert len(calls) == 2
    assert 0.015 <= calls[1] - calls[0] < 0.05
    scene.extender.refuse = {}
    scene.events.run(100.0)
    assert not scene.node_of("one"), "a change of mind is no event"
    scene.store.remove("ns/first", "uid-first")
    scene.events.run(101.0)
    assert scene.node_of("one")


def test_a_pod_that_nothing_wakes_is_tried_again_after_minutes(scene: Scene) -> None:
    scene.extender.refuse = {"a": "no", "b": "no"}
    scene.pod("one")
    scene.events.run(60.0)
    scene.extender.refuse = {}
    scene.events.run(10.0 + LONGEST_SLEEP)
    assert scene.node_of("one")


def test_a_reason_that_differs_each_time_makes_it_spin(scene: Scene) -> None:
    def reasons(names: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(names, f"at {scene.events.now}")

    scene.extender.filter = lambda obj, names: ([], reasons(names))  # type: ignore[method-assign]
    scene.pod("one")
    scene.events.run(2.0)
    assert scene.scheduler.counts["attempts"] > 20


def test_a_failed_bind_is_tried_again_after_one_two_four_and_eight_seconds(scene: Scene) -> None:
    scene.extender.bind_errors = 4
    scene.pod("one")
    scene.events.run(60.0)
    binds = scene.extender.times("bind")
    gaps = [after - before for before, after in itertools.pairwise(binds)]
    assert [int(gap) in (wait, wait + 1) for gap, wait in zip(gaps, (1, 2, 4, 8), strict=True)] == [True] * 4
    assert scene.node_of("one")


def test_filters_go_on_while_binds_are_open_and_no_more_than_twenty_are() -> None:
    scene = Scene(bind_took=(5.0, 5.0))
    for number in range(60):
        scene.pod(f"pod-{number}", cpu="100m")
    scene.events.run(3.0)
    assert len(scene.extender.times("filter")) == 60
    assert len(scene.extender.times("bind")) == scene.scheduler.most_open_binds == MOST_BINDS
    scene.events.run(60.0)
    assert all(scene.node_of(f"pod-{number}") for number in range(60))


def test_what_is_bound_and_not_seen_yet_counts_on_its_node(scene: Scene) -> None:
    for name in ("one", "two", "three"):
        scene.pod(name, cpu="4")
    scene.events.run(5.0)
    placed = [scene.node_of(name) for name in ("one", "two", "three")]
    assert sorted(placed) == ["", "a", "b"]
