"""What passes between the cycle and its plugins: verdicts, order of points, memory, pods that go already."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from descheduler.arguments.evictor import Args
from descheduler.cycle import planner
from descheduler.filters.limits import Limits
from descheduler.framework import Finding, Handle, Note, Plugin, Point, Remember, Verdict, View
from descheduler.history import past_evictions
from descheduler.plan import Profile, Setup
from koordlite.model import label_selectors

Said = list[tuple[str, Verdict | None]]


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No arguments."""


def names_all(log: Said, *, reason: str = "Wrong") -> Callable[..., Any]:
    """A plugin that names every pod of its nodes and keeps the answers."""

    def judge(_view: View, _config: Nothing, handle: Handle) -> Iterator[Any]:
        for node in handle.nodes:
            for pod in node.pods:
                verdict = yield Finding(pod=pod.uid, reason=reason)
                log.append((pod.pod.name, verdict))

    return judge


def plugin(name: str, judge: Any, point: Point = "deschedule") -> tuple[Plugin, Nothing]:
    return Plugin(name, Nothing, judge, "", point), Nothing()


def setup(*plugins: Any, **more: Any) -> Setup:
    limits = Limits(**more.pop("limits", {}))
    return Setup((Profile("p", plugins, more.pop("args", Args())),), limits, **more)


@pytest.fixture
def four(cluster: Any) -> Any:
    """Two nodes with two small pods each."""
    for node in "ab":
        cluster.node(node)
        for number in (1, 2):
            cluster.pod(f"{node}{number}", node, owner=f"{node}{number}")
    return cluster


def test_each_finding_is_answered_at_once(four: Any) -> None:
    log: Said = []
    plan = planner.plan(four.view(), setup(plugin("P", names_all(log)), limits={"per_node": 1}))
    gone, full = Verdict(evicted=True), Verdict(evicted=False, reason="LimitPerNode", stop="node")
    assert log == [("a1", gone), ("a2", full), ("b1", gone), ("b2", full)]
    assert [o.pod.pod.name for o in plan.evict] == ["a1", "b1"]


@pytest.mark.parametrize(
    ("limits", "reason", "stop"),
    [
        pytest.param({"total": 0}, "LimitTotal", "total", id="the total"),
        pytest.param({"per_namespace": 0}, "LimitPerNamespace", "namespace", id="the namespace"),
        pytest.param({"per_owner": 0}, "LimitPerOwner", "", id="an owner says nothing of other pods"),
    ],
)
def test_a_used_up_limit_says_what_is_over(four: Any, limits: dict[str, int], reason: str, stop: str) -> None:
    log: Said = []
    planner.plan(four.view(), setup(plugin("P", names_all(log)), limits=limits))
    assert {answer for _, answer in log} == {Verdict(evicted=False, reason=reason, stop=stop)}  # type: ignore[arg-type]


def test_a_guarded_pod_may_be_named_and_is_shown_with_the_guard(four: Any) -> None:
    four.objects[1]["metadata"]["ownerReferences"] = []
    log: Said = []
    plan = planner.plan(four.view(), setup(plugin("P", names_all(log))))
    assert log[0] == ("a1", Verdict(evicted=False, reason="BarePod"))
    assert plan.kept[0].reasons[0].reason == "BarePod"


def test_all_of_deschedule_comes_before_the_first_of_balance(four: Any) -> None:
    order: list[str] = []

    def judging(name: str) -> Any:
        def judge(_view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
            order.append(name)
            yield from ()

        return judge

    first = Profile("one", (plugin("B1", judging("B1"), "balance"), plugin("D1", judging("D1"))), Args())
    second = Profile("two", (plugin("B2", judging("B2"), "balance"), plugin("D2", judging("D2"))), Args())
    planner.plan(four.view(), Setup((first, second), Limits()))
    assert order == ["D1", "D2", "B1", "B2"]


def test_a_pod_that_goes_already_is_answered_so_and_counted_once(four: Any) -> None:
    first: Said = []
    second: Said = []
    plan = planner.plan(
        four.view(),
        setup(plugin("P", names_all(first)), plugin("Q", names_all(second, reason="Also")), limits={"total": 9}),
    )
    assert {answer.reason for _, answer in second if answer} == {"GoesAlready"}
    assert len(plan.evict) == 4
    assert [f.plugin for f in plan.evict[0].findings] == ["P", "Q"]


def test_what_a_plugin_remembers_comes_back_in_the_next_cycle(four: Any) -> None:
    remembered: list[object] = []

    def judge(_view: View, _config: Nothing, handle: Handle) -> Iterator[Any]:
        remembered.append(handle.remembered)
        yield Note(node="a", reason="Looked", text="looked")
        yield Remember({"rounds": 1})

    chosen = setup(plugin("P", judge))
    plan = planner.plan(four.view(), chosen)
    planner.plan(four.view(), chosen, memory=plan.memory)
    assert remembered == [None, {"rounds": 1}]
    assert [(note.plugin, note.reason) for note in plan.notes] == [("P", "Looked")]


def test_plugins_see_ready_nodes_that_policy_and_profile_select(four: Any) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1", "y": "1"})):
        node = next(o for o in four.objects if o["kind"] == "Node" and o["metadata"]["name"] == name)
        node["metadata"]["labels"].update(labels)
    four.node("c", labels={"x": "1", "y": "1"})["status"]["conditions"][0]["status"] = "False"
    seen: list[str] = []

    def judge(_view: View, _config: Nothing, handle: Handle) -> Iterator[Any]:
        seen.extend(node.name for node in handle.nodes)
        yield from ()

    profile = Profile("p", (plugin("P", judge),), Args(), node_selector=label_selectors.parse("y=1"))
    planner.plan(four.view(), Setup((profile,), Limits(), label_selectors.parse("x=1")))
    assert seen == ["b"]


@pytest.mark.parametrize(("fit", "going"), [("plan", 1), ("snapshot", 2)])
def test_two_pods_count_on_one_free_place_only_in_the_fit_of_upstream(cluster: Any, fit: Any, going: int) -> None:
    cluster.node("a", cpu="4")
    cluster.node("b", cpu="2")
    for name in ("p", "q"):
        cluster.pod(name, "a", cpu="2", owner=name)
    log: Said = []
    plan = planner.plan(cluster.view(), setup(plugin("P", names_all(log)), args=Args(node_fit=True), fit=fit))
    assert len(plan.evict) == going


def test_a_pod_that_goes_in_the_background_is_not_asked_again_and_counts(four: Any) -> None:
    request = past_evictions.Request("default", "a1", "uid-a1", "a", 0.0)
    log: Said = []
    chosen = setup(plugin("P", names_all(log)), limits={"per_node": 1})
    planner.plan(four.view(), chosen, background={"uid-a1": request})
    answers = {name: answer.reason for name, answer in log if answer}
    assert answers == {"a1": "EvictionInBackground", "a2": "LimitPerNode", "b1": "", "b2": "LimitPerNode"}


def test_on_the_only_node_a_pod_stays_even_without_node_fit(cluster: Any) -> None:
    cluster.node("a")
    cluster.node("b")["status"]["conditions"][0]["status"] = "False"
    cluster.pod("p", "a")
    log: Said = []
    planner.plan(cluster.view(), setup(plugin("P", names_all(log)), spare_the_only_node=True))
    assert log == [("p", Verdict(evicted=False, reason="FitsNowhere"))]


def test_pods_that_a_plugin_could_not_judge_are_counted_once(four: Any) -> None:
    def unsure(_view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
        yield Note(node="a", reason="StalePlacement", text="")
        yield Finding(pod="uid-a1", reason="Wrong")

    def silent(_view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
        yield Note(reason="UsageUnknown", text="")

    def content(_view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
        yield Note(reason="NothingToDo", text="")

    def faulty(view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
        if "uid-b2" in view.by_uid:
            raise ValueError("a fault")
        yield from ()

    four.pod("ended", "a")["status"]["phase"] = "Succeeded"
    view = four.view()
    plan = planner.plan(view, setup(plugin("P", unsure), plugin("F", faulty), plugin("C", content)))
    assert (plan.not_judged, plan.not_judged_by) == (2, {"F": 1, "P": 1}), "a2 and b2: a1 has a finding"
    everything = planner.plan(view, setup(plugin("P", unsure), plugin("S", silent)))
    assert (everything.not_judged, everything.not_judged_by) == (4, {"P": 1, "S": 4})
