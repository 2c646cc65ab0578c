"""What is kept between a binding and the report that counts it: when it begins, what it takes, and why it ends."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from koordlite.model.wire import objects
from koordlite.scheduler import cluster
from koordlite.scheduler.cluster import Board
from koordlite.scheduler.extender import BINDING_SECONDS, BindError, NotReady
from koordlite.scheduler.judgement.nodes import JudgeSettings
from tests.scheduler import builders
from tests.scheduler.builders import Scene, as_object, bound, pod

FULL = {"cpu": "8", "memory": "32Gi"}


def scene(**settings: object) -> Scene:
    created = Scene(JudgeSettings(**settings))  # type: ignore[arg-type]
    created.node("a", FULL, FULL, signed=[])
    return created


def test_a_binding_counts_on_every_numa_node_until_the_report_counts_it() -> None:
    world = scene()
    first = pod("first", "6")
    assert world.schedule(first, "a") == "a"
    assert world.zones("a") == [2, 2]
    assert world.filter(pod("second", "6"), "a") == ([], {"a": "cannot align container"})
    world.put(bound(first, "a", "Pending"))
    assert world.zones("a") == [2, 2]
    world.put(bound(first, "a"))
    world.report("a", {"cpu": "2", "memory": "31Gi"}, FULL, signed=[first])
    assert world.zones("a") == [2, 8]
    assert world.filter(pod("second", "6"), "a")[0] == ["a"]


def test_an_old_report_does_not_count_a_pod_however_long_it_stays() -> None:
    world = scene()
    world.schedule(pod("first", "6"), "a")
    world.put(bound(pod("first", "6"), "a"))
    world.clock.pass_(100_000)
    assert world.zones("a") == [2, 2]
    state = world.cluster.nodes["a"]
    assert (state.dirty_since, state.dirty_why) == (1000.0, "not counted yet: ns/first")


def test_a_fingerprint_of_some_of_the_new_pods_frees_only_what_those_reserve() -> None:
    world = scene()
    pods = [pod(name, "2") for name in ("one", "two", "three")]
    for each in pods:
        world.bind(each, "a")
        world.put(bound(each, "a", "Pending"))
    world.report("a", {"cpu": "4", "memory": "30Gi"}, FULL, signed=pods[:2])
    assert world.zones("a") == [2, 6]


def test_a_report_without_fingerprint_counts_a_pod_when_it_changes_after_the_start() -> None:
    world = Scene()
    world.node("a", FULL, FULL)
    first = pod("first", "6")
    world.bind(first, "a")
    world.put(bound(first, "a"))
    world.report("a", FULL, FULL)
    assert world.zones("a") == [2, 2], "it came too soon after the start to count the pod for certain"
    world.clock.pass_(3)
    world.report("a", {"cpu": "2", "memory": "31Gi"}, FULL)
    assert world.zones("a") == [2, 8]


def test_a_report_without_fingerprint_that_stays_the_same_is_believed_after_a_while() -> None:
    world = Scene()
    world.node("a", FULL, FULL)
    world.bind(pod("first", "6"), "a")
    world.put(bound(pod("first", "6"), "a"))
    assert world.zones("a") == [2, 2]
    world.clock.pass_(66)
    assert world.zones("a") == [8, 8]


def test_what_ran_before_the_start_is_in_the_report() -> None:
    world = Scene()
    world.cluster._synced = False
    world.put(bound(pod("old", "4"), "a"))
    world.node("a", {"cpu": "4", "memory": "31Gi"}, FULL, signed=[pod("old")])
    world.cluster.synced()
    assert world.zones("a") == [4, 8]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("bound there", "seen bound"),
        ("bound elsewhere", "bound elsewhere"),
        ("deleted", "deleted"),
        ("failed", "ended"),
        ("nothing", "expired"),
        ("the node goes", "node gone"),
        ("another attempt", "attempted again"),
        ("made again", "deleted"),
    ],
)
def test_a_reservation_ends_with_a_reason(event: str, why: str) -> None:
    world = scene()
    world.node("b", FULL, FULL, signed=[])
    first = pod("first", "6")
    world.put(first)
    world.bind(first, "a")
    match event:
        case "bound there":
            world.put(bound(first, "a", "Pending"))
        case "bound elsewhere":
            world.put(bound(first, "b", "Pending"))
            assert world.zones("a") == [8, 8]
            assert world.zones("b") == [2, 2]
        case "deleted":
            world.cluster.remove_pod("ns/first")
        case "failed":
            world.put(bound(first, "a", "Failed"))
        case "nothing":
            world.clock.pass_(61)
        case "the node goes":
            world.cluster.remove_node("a")
        case "another attempt":
            world.filter(first, "a", "b")
        case "made again":
            world.put(pod("first", "6", uid="another"))
    world.cluster.refresh()
    assert [ended.why for ended in world.cluster.assumed.ended] == [why]
    assert len(world.cluster.assumed) == 0


def test_a_failed_binding_frees_the_node_and_one_of_unknown_outcome_does_not() -> None:
    world = scene()
    world.api.fail = BindError("no", is_certain=True)
    world.put(pod("first", "6"))
    assert world.bind(pod("first", "6"), "a") == "no"
    assert world.zones("a") == [8, 8]
    world.api.fail = BindError("timed out", is_certain=False)
    assert world.bind(pod("first", "6"), "a") == "timed out"
    assert world.zones("a") == [2, 2]


def test_the_best_node_of_a_prioritized_pod_is_kept_for_a_moment() -> None:
    world = scene()
    world.node("b", FULL, signed=[])
    first, passed = pod("first", "6"), ["a", "b"]
    world.filter(first, *passed)
    scores = world.extender.prioritize(builders.as_object(first), passed)
    retained = world.cluster.assumed.of_pod("uid-first")
    assert retained is not None
    assert retained.stage == "tentative"
    assert dict(scores)[retained.node] == max(score for _, score in scores)
    world.clock.pass_(2.1)
    world.cluster.refresh()
    assert world.cluster.assumed.ends == {"expired": 1}


def test_a_pod_that_is_left_one_node_is_kept_there_without_prioritize() -> None:
    world = scene()
    world.filter(pod("first", "6"), "a")
    assert world.filter(pod("second", "6"), "a")[0] == []
    assert world.filter(pod("first", "6"), "a")[0] == ["a"], "a pod is not in its own way"


def test_the_first_of_two_bindings_for_one_place_wins_and_the_other_is_told() -> None:
    world = scene()
    for name in ("first", "second"):
        world.put(pod(name, "6"))
    assert world.bind(pod("first", "6"), "a") == ""
    assert world.bind(pod("second", "6"), "a") == "cannot align container (taken meanwhile by another pod)"
    assert [key for key, _, _ in world.api.bound] == ["ns/first"]


def test_a_pod_that_is_gone_is_given_back_where_the_report_says_it_was() -> None:
    world = scene()
    first = pod("first", "6")
    placed = (
        '{"observedAt":"2026-01-01T00:00:00Z","generation":1,"containers":[{"namespace":"ns","pod":"first",'
        '"uid":"uid-first","container":"c","source":"kubelet","exclusive":true,"promisedNodes":[1]}]}'
    )
    world.put(bound(first, "a"))
    note = {"placement.koordlite.io/containers": placed}
    world.report("a", FULL, {"cpu": "2", "memory": "31Gi"}, signed=[first], annotations=note, totals=FULL)
    assert world.zones("a") == [8, 2]
    world.cluster.remove_pod("ns/first")
    assert world.zones("a") == [8, 8], "kubelet admits the next pod although its report is a moment old"
    world.report("a", FULL, FULL, signed=[])
    assert world.zones("a") == [8, 8]
    assert world.cluster.nodes["a"].dirty_since is None


@pytest.mark.parametrize(
    ("mode", "passes", "zones"),
    [("overreserve", False, [2, 2]), ("passthrough", True, [8, 8]), ("discardReserved", False, [8, 8])],
)
def test_cache_modes(mode: str, passes: bool, zones: list[int]) -> None:
    world = scene(cache=mode)
    world.put(pod("first", "6"))
    world.bind(pod("first", "6"), "a")
    passed, refused = world.filter(pod("second", "6"), "a")
    assert bool(passed) is passes
    assert world.zones("a") == zones
    if mode == "discardReserved":
        assert refused == {"a": "invalid node topology data"}


@pytest.mark.parametrize(("mode", "passes"), [("reserve", ["small"]), ("refuse", []), ("ignore", ["small", "large"])])
def test_pods_of_other_schedulers(mode: str, passes: list[str]) -> None:
    world = scene(foreign_pods=mode)
    world.put(bound(pod("foreign", "6", scheduler="volcano"), "a"))
    result = [name for name, cpu in (("small", "2"), ("large", "6")) if world.filter(pod(name, cpu), "a")[0]]
    assert result == passes


def test_steps_of_the_wall_clock_change_nothing() -> None:
    world = scene()
    world.schedule(pod("first", "6"), "a")
    world.clock.wall -= 86_400
    assert world.zones("a") == [2, 2]
    world.clock.wall += 10 * 86_400
    assert world.zones("a") == [2, 2]
    assert world.cluster.assumed.ends["expired"] == 0


def test_heartbeats_of_a_node_compile_nothing() -> None:
    world = scene()
    before = world.cluster.row("a")
    world.node("a")
    assert world.cluster.row("a") is before


def test_a_pod_that_kubelet_refused_is_counted_as_predicted_wrong() -> None:
    world = scene()
    first = pod("first", "6")
    world.schedule(first, "a")
    world.put(bound(first, "a", "Pending"))
    failed = bound({**first, "status": {**first["status"], "reason": "TopologyAffinityError"}}, "a", "Failed")
    world.put(failed)
    world.put({**failed, "metadata": {**failed["metadata"], "labels": {"koordinator.sh/qosClass": "LS"}}})
    assert world.cluster.predicted_wrong == 1
    assert world.zones("a") == [8, 8]


def test_a_pod_that_another_bound_while_nobody_asked_says_nothing_about_the_prediction() -> None:
    world = scene()
    first = pod("first", "6")
    world.put(bound(first, "a", "Pending"))
    world.put(bound({**first, "status": {**first["status"], "reason": "TopologyAffinityError"}}, "a", "Failed"))
    assert world.cluster.predicted_wrong == 0


def test_a_binding_waits_until_the_cluster_is_known() -> None:
    world = scene()
    world.put(pod("first", "6"))
    world.age = None
    with pytest.raises(NotReady, match="has not been listed yet"):
        world.bind(pod("first", "6"), "a")
    assert world.api.bound == []


def test_the_next_pod_waits_a_moment_for_the_binding_of_the_one_before() -> None:
    """The scheduler chose another node than the best one: only its binding says so, and it is on its way."""
    world = scene()
    world.node("b", FULL, FULL, signed=[])
    world.schedule(pod("zero", "1"), "a")
    first, second = pod("first", "6"), pod("second", "6")
    world.filter(first, "a", "b")
    best = max(world.extender.prioritize(as_object(first), ["a", "b"]), key=lambda pair: pair[1])[0]
    other = "b" if best == "a" else "a"
    threads = threading.Timer(0.01, world.bind, (first, other))
    threads.start()
    passed, refused = world.filter(second, "a", "b")
    threads.join()
    assert (passed, list(refused)) == ([best], [other])
    started = time.monotonic()
    world.extender.prioritize(as_object(second), ["a", "b"])
    for name in ("third", "fourth"):
        world.filter(pod(name, "1"), "a", "b")
    assert time.monotonic() - started < 4 * BINDING_SECONDS, "a scheduler that binds without us is waited for once"


def test_reports_with_gaps_contradictions_and_foreign_zones() -> None:
    world = Scene()
    world.node("gaps", FULL, FULL, ids=(0, 3), signed=[])
    assert world.filter(pod("p", "6"), "gaps")[0] == ["gaps"]
    world.node("contradicts", {"cpu": "80", "memory": "1Gi"}, totals={"cpu": "8"}, signed=[])
    assert world.filter(pod("p", "6"), "contradicts") == ([], {"contradicts": "invalid node topology data"})
    assert world.filter(pod("shared", "6", qos="Burstable"), "contradicts")[0] == ["contradicts"]
    row = world.cluster.row("contradicts")
    assert row is not None
    assert "available 80 is not between 0 and allocatable 8" in row.unusable
    foreign = builders.report("foreign", FULL)
    foreign["zones"][0]["name"] = "numa0"
    world.node("foreign")
    world.cluster.put_report(msgspec.convert(foreign, objects.NRTObject))
    assert world.filter(pod("p", "6"), "foreign")[0] == ["foreign"], "no NUMA node is known, so nothing is predicted"


def test_a_pod_that_waits_is_judged_before_it_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    world = scene()
    world.put(pod("first", "6"))
    world.put(pod("other", "7", scheduler="other"))
    world.extender.warm()
    judgements: list[str] = []
    monkeypatch.setattr(Board, "judge", lambda board, rows: judgements.extend(row.name for row in rows if row))
    assert world.filter(pod("first", "6"), "a")[0] == ["a"]
    assert judgements == [], "nothing was left to judge"
    world.filter(pod("other", "7", scheduler="other"), "a")
    assert judgements == ["a"], "of another scheduler's pods nobody asks here"


def test_nodes_that_have_gone_are_refused_no_more_and_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MOST_CHANGES", 2)
    world, names = scene(), [f"n{number}" for number in range(8)]
    for name in names:
        world.node(name, {"cpu": "0", "memory": "0"}, signed=[])
        assert world.filter(pod("p", "6"), name, "a")[0] == ["a"]
        world.cluster.remove_node(name)
        world.cluster.remove_report(name)
    assert world.filter(pod("p", "6"), *names, "a") == ([*names, "a"], {})
    assert len(world.cluster.changed_since(0)) <= 1 + 2
