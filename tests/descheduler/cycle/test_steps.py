"""A plugin is asked again when something changed that its findings follow from, and not before."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from descheduler.arguments.evictor import Args
from descheduler.cycle import planner
from descheduler.filters.limits import Limits
from descheduler.fit.search import FitSearch
from descheduler.framework import FACETS, Finding, Handle, Plugin, Remember, View
from descheduler.picture.pods import PodView
from descheduler.plan import EvictionPlan, Profile, Setup
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects

replace = msgspec.structs.replace
LATER = "2026-01-01T13:00:00Z"


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No arguments."""


class Asked:
    """Plugins that count how often they are asked; each names the pods of one node."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def plugin(self, node: str, reads: frozenset[Any], **more: Any) -> tuple[Plugin, Nothing]:
        def judge(view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
            self.log.append(node)
            for pod in view.nodes[node].pods:
                yield Finding(pod=pod.uid, reason="Wrong", **more)

        return Plugin(node, Nothing, judge, "", reads=reads), Nothing()

    def setup(self, *plugins: Any, **args: Any) -> Setup:
        return Setup((Profile("p", plugins, Args(**args)),), Limits(per_node=2))


@pytest.fixture
def view(cluster: Any) -> View:
    """Two nodes with three pods each, and an empty one."""
    for node in "abc":
        cluster.node(node)
    for number in range(6):
        cluster.pod(f"p{number}", "ab"[number % 2], cpu="1", owner="web")
    return replace(cluster.view(), cache={})


def changed(view: View, name: str, change: Callable[[PodView], PodView]) -> View:
    """The next picture, in which the pods of one name are another value."""
    nodes = {}
    for node in view.nodes.values():
        pods = tuple(change(pod) if pod.pod.name == name else pod for pod in node.pods)
        nodes[node.name] = node if pods == node.pods else replace(node, pods=pods)
    by_uid = {pod.uid: pod for node in nodes.values() for pod in node.pods}
    return replace(view, nodes=nodes, by_uid=by_uid)


def restarted(pod: PodView) -> PodView:
    state = objects.ContainerStatus(name="main", restart_count=3)
    return replace(pod, object=replace(pod.object, status=replace(pod.object.status, container_statuses=(state,))))


def larger(pod: PodView) -> PodView:
    return replace(pod, pod=replace(pod.pod, requests={"cpu": Quantity.of(4)}))


def decided(plan: EvictionPlan) -> list[Any]:
    return [(one.pod, one.findings, one.verdict, one.reasons, one.search, one.target) for one in plan.outcomes]


def test_what_nothing_follows_from_asks_nobody_again(view: View) -> None:
    asked = Asked()
    setup = asked.setup(asked.plugin("a", frozenset()), asked.plugin("b", frozenset()))
    planner.plan(view, setup)
    after = replace(changed(view, "p3", restarted), time=LATER)
    plan = planner.plan(after, setup)
    assert asked.log == ["a", "b"]
    assert len(plan.evict) == 4
    assert decided(plan) == decided(planner.plan(replace(after, cache=None), setup))
    assert {one.age_seconds for one in plan.outcomes} == {after.age(one.pod) for one in plan.outcomes}


@pytest.mark.parametrize(
    ("reads", "change", "log"),
    [
        pytest.param("statuses", lambda view: changed(view, "p0", restarted), "aba", id="a status, by who reads them"),
        pytest.param("time", lambda view: replace(view, time=LATER), "aba", id="the time, by who reads it"),
        pytest.param("usage", lambda view: replace(view, time=LATER), "ab", id="the time, by who reads usage"),
        pytest.param("usage", lambda view: changed(view, "p1", larger), "abab", id="what a pod requests, by all"),
        pytest.param("usage", lambda view: replace(view, moving={"x": "y"}), "abab", id="jobs, as guards ask for them"),
    ],
)
def test_who_reads_what_changed_is_asked_again(
    view: View, reads: str, change: Callable[[View], View], log: str
) -> None:
    asked = Asked()
    setup = asked.setup(asked.plugin("a", frozenset((reads,))), asked.plugin("b", frozenset()))
    planner.plan(view, setup)
    after = change(view)
    plan = planner.plan(after, setup)
    assert "".join(asked.log) == log
    assert decided(plan) == decided(planner.plan(replace(after, cache=None), setup))


def test_who_names_the_same_again_is_answered_as_before_up_to_another_pod(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions, decide, names = list[str](), planner._Draft._decide, ""

    def judge(view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
        uids = {pod.pod.name: pod.uid for pod in view.pods()}
        for name in names.split():
            yield Finding(pod=uids[name], reason="Wrong")

    def noted(draft: Any, candidate: Any, guards: Any) -> Any:
        decisions.append(candidate.pod.pod.name)
        return decide(draft, candidate, guards)

    monkeypatch.setattr(planner._Draft, "_decide", noted)
    setup = Asked().setup((Plugin("P", Nothing, judge, "", reads=frozenset(("time",))), Nothing()))
    decisions_by_cycle = []
    for number, names in enumerate(("p0 p2 p4", "p0 p2 p4", "p0 p4 p2", "p0 p4 p2 p3")):  # noqa: B007 - `judge` reads it
        after = replace(view, time=f"2026-01-01T1{number}:00:00Z")
        decisions.clear()
        plan = planner.plan(after, setup)
        decisions_by_cycle.append(" ".join(decisions))
        assert decided(plan) == decided(planner.plan(replace(after, cache=None), setup))
    assert decisions_by_cycle == ["p0 p2 p4", "", "p4 p2", "p3"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("p2 p4", "p0 p4"), ("p1 p2", "p0 p2"), ("p0 p2", "p2 p1"), ("p0 p1", "p1 p0"), ("p0 p1", "p0 p0 p1")],
)
def test_a_pod_that_another_plugin_takes_holds_the_place_of_no_other(view: View, before: str, after: str) -> None:
    names = {"one": "p0", "two": before}

    def plugin(name: str, reads: frozenset[Any]) -> tuple[Plugin, Nothing]:
        def judge(view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
            uids = {pod.pod.name: pod.uid for pod in view.pods()}
            for each in names[name].split():
                yield Finding(pod=uids[each], reason=f"Wrong{name}")

        return Plugin(name, Nothing, judge, "", reads=reads), Nothing()

    setup = Asked().setup(plugin("one", frozenset()), plugin("two", frozenset(("time",))), node_fit=True)
    planner.plan(view, setup)
    names["two"] = after
    picture = replace(view, time=LATER)
    plan, fresh = planner.plan(picture, setup), planner.plan(replace(picture, cache=None), setup)
    assert (decided(plan), plan.nodes) == (decided(fresh), fresh.nodes)


def test_after_another_eviction_all_later_plugins_are_asked(view: View) -> None:
    asked, odd = Asked(), []

    def judge(view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
        odd.append(view)
        yield Finding(pod=view.nodes["a"].pods[len(odd) % 2].uid, reason="Wrong")

    first = Plugin("odd", Nothing, judge, ""), Nothing()
    setup = asked.setup(asked.plugin("b", frozenset()), first, asked.plugin("a", frozenset()))
    for time in (view.time, LATER):
        plan = planner.plan(replace(view, time=time), setup)
    assert "".join(asked.log) == "baa"
    assert {one.pod.node for one in plan.evict} == {"a", "b"}


@pytest.mark.parametrize(
    "more", [{"sightings": 2}, {"min_age_seconds": 5}], ids=["waits to be seen again", "waits for its age"]
)
def test_a_finding_that_waits_is_decided_on_each_time(view: View, more: dict[str, Any]) -> None:
    asked = Asked()
    setup = asked.setup(asked.plugin("a", frozenset(), **more))
    for _ in range(2):
        planner.plan(view, setup)
    assert asked.log == ["a", "a"]


def test_guards_that_ask_for_an_age_are_asked_each_time(view: View) -> None:
    asked = Asked()
    setup = asked.setup(asked.plugin("a", frozenset()), min_pod_age="13h")
    plans = [planner.plan(replace(view, time=time), setup) for time in (view.time, "2026-01-02T12:00:00Z")]
    assert asked.log == ["a", "a"]
    assert [len(plan.evict) for plan in plans] == [0, 2]


def test_one_who_remembers_is_asked_each_time(view: View) -> None:
    values = []

    def judge(_view: View, _config: Nothing, handle: Handle) -> Iterator[Any]:
        values.append(handle.remembered)
        yield Remember(len(values))

    setup, memory = Asked().setup((Plugin("counts", Nothing, judge, "", reads=frozenset()), Nothing())), {}
    for _ in range(3):
        memory = dict(planner.plan(view, setup, memory=memory).memory)
    assert values == [None, 1, 2]


def test_what_followed_from_a_memory_is_asked_anew_without_it(view: View) -> None:
    values = []

    def judge(_view: View, _config: Nothing, handle: Handle) -> Iterator[Any]:
        values.append(handle.remembered)
        if handle.remembered is None:
            yield Remember("once")

    setup, memory = Asked().setup((Plugin("odd", Nothing, judge, "", reads=frozenset()), Nothing())), {}
    for _ in range(3):
        memory = dict(planner.plan(view, setup, memory=memory).memory)
    assert values == [None, "once", None]


def test_a_plugin_that_says_nothing_of_it_reads_everything(view: View) -> None:
    assert Plugin("P", Nothing, lambda *_: iter(()), "").reads == FACETS


def test_profiles_of_one_name_repeat_their_own_steps_only(view: View) -> None:
    asked, more = Asked(), Asked()
    profiles = [
        Profile("unnamed", (each,), Args()) for each in (asked.plugin("a", frozenset()), more.plugin("b", frozenset()))
    ]
    named = [replace(one, plugins=((replace(one.plugins[0][0], name="P"), Nothing()),)) for one in profiles]
    setup = Setup(tuple(named), Limits(per_node=2))
    for time in (view.time, LATER, "2026-01-01T14:00:00Z"):
        plan = planner.plan(replace(view, time=time), setup)
    assert asked.log + more.log == ["a", "b"]
    assert decided(plan) == decided(planner.plan(replace(view, time="2026-01-01T14:00:00Z", cache=None), setup))


def test_the_status_of_a_pod_without_a_node_is_a_status(view: View) -> None:
    asked, (pod, *_) = Asked(), view.nodes["a"].pods
    setup = asked.setup(asked.plugin("a", frozenset(("statuses",))))
    for unbound in (pod, restarted(pod)):
        planner.plan(replace(view, unbound=(unbound,)), setup)
    assert asked.log == ["a", "a"]


def test_a_plugin_that_names_a_pod_that_is_gone_since_is_asked_again(view: View) -> None:
    (ended, *others), log = view.nodes["a"].pods, []

    def judge(view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
        log.append(view)
        for pod in view.nodes["a"].ended:
            yield Finding(pod=pod.uid, reason="Ended")

    setup = Asked().setup((Plugin("P", Nothing, judge, "", reads=frozenset()), Nothing()))
    for kept in ((ended,), ()):
        node = replace(view.nodes["a"], pods=tuple(others), ended=kept)
        by_uid = {uid: pod for uid, pod in view.by_uid.items() if kept or uid != ended.uid}
        plan = planner.plan(replace(view, nodes={**view.nodes, "a": node}, by_uid=by_uid), setup)
    assert len(log) == 2
    assert plan.outcomes == ()


def test_searches_of_a_plan_before_a_quiet_one_hold(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, search = [], FitSearch.search
    monkeypatch.setattr(FitSearch, "search", lambda self, *a, **k: searches.append(a) or search(self, *a, **k))
    asked = Asked()
    setup = asked.setup(asked.plugin("a", frozenset()), node_fit=True)
    counts = []
    for after in (view, view, replace(view, moving={"x": "y"})):
        searches.clear()
        planner.plan(after, setup)
        counts.append(len(searches))
    assert counts[0] > 0
    assert counts[1:] == [0, 0]


def test_a_plan_that_explains_is_not_repeated_and_nothing_older_is(view: View) -> None:
    asked = Asked()
    a, b = asked.plugin("a", frozenset()), asked.plugin("b", frozenset())
    planner.plan(view, asked.setup(a, b))
    planner.plan(view, asked.setup(b), explained="p0")
    plan, fresh = (planner.plan(one, asked.setup(a, b)) for one in (view, replace(view, cache=None)))
    assert "".join(asked.log) == "abbabab"
    assert (decided(plan), plan.nodes) == (decided(fresh), fresh.nodes)
