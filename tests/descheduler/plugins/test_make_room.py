"""Pods that move so that another one fits: reported first, evicted all together or not at all, and explained."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import jsonschema
import pytest

from descheduler.cycle import planner
from descheduler.fit.search import FitSearch, Place
from descheduler.history import past_evictions
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.report import document, explain
from koordlite.model import keys
from tests.descheduler.conftest import Cluster
from tests.descheduler.fit.test_make_room import small_cluster
from tests.descheduler.report.test_schema_and_diff import SCHEMA

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
LIMITS
profiles:
  - name: p
    pluginConfig:
      - {name: DefaultEvictor, args: {nodeFit: true}}
      - {name: MakeRoom, args: {evict: true, ARGS}}
    plugins: {deschedule: {enabled: [MakeRoom]}}
"""


def policy(args: str = "", limits: str = "") -> str:
    return POLICY.replace("evict: true, ARGS", args or "evict: true").replace("LIMITS", limits)


def waiting(cluster: Cluster, name: str = "big", *, reason: str = "Unschedulable", **more: Any) -> Any:
    obj = cluster.pod(name, "", owner=f"of-{name}", **more)
    refused = {"type": "PodScheduled", "status": "False", "reason": reason}
    obj["status"] = {"phase": "Pending", "conditions": [refused]}
    return obj


@pytest.fixture
def crowded(cluster: Cluster) -> Cluster:
    """A pod of 6 CPUs waits; `a` has 8, of which two pods take 3 each; `b` and `c` have room for one of them each."""
    cluster.node("a", cpu="8")
    cluster.node("b", cpu="4")
    cluster.node("c", cpu="4")
    for name in ("one", "two"):
        cluster.pod(name, "a", cpu="3", owner=name, labels={"app": name})
    waiting(cluster, cpu="8")
    return cluster


def moves(plan: EvictionPlan) -> dict[str, str]:
    return {outcome.pod.pod.name: outcome.target for outcome in plan.evict}


def kept(plan: EvictionPlan) -> dict[str, str]:
    return {outcome.pod.pod.name: outcome.reasons[0].reason for outcome in plan.kept}


def test_all_of_them_go_and_each_has_its_place(crowded: Cluster) -> None:
    plan = crowded.plan(policy())
    assert sorted(moves(plan)) == ["one", "two"]
    assert sorted(moves(plan).values()) == ["b", "c"]
    assert [(note.node, note.reason) for note in plan.notes] == [("a", "RoomCanBeMade")]
    assert "default/big would fit after: default/" in plan.notes[0].text
    report = json.loads(document.encode(plan, ()))
    jsonschema.validate(report, SCHEMA)
    assert [one["together"] for one in report["evict"]] == [["uid-one", "uid-two"]] * 2
    assert {(f.reason, f.evidence["waiting"]) for o in plan.evict for f in o.findings} == {("MakesRoom", "default/big")}


def test_by_default_it_reports_and_nothing_goes(crowded: Cluster) -> None:
    plan = crowded.plan(policy("maxMoves: 3"))
    assert (moves(plan), kept(plan)) == ({}, {"one": "OnlyExposed", "two": "OnlyExposed"})
    assert plan.kept[0].reasons[0].text == "evict of MakeRoom is off: it stays"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        pytest.param("maxNoOfPodsToEvictTotal: 1", "NoRoomCanBeMade", id="a limit is known before"),
        pytest.param("minDelayPerOwner: 5m", "", id="two owners, so the pause between pods of one owner is none"),
    ],
)
def test_limits_hold_for_the_set(crowded: Cluster, limits: str, reason: str) -> None:
    plan = crowded.plan(policy(limits=limits))
    assert len(plan.evict) == (0 if reason else 2)
    assert not reason or [note.reason for note in plan.notes] == [reason]


def test_where_one_has_to_wait_the_others_stay_too(crowded: Cluster) -> None:
    view, setup = crowded.view(), reader.setup(reader.parse(policy(), "policy"))
    two = next(pod for pod in view.by_uid.values() if pod.pod.name == "two")
    plan = planner.plan(view, setup, background={two.uid: past_evictions.request_for(two, view.now)})
    assert kept(plan) == {"one": "OthersStay", "two": "EvictionInBackground"}
    closed = policy(limits="windows: [{days: [Mon], start: '01:00', end: '02:00'}]")
    assert kept(crowded.plan(closed)) == {"one": "OutsideWindow", "two": "OutsideWindow"}


def test_two_pods_of_one_owner_do_not_go_within_its_pause(crowded: Cluster) -> None:
    for obj in crowded.objects[3:5]:
        obj["metadata"]["ownerReferences"] = crowded.objects[3]["metadata"]["ownerReferences"]
    plan = crowded.plan(policy(limits="minDelayPerOwner: 5m"))
    assert kept(plan) == {"one": "OwnerDelay", "two": "OwnerDelay"}


def test_a_plugin_before_it_that_takes_a_place_is_counted(crowded: Cluster) -> None:
    """RemovePodsHavingTooManyRestarts sends a pod to `b`, which is then too full for a second move."""
    crowded.node("d", cpu="4")
    crowded.pod("restless", "d", cpu="4", owner="r", restarts=50)
    both = policy().replace("enabled: [MakeRoom]", "enabled: [RemovePodsHavingTooManyRestarts, MakeRoom]")
    both = both.replace(
        "- {name: MakeRoom",
        "- {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 5}}\n      - {name: MakeRoom",
    )
    plan = crowded.plan(both)
    places = [outcome.target for outcome in plan.evict]
    assert len(places) == 3 and len(set(places)) == 3


@pytest.mark.parametrize(
    ("change", "args"),
    [
        pytest.param(lambda pod: pod["status"]["conditions"][0].update(reason="SchedulingGated"), "", id="gated"),
        pytest.param(lambda pod: pod["status"].update(conditions=[]), "", id="not looked at yet"),
        pytest.param(
            lambda pod: pod["metadata"].update(creationTimestamp="2026-01-01T11:59:00Z"), "", id="waits for a minute"
        ),
        pytest.param(lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T11:59:00Z"), "", id="going"),
        pytest.param(lambda pod: None, "minPriority: 5", id="not important enough"),
        pytest.param(lambda pod: None, "namespaces: {exclude: [default]}", id="of another namespace"),
        pytest.param(lambda pod: None, "labelSelector: {matchLabels: {app: web}}", id="with other labels"),
    ],
)
def test_room_is_made_for_pods_that_the_scheduler_could_not_place(crowded: Cluster, change: Any, args: str) -> None:
    change(crowded.objects[-1])
    plan = crowded.plan(policy(f"evict: true, {args}" if args else ""))
    assert (plan.outcomes, plan.notes) == ((), ())


def test_the_important_come_first_and_the_others_are_counted(crowded: Cluster) -> None:
    waiting(crowded, "vip", cpu="8")["spec"]["priority"] = 9
    plan = crowded.plan(policy("evict: true, maxPods: 1"))
    assert {f.evidence["waiting"] for o in plan.evict for f in o.findings} == {"default/vip"}
    assert plan.notes[-1].text == "1 more pods wait for a node: maxPods is 1"


def test_guards_and_budgets_keep_pods_where_they_are(crowded: Cluster) -> None:
    crowded.budget("none", 0, {"app": "one"})
    plan = crowded.plan(policy())
    assert [note.reason for note in plan.notes] == ["NoRoomCanBeMade"]
    assert plan.notes[0].text.startswith("default/big waits for a node: 3 × the pods that may leave hold too little")


def test_the_explanation_of_a_waiting_pod_says_what_would_have_to_move(crowded: Cluster) -> None:
    view, setup = crowded.view(), reader.setup(reader.default())
    plan = planner.plan(view, setup, explained="default/big")
    told = explain.render(plan, "default/big")
    assert "ROOM FOR IT by the rules of profile default" in told
    assert "    fits       nowhere: 3 × insufficient cpu" in told
    assert "    room on    a, after 2 moves; highest priority 0, eviction cost 0" in told
    assert "        move   default/one from a to b (ReplicaSet/default/one, 4h old)" in told
    assert "    sure       fewer moves do not suffice" in told
    (values,) = explain.document(plan, "default/big")
    (room,) = values["profiles"][0]["rooms"]["nodes"]
    assert [move["pod"] for move in room["moves"]] == ["default/one", "default/two"]
    assert plan.evict == ()


def test_a_pod_that_asks_never_to_be_moved_stays(crowded: Cluster) -> None:
    crowded.objects[3]["metadata"]["annotations"][keys.EVICTION_COST] = str(2**31 - 1)
    assert crowded.plan(policy()).evict == ()


def test_a_pod_whose_place_is_made_by_the_others_is_not_waited_for(cluster: Cluster) -> None:
    """`large` goes where `small` was: it gets its place only when that has left."""
    cluster.node("a", cpu="8", labels={"disk": "ssd"})
    cluster.node("b", cpu="4")
    cluster.node("c", cpu="2")
    cluster.pod("large", "a", cpu="4", owner="x")
    cluster.pod("small", "b", cpu="2", owner="y")
    waiting(cluster, cpu="6")["spec"]["nodeSelector"] = {"disk": "ssd"}
    plan = cluster.plan(policy())
    assert moves(plan) == {"large": "b", "small": "c"}
    assert {outcome.together for outcome in plan.evict} == {("uid-large", "uid-small")}
    assert {outcome.held_first for outcome in plan.evict} == {("uid-small",)}


@pytest.mark.parametrize("seed", range(120))
def test_sets_go_whole_within_limits_and_make_the_room_that_they_promise(seed: int) -> None:
    cluster, _ = small_cluster(seed)
    cluster.objects[-1]["status"]["conditions"][0]["reason"] = "Unschedulable"
    for number in range(2):  # Two more that wait, and compete for the same places.
        waiting(cluster, f"also-{number}", cpu="4", memory="2Gi")
    total, per_node = 1 + seed % 4, 1 + seed % 3
    limits = f"maxNoOfPodsToEvictTotal: {total}\nmaxNoOfPodsToEvictPerNode: {per_node}"
    plan = cluster.plan(policy(limits=limits))
    assert len(plan.evict) <= total
    assert max(Counter(outcome.pod.node for outcome in plan.evict).values(), default=0) <= per_node
    going = {outcome.pod.uid for outcome in plan.evict}
    assert all(set(outcome.together) <= going for outcome in plan.evict)
    fit = FitSearch(plan.view)
    for outcome in plan.evict:
        fit.leave(outcome.pod)
    waits = {pod.key: pod for pod in plan.view.unbound}
    placed = {str(f.evidence["waiting"]): str(f.evidence["node"]) for outcome in plan.evict for f in outcome.findings}
    comes = [(waits[key], node) for key, node in placed.items()]
    for pod, node in [*comes, *((outcome.pod, outcome.target) for outcome in plan.evict)]:
        why, bookings = fit.answer(pod, node)
        assert why == "", f"{pod.key} on {node}"
        fit.move(pod, Place(node, bookings=bookings))
