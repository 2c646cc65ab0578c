"""Past evictions: who came back, who waits, who is left alone, and what is kept of it."""

from __future__ import annotations

import datetime
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from apiserver import ApiServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from descheduler.arguments.pacing import LOOPS
from descheduler.cycle import planner as cycle
from descheduler.history import configmap, past_evictions
from descheduler.history.past_evictions import CycleMemory, Move, Past, Round, StoredMemory
from descheduler.plan import Attempt, EvictionPlan
from descheduler.policy import reader
from koordlite.kube.client import access
from koordlite.model.errors import InputError

RESERVED = {"reservedCPUs": "0-1"}
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
POLICY = """
profiles:
- name: test
  pluginConfig:
  - name: ReservedCPUs
    args: {minSightings: SIGHTINGS, minPodAge: "0", byQuantity: false}
  plugins: {deschedule: {enabled: [ReservedCPUs]}}
"""
SETUP, PATIENT = (reader.setup(reader.parse(POLICY.replace("SIGHTINGS", n), "policy.yaml")) for n in ("1", "3"))


def stamp(minutes: float) -> str:
    return (NOON + datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Incurable:
    """An owner whose pods always come back onto reserved CPUs, a minute after each eviction."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        for name in ("a", "b"):
            cluster.node(name, reservation=RESERVED)
            cluster.report(name, reservation=RESERVED)
        self.number = 0
        self.pod = cluster.pinned("p-0", "a", "0-3", owner="app")
        self.recall = CycleMemory()

    def cycle(self, minutes: float) -> EvictionPlan:
        """A cycle so long after noon; what the plan takes goes, and its successor is wrong again."""
        plan = cycle.plan(self.cluster.view(stamp(minutes)), SETUP, None, history=self.recall.history)
        attempts = [Attempt(o.pod.key, "Evicted", {}, uid=o.pod.uid) for o in plan.evict]
        self.recall.end(plan, attempts, LOOPS, keep=True)
        if plan.evict:
            self.cluster.objects.remove(self.pod)
            self.number += 1
            self.pod = self.cluster.pinned(f"p-{self.number}", "a", "0-3", owner="app", started=stamp(minutes + 1))
        return plan


def reasons(plan: EvictionPlan) -> list[str]:
    return [o.reasons[0].reason if o.reasons else "goes" for o in plan.outcomes]


def test_a_loop_waits_longer_each_time_then_ends_and_says_so(cluster: Any) -> None:
    loop = Incurable(cluster)
    said = {minutes: reasons(loop.cycle(minutes)) for minutes in (0, 5, 9, 11, 20, 60, 600)}
    assert said == {
        0: ["goes"],
        5: ["BackOff"],
        9: ["BackOff"],
        11: ["goes"],
        20: ["MovedAndCameBack"],
        60: ["MovedAndCameBack"],
        600: ["MovedAndCameBack"],
    }
    (kept,) = loop.cycle(700).kept
    assert kept.reasons[0].text == (
        "ReplicaSet/default/app was moved 2 times for ReservedCPUs within 11m and came back; it is left alone until "
        "nothing was found with it for 1d"
    )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gaps=st.lists(st.integers(1, 600), min_size=3, max_size=12))
def test_a_loop_ends_however_often_one_looks(make: Callable[[], Any], gaps: list[int]) -> None:
    loop = Incurable(make())
    minutes = list(itertools.accumulate(gaps))
    moved = [minute for minute in minutes if loop.cycle(minute).evict]
    assert len(moved) <= LOOPS.max_rounds
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(moved))


@pytest.fixture
def make(cluster: Any) -> Callable[[], Any]:
    """A new empty cluster each time."""
    return type(cluster)


def test_it_starts_afresh_when_nothing_was_wrong_for_a_day(cluster: Any) -> None:
    loop = Incurable(cluster)
    for minutes in (0, 11, 20):
        loop.cycle(minutes)
    assert reasons(loop.cycle(20 + 23 * 60)) == ["MovedAndCameBack"]
    assert reasons(loop.cycle(20 + 48 * 60)) == ["goes"]


def test_what_goes_by_load_does_not_prolong_the_time(cluster: Any) -> None:
    loop = Incurable(cluster)
    first = loop.cycle(0)
    history = loop.recall.history
    for plugin, seen in (("LowNodeUtilization", 0), ("NUMAAlignment", 60)):
        findings = tuple(msgspec.structs.replace(f, plugin=plugin) for f in first.evict[0].findings)
        view = cluster.view(stamp(60))
        plan = msgspec.structs.replace(
            first, view=view, evict=(), kept=(msgspec.structs.replace(first.evict[0], findings=findings),)
        )
        (past,) = past_evictions.after(history, plan, [], LOOPS).values()
        assert past.seen == NOON.timestamp() + 60 * seen


def test_pods_that_were_there_all_along_have_not_come_back(cluster: Any) -> None:
    loop = Incurable(cluster)
    loop.cycle(0)
    cluster.objects.remove(loop.pod)
    loop.pod = cluster.pinned("another", "a", "0-3", owner="app", started=stamp(-60))
    assert reasons(loop.cycle(2)) == ["goes"]


@pytest.mark.parametrize(("ahead", "rounds"), [(4.0, 1), (60.0, 0)], ids=["seconds", "a pod that was there before"])
def test_a_successor_is_known_by_a_clock_that_is_a_little_behind(cluster: Any, ahead: float, rounds: int) -> None:
    cluster.node("a")
    cluster.pod("p", "a", owner="app", started=stamp(0))
    view = cluster.view()
    (pod,) = view.pods()
    moment = NOON.timestamp() + ahead
    past = Past(moment, {"P": (Round(moment, moment, 1),)})
    assert past_evictions.generation(pod, "P", past) == rounds


def test_evictions_that_failed_leave_no_trace(cluster: Any) -> None:
    loop = Incurable(cluster)
    plan = cycle.plan(cluster.view(stamp(0)), SETUP)
    blocked = [Attempt(o.pod.key, "Blocked", {}, uid=o.pod.uid) for o in plan.evict]
    assert past_evictions.after({}, plan, blocked, LOOPS) == {}
    assert loop.recall.history == {}


def test_pods_of_one_cycle_are_of_one_round(cluster: Any) -> None:
    Incurable(cluster)
    cluster.pinned("second", "a", "1,4", owner="app")
    plan = cycle.plan(cluster.view(stamp(0)), SETUP)
    gone = [Attempt(o.pod.key, "Evicted", {}, uid=o.pod.uid) for o in plan.evict]
    (past,) = past_evictions.after({}, plan, gone, LOOPS).values()
    assert [(one.count, one.first) for one in past.rounds["ReservedCPUs"]] == [(2, NOON.timestamp())]


def test_a_place_that_a_successor_is_on_its_way_to_is_not_free(cluster: Any) -> None:
    cluster.node("a", reservation=RESERVED, cpu="6")
    cluster.report("a", reservation=RESERVED)
    cluster.node("b", cpu="6")
    cluster.report("b")
    cluster.pinned("new", "a", "0-3", owner="other")
    waiting = cluster.pod("successor", "", cpu="4", owner="app", started=stamp(-1))
    waiting["status"]["phase"] = "Pending"
    cluster.pod("filler", "a", cpu="2", owner="filler")
    move = Move(NOON.timestamp() - 120, "default/old", "a", "b", ((0, {"cpu": "4"}),))
    history = {"ReplicaSet/default/app": Past(NOON.timestamp(), {}, (move,))}
    assert reasons(cycle.plan(cluster.view(), SETUP, None)) == ["goes"]
    assert reasons(cycle.plan(cluster.view(), SETUP, None, history=history)) == ["FitsNowhere"]


KEPT = StoredMemory(
    {
        "ReplicaSet/default/app": Past(
            5.0, {"NUMAAlignment": (Round(1.0, 2.0, 3),)}, (Move(2.0, "default/p", "a", "b"),)
        )
    },
    {("uid", "CPUSpansNUMA"): 2},
)


def test_a_long_history_is_shortened_to_what_a_configmap_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    move = [Move(float(at), f"ns/pod-{at}", "a", "b") for at in range(10)]
    rounds: dict[str, tuple[Round, ...]] = {"P": (Round(0.0, 9.0, 10),)}
    history = {f"ReplicaSet/ns/{n}": Past(float(n), rounds, tuple(move)) for n in range(40)}
    kept = StoredMemory(history, {("uid", "Wrong"): 2})
    whole = len(configmap.encode(kept))
    found = {}
    for part in (1.0, 0.5, 0.25, 0.1, 0.0):
        monkeypatch.setattr(configmap, "MOST_BYTES", int(whole * part))
        text = configmap.encode(kept)
        assert len(text) <= int(whole * part) or text == configmap.encode(StoredMemory())
        found[part] = configmap.decode(text, "x")
    assert found[1.0] == kept
    assert {len(past.moves) for past in found[0.5].history.values()} == {3} and found[0.5].sightings == kept.sightings
    assert {owner: past.moves[-1].at for owner, past in found[0.25].history.items()} == dict.fromkeys(history, 9.0)
    assert all(past.rounds == rounds for past in found[0.25].history.values())
    assert set(found[0.1].history) == {f"ReplicaSet/ns/{n}" for n in range(30, 40)}, "those that were seen last stay"
    assert found[0.0] == StoredMemory()


def test_what_is_written_is_read_again() -> None:
    assert configmap.decode(configmap.encode(KEPT), "here") == KEPT


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":2,"owners":{}}', '{"version":1,"owners":{"a":1}}'])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(InputError, match="delete the ConfigMap"):
        configmap.decode(text, "configmap/kube-system/descheduler-memory")


@pytest.fixture
def api(tmp_path: pathlib.Path) -> Iterator[access.Api]:
    with ApiServer() as server:
        file = tmp_path / "kubeconfig"
        file.write_text(server.kubeconfig())
        yield access.connect(str(file), None, user_agent="test")


def test_the_history_outlives_the_process_on_the_cluster(cluster: Any, api: access.Api) -> None:
    loop = Incurable(cluster)
    loop.recall = CycleMemory(configmap.ConfigMapStore(api, "default"))
    loop.recall.begin(cluster.view(stamp(0)), leads=True)
    for minutes in (0, 11):
        loop.cycle(minutes)
    assert loop.recall.problems == ()
    loop.recall = CycleMemory(configmap.ConfigMapStore(api, "default"))
    loop.recall.begin(cluster.view(stamp(0)), leads=True)
    assert reasons(loop.cycle(20)) == ["MovedAndCameBack"]


def test_counts_of_sightings_outlive_the_process_too(cluster: Any, api: access.Api) -> None:
    """As a CronJob runs: each cycle in a process of its own."""
    said = []
    Incurable(cluster)
    for minutes in range(3):
        recall = CycleMemory(configmap.ConfigMapStore(api, "default"), single=True)
        recall.begin(cluster.view(stamp(0)), leads=True)
        plan = cycle.plan(cluster.view(stamp(minutes)), PATIENT, recall.sightings, history=recall.history)
        recall.end(plan, [], LOOPS, keep=True)
        said += reasons(plan)
    assert said == ["SeenTooFewTimes", "SeenTooFewTimes", "goes"]


def test_a_single_cycle_without_a_store_does_not_wait_for_more() -> None:
    assert CycleMemory(single=True).sightings is None


def test_a_damaged_history_is_said_and_never_written_over(cluster: Any, api: access.Api) -> None:
    meta = {"name": configmap.NAME, "namespace": "default"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {configmap.KEY: "?"}}
    api.request("POST", "/api/v1/namespaces/default/configmaps", body=body)
    loop = Incurable(cluster)
    loop.recall = CycleMemory(configmap.ConfigMapStore(api, "default"))
    loop.recall.begin(cluster.view(stamp(0)), leads=True)
    assert [p.field for p in loop.recall.problems] == [f"data[{configmap.KEY}]"]
    loop.cycle(0)
    answer = api.request("GET", f"/api/v1/namespaces/default/configmaps/{configmap.NAME}")
    assert json.loads(answer.body)["data"] == {configmap.KEY: "?"}


def test_who_lost_the_lease_keeps_nothing(cluster: Any, api: access.Api) -> None:
    loop = Incurable(cluster)
    loop.recall = CycleMemory(configmap.ConfigMapStore(api, "default"), leads=lambda: False)
    loop.recall.begin(cluster.view(stamp(0)), leads=True)
    loop.cycle(0)
    assert configmap.ConfigMapStore(api, "default").load() == StoredMemory()
