"""When pods have to go for CPU, who goes, and when nobody does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.node import Node
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import cpu_evict
from koordlite.strategies.shared.evict import EvictionMemory

SATISFACTION = {"cpu_evict_be_satisfaction_lower_percent": 30, "cpu_evict_be_satisfaction_upper_percent": 40}
REQUESTS = {
    "cpu_allocatable_evict_threshold_percent": 80,
    "cpu_allocatable_evict_lower_percent": 70,
    "allocatable_evict_priority_threshold": 5999,
}
USE = {"cpu_evict_threshold_percent": 80, "cpu_evict_lower_percent": 60, "evict_enabled_priority_threshold": 5999}
MAY_GO = {keys.EVICTION_ENABLED: "true"}
WARM = EvictionMemory(started=0.0)


def batch(name: str, milli: int, priority: int | None = 5500, **more: Any) -> Pod:
    """A BE pod that requests batch-cpu and may be evicted."""
    requests = {keys.BATCH_CPU: Quantity.of(milli)}
    given: dict[str, Any] = {
        "namespace": "ns",
        "name": name,
        "uid": name,
        "raw_qos": QoSClass.BE,
        "labels": MAY_GO,
        "priority": priority,
        "containers": (ContainerInfo("main", "", True, requests, {}),),
    }
    return Pod(**{**given, **more})


def usage(node: int | None, pods: dict[str, int], *, be: tuple[int, int, int] = (0, 0, 0), samples: int = 60) -> Usage:
    """CPU of the node and of pods; `be` is used, requested and allowed."""
    return Usage(
        None if node is None else Use(node, 0),
        {uid: Use(milli, 0) for uid, milli in pods.items()},
        {},
        best_effort_cpu=be[0],
        best_effort_request=be[1],
        best_effort_limit=be[2],
        samples=samples,
    )


def picture(build: Any, pods: tuple[Pod, ...], use: Usage, *, mean: Usage | None = None, **more: Any) -> Snapshot:
    """A node of 8 CPUs that promises 4 CPUs of batch-cpu; it was warm when the agent looked."""
    amounts = {"cpu": Quantity.of(8), "memory": Quantity.of(2**30)}
    promised = {**amounts, keys.BATCH_CPU: Quantity.of(4000)}
    threshold = {**SATISFACTION, **REQUESTS, **USE, **more.pop("threshold", {})}
    given = {
        "pods": pods,
        "usage": use,
        "windows": {1: mean or use},
        "slo": build.suppression(**threshold),
        "node": Node(name="n", capacity=amounts, allocatable=promised),
        "remembered": {"cpuEvict": WARM},
    }
    picture: Snapshot = build.snapshot(**{**given, **more})
    return picture


def decide(seen: Snapshot, *rules: str, **config: Any) -> list[Decision]:
    switched_on: dict[str, Any] = dict.fromkeys(rules or ("be_cpu_evict", "cpu_allocatable_evict", "cpu_evict"), True)
    return list(cpu_evict.decide(seen, cpu_evict.Config(**switched_on, **config)))


def evicted(decisions: list[Decision]) -> list[str]:
    return sorted(str(change.place).split("/")[2] for d in decisions for change in d.changes)


def words(decisions: list[Decision]) -> dict[str, str]:
    return {d.subject: d.reason for d in decisions}


HOT = {"be_mean": (950, 5000, 1000)}
"""BE may use a fifth of what it requests, and uses all of it."""


# ── satisfaction ──


@pytest.mark.parametrize(
    ("mean", "last", "gone"),
    [
        pytest.param((950, 5000, 1000), (950, 5000, 1000), ["a"], id="starved: 40 % of 5000 − 1000 = 1000 has to go"),
        pytest.param((950, 5000, 1000), (1900, 5000, 2000), [], id="at present it may use 40 %: nobody goes"),
        pytest.param((500, 5000, 1000), (500, 5000, 1000), [], id="it does not use what it may: it needs no more"),
        pytest.param((950, 3000, 1000), (950, 3000, 1000), [], id="a third of the request is more than 30 %"),
        pytest.param((0, 5000, 900), (0, 5000, 900), ["a"], id="below one CPU use says nothing about need"),
        pytest.param((950, 5000, 0), (950, 5000, 0), [], id="without a limit there is no share"),
    ],
)
def test_starved_best_effort_gives_up_requests(
    build: Any, mean: tuple[int, int, int], last: tuple[int, int, int], gone: list[str]
) -> None:
    pods = (batch("a", 2500), batch("b", 2500))
    use, before = (usage(4000, {"a": 900, "b": 100}, be=be) for be in (last, mean))
    assert evicted(decide(picture(build, pods, use, mean=before), "be_cpu_evict")) == gone


def test_the_promise_counts_where_the_policy_says_so(build: Any) -> None:
    pods = (batch("a", 9000), batch("b", 9000))
    seen = picture(
        build, pods, usage(4000, {}, be=(3900, 18000, 8000)), threshold={"cpu_evict_policy": "evictByAllocatable"}
    )
    (rule, *_) = decide(seen, "be_cpu_evict")
    assert rule.evidence["release_batch_cpu_milli"] == int(18000 * (0.4 - 4000 / 18000))


def test_a_window_with_few_samples_evicts_nobody(build: Any) -> None:
    seen = picture(build, (batch("a", 5000),), usage(4000, {}, be=HOT["be_mean"]))
    seen = dataclasses.replace(
        seen,
        slo=build.suppression(**SATISFACTION, cpu_evict_time_window_seconds=60),
        windows={60: usage(4000, {}, be=HOT["be_mean"], samples=19)},
    )
    assert words(decide(seen, "be_cpu_evict"))["evict/BECPUEvict"] == "TooFewSamples"
    enough = dataclasses.replace(seen, windows={60: usage(4000, {}, be=HOT["be_mean"], samples=20)})
    assert evicted(decide(enough, "be_cpu_evict")) == ["a"]


# ── use ──


@pytest.mark.parametrize(
    ("mean", "last", "gone"),
    [
        pytest.param(6400, 6400, ["low"], id="80 % reached: 20 % of 8 CPUs has to go, the lowest priority first"),
        pytest.param(6399, 6399, [], id="79 % is less than 80 %"),
        pytest.param(7200, 7200, ["high", "low"], id="at 90 % one pod is not enough"),
        pytest.param(7200, 1000, [], id="the node has recovered: the mean alone evicts nobody"),
        pytest.param(1000, 7200, [], id="one peak evicts nobody"),
    ],
)
def test_use_over_the_threshold_is_brought_down_to_the_lower_end(
    build: Any, mean: int, last: int, gone: list[str]
) -> None:
    pods = (batch("high", 0, 5600), batch("low", 0, 5500), build.pod("web", "LS"))
    by_pod = {"high": 2000, "low": 1600, "web": 3000}
    seen = picture(build, pods, usage(last, by_pod), mean=usage(mean, by_pod))
    assert evicted(decide(seen, "cpu_evict")) == gone


@pytest.mark.parametrize(
    ("change", "word"),
    [
        pytest.param({"labels": {}}, "EvictionNotEnabled", id="its label does not allow it"),
        pytest.param({"labels": {keys.EVICTION_ENABLED: "True"}}, "EvictionNotEnabled", id="True is not true"),
        pytest.param({"priority": 6000}, "PriorityTooHigh", id="its priority is above the threshold"),
        pytest.param({"phase": "Succeeded"}, "PodHasEnded", id="it has ended"),
        pytest.param({"deleting": True}, "AlreadyLeaving", id="somebody is deleting it"),
        pytest.param({"uid": "unseen"}, "NoPodSample", id="its use is unknown"),
        pytest.param({"annotations": {keys.EVICTION_POLICY: '["BECPUEvict"]'}}, "EvictionPolicyForbids", id="policy"),
        pytest.param({"annotations": {keys.EVICTION_POLICY: "CPUEvict"}}, "EvictionPolicyForbids", id="broken policy"),
    ],
)
def test_a_pod_that_may_not_go_stays_with_its_reason(build: Any, change: dict[str, Any], word: str) -> None:
    seen = picture(build, (batch("a", 1000, **change), batch("b", 0)), usage(8000, {"a": 1000, "b": 4000}))
    decisions = decide(seen, "cpu_evict")
    assert words(decisions)["pod/ns/a"] == word
    assert evicted(decisions) == ["b"]


# ── requests ──


def test_requests_over_the_promise_go_down_to_the_lower_end(build: Any) -> None:
    pods = (batch("a", 1000), batch("b", 2500), batch("done", 9000, phase="Failed"))
    decisions = decide(picture(build, pods, usage(0, {"a": 0, "b": 0})), "cpu_allocatable_evict")
    assert decisions[0].evidence["release_batch_cpu_milli"] == 3500 - 2800
    assert evicted(decisions) == ["b"]


def test_a_promise_that_has_just_gone_evicts_nobody_until_it_lasts(build: Any) -> None:
    bare = {"cpu": Quantity.of(8), "memory": Quantity.of(2**30)}
    seen = picture(build, (batch("a", 1000),), usage(0, {"a": 0}), node=Node(name="n", capacity=bare, allocatable=bare))
    first = decide(seen, "cpu_allocatable_evict")
    assert words(first)["evict/CPUAllocatableEvict"] == "AllocatableJustGone"
    assert first[-1].remember is not None
    later = dataclasses.replace(seen, time=seen.time + 300, remembered={"cpuEvict": first[-1].remember})
    assert evicted(decide(later, "cpu_allocatable_evict")) == ["a"]


def test_classes_behind_no_promise_are_neither_counted_nor_evicted(build: Any) -> None:
    free = batch(
        "free", 0, 3500, labels={**MAY_GO, keys.PRIORITY_CLASS: "koord-free"}, requests={"cpu": Quantity.of(8)}
    )
    decisions = decide(picture(build, (free, batch("a", 3900)), usage(0, {"free": 0, "a": 0})), "cpu_allocatable_evict")
    assert words(decisions)["pod/ns/free"] == "ReleasesNothing"
    assert evicted(decisions) == ["a"]


# ── rounds ──


def test_a_cool_down_follows_the_start_and_an_accepted_eviction(build: Any) -> None:
    seen = picture(build, (batch("a", 0), batch("b", 0)), usage(8000, {"a": 3000, "b": 3000}))
    starting = dataclasses.replace(seen, remembered={})
    assert words(decide(starting, "cpu_evict")) == {"evict": "CoolingDown"}
    asked = decide(seen, "cpu_evict")
    kept = {"cpuEvict": asked[-1].remember or EvictionMemory()}
    refused = dataclasses.replace(seen, time=seen.time + 1, remembered=kept)
    assert evicted(decide(refused, "cpu_evict")) == ["a", "b"]
    accepted = dataclasses.replace(refused, evicted={"a": seen.time})
    assert words(decide(accepted, "cpu_evict")) == {"evict": "CoolingDown"}


def test_what_was_evicted_already_counts_as_released(build: Any) -> None:
    seen = picture(build, (batch("a", 0), batch("b", 0)), usage(6400, {"a": 1700, "b": 1700}), evicted={"b": 990.0})
    decisions = decide(seen, "cpu_evict")
    assert words(decisions)["pod/ns/b"] == "AlreadyLeaving"
    assert evicted(decisions) == []


def test_a_refused_pod_does_not_stand_in_the_way_of_the_next(build: Any) -> None:
    refusals = {"a": "budget used up"}
    seen = picture(
        build, (batch("a", 0), batch("b", 0)), usage(6400, {"a": 1700, "b": 1700}), refused_evictions=refusals
    )
    decisions = decide(seen, "cpu_evict")
    assert words(decisions)["pod/ns/a"] == "EvictionRefused"
    assert evicted(decisions) == ["b"]


def test_a_round_evicts_no_more_than_its_bound(build: Any) -> None:
    pods = tuple(batch(f"p{n}", 0) for n in range(9))
    seen = picture(build, pods, usage(8000, {pod.uid: 500 for pod in pods}))
    decisions = decide(seen, "cpu_evict", max_evictions_per_round=3)
    assert len(evicted(decisions)) == 3
    assert list(words(decisions).values()).count("NextRound") == 6


@pytest.mark.parametrize("name", ["usage", "node", "pods", "config"])
@given(age=st.floats(60.1, 1e6))
def test_nobody_is_evicted_while_input_is_stale(build: Any, name: str, age: float) -> None:
    pods = (batch("a", 9000), batch("b", 9000))
    seen = picture(build, pods, usage(8000, {"a": 4000, "b": 3000}, be=HOT["be_mean"]))
    assert evicted(decide(seen))
    stale = dataclasses.replace(seen, ages={"usage": 0.0, name: age})
    assert words(decide(stale)) == {"evict": "StaleInput"}


def test_nobody_is_evicted_without_a_sample_or_when_it_is_off(build: Any) -> None:
    pods = (batch("a", 9000),)
    assert words(decide(picture(build, pods, usage(None, {})))) == {"evict": "NoMetrics"}
    off = picture(build, pods, usage(8000, {"a": 8000}), threshold={"enable": False})
    assert words(decide(off)) == {"evict": "Disabled"}
    assert words(list(cpu_evict.decide(off, cpu_evict.Config()))) == {"evict": "NoEvictionRule"}


def test_a_rule_without_its_thresholds_says_so_and_the_others_go_on(build: Any) -> None:
    threshold = {"cpu_evict_be_satisfaction_lower_percent": None}
    seen = picture(build, (batch("a", 0),), usage(8000, {"a": 8000}), threshold=threshold)
    decisions = decide(seen)
    assert words(decisions)["evict/BECPUEvict"] == "BadEvictionConfig"
    assert evicted(decisions) == ["a"]


@given(
    used=st.lists(st.integers(0, 2000), min_size=1, max_size=8),
    node=st.integers(0, 9000),
    seed=st.randoms(use_true_random=False),
)
def test_evictions_stop_when_the_sum_is_reached_whatever_the_order_of_pods(
    build: Any, used: list[int], node: int, seed: Any
) -> None:
    pods = [batch(f"p{n}", 0, 5000 + n % 3) for n in range(len(used))]
    by_pod = {pod.uid: milli for pod, milli in zip(pods, used, strict=True)}
    decisions = decide(picture(build, tuple(pods), usage(node, by_pod)), "cpu_evict", max_evictions_per_round=100)
    gone = evicted(decisions)
    wanted = int(decisions[0].evidence.get("release_cpu_milli", 0))
    assert sum(by_pod[name] for name in gone) >= min(wanted, sum(used))
    last = max((d.evidence["rank"], d.subject.rpartition("/")[2]) for d in decisions if d.changes)[1] if gone else ""
    assert not gone or sum(by_pod[name] for name in gone if name != last) < wanted
    assert all(by_pod[name] > 0 for name in gone)
    seed.shuffle(pods)
    shuffled = decide(picture(build, tuple(pods), usage(node, by_pod)), "cpu_evict", max_evictions_per_round=100)
    assert evicted(shuffled) == gone


# ── with others, and after refusals ──


def after(
    seen: Snapshot, decisions: list[Decision], *, accepted: tuple[str, ...], refused: tuple[str, ...]
) -> Snapshot:
    """The next picture, a second later, with what the cluster answered."""
    kept = {"cpuEvict": decisions[-1].remember or EvictionMemory()}
    gone = {**seen.evicted, **dict.fromkeys(accepted, seen.time)}
    refusals = {**seen.refused_evictions, **dict.fromkeys(refused, "budget used up")}
    return dataclasses.replace(seen, time=seen.time + 1, remembered=kept, evicted=gone, refused_evictions=refusals)


def four(build: Any) -> Snapshot:
    """80 % of 8 CPUs used, so that 1600m have to go: two of these four pods."""
    pods = tuple(batch(name, 0, 5000 + at) for at, name in enumerate("abcd"))
    return picture(build, pods, usage(6400, dict.fromkeys("abcd", 900)))


def test_a_round_that_was_refused_in_part_goes_on_with_the_next_pod(build: Any) -> None:
    seen = four(build)
    first = decide(seen, "cpu_evict")
    assert evicted(first) == ["a", "b"]
    second = after(seen, first, accepted=("b",), refused=("a",))
    assert evicted(decide(second, "cpu_evict")) == ["c"]
    done = after(second, decide(second, "cpu_evict"), accepted=("c",), refused=())
    assert words(decide(done, "cpu_evict")) == {"evict": "CoolingDown"}


def test_it_ends_when_nobody_is_left_and_then_cools_down(build: Any) -> None:
    seen = four(build)
    for accepted, refused in (("b", "a"), ("", "c"), ("", "d")):
        seen = after(seen, decide(seen, "cpu_evict"), accepted=tuple(accepted), refused=tuple(refused))
    assert evicted(decide(seen, "cpu_evict")) == []
    idle = after(seen, decide(seen, "cpu_evict"), accepted=(), refused=())
    assert words(decide(idle, "cpu_evict")) == {"evict": "CoolingDown"}


def test_a_round_that_goes_on_keeps_its_bound(build: Any) -> None:
    seen = four(build)
    first = decide(seen, "cpu_evict", max_evictions_per_round=2)
    second = after(seen, first, accepted=("a",), refused=("b",))
    hungry = dataclasses.replace(second, usage=usage(8000, dict.fromkeys("abcd", 900)), windows={1: usage(8000, {})})
    assert evicted(decide(hungry, "cpu_evict", max_evictions_per_round=2)) == ["c"]


def test_a_pod_that_another_strategy_evicts_is_leaving_and_takes_part_of_the_bound(build: Any) -> None:
    seen, config = four(build), cpu_evict.Config(cpu_evict=True)
    decisions = list(cpu_evict.decide(seen, config, frozenset("d")))
    assert evicted(decisions) == ["a"]
    assert words(decisions)["pod/ns/d"] == "AlreadyLeaving"
    one = dataclasses.replace(config, max_evictions_per_round=1)
    assert evicted(list(cpu_evict.decide(seen, one, frozenset("d")))) == []


def test_who_would_go_is_told_while_nothing_has_to_be_released(build: Any) -> None:
    pods = (batch("b", 0, 5600), batch("a", 0), batch("c", 0, labels={}), batch("d", 0, 6000))
    (rule, _) = decide(picture(build, pods, usage(1000, dict.fromkeys("abcd", 100))), "cpu_evict")
    assert (rule.reason, rule.evidence["queue"]) == ("UseUnderThreshold", "ns/a ns/b")
    assert rule.evidence["stay"] == "EvictionNotEnabled: ns/c; PriorityTooHigh: ns/d"


def test_a_slower_agent_needs_fewer_samples(build: Any) -> None:
    seen = picture(build, (batch("a", 5000),), usage(4000, {}, be=HOT["be_mean"]))
    seen = dataclasses.replace(
        seen,
        slo=build.suppression(**SATISFACTION, cpu_evict_time_window_seconds=60),
        windows={60: usage(4000, {}, be=HOT["be_mean"], samples=4)},
    )
    assert words(decide(seen, "be_cpu_evict"))["evict/BECPUEvict"] == "TooFewSamples"
    assert evicted(decide(dataclasses.replace(seen, interval_seconds=5.0), "be_cpu_evict")) == ["a"]


@pytest.mark.parametrize("known", ["cpu", "memory"])
def test_each_strategy_needs_the_capacity_of_its_own_resource_only(build: Any, known: str) -> None:
    amounts = {"cpu": Quantity.of(8), "memory": Quantity.of(2**30)}
    bare = Node(name="n", capacity={known: amounts[known]}, allocatable=amounts)
    seen = picture(build, (batch("a", 0),), usage(8000, {"a": 8000}), node=bare)
    assert evicted(decide(seen, "cpu_evict")) == (["a"] if known == "cpu" else [])


def test_the_eviction_priority_comes_before_the_priority(build: Any) -> None:
    """An annotation that is unset or no number counts as 0, between the negative and the positive ones."""

    def asked(name: str, text: str | None, priority: int) -> Pod:
        return batch(name, 500, priority, annotations={} if text is None else {keys.EVICTION_PRIORITY: text})

    pods = (
        asked("hundred", "100", 120),
        asked("negative", "-1", 5000),
        asked("unset", None, 100),
        asked("invalid", "no number", 120),
    )
    seen = picture(build, pods, usage(8000, {pod.uid: 500 for pod in pods}))
    decisions = decide(seen, "cpu_evict", max_evictions_per_round=9)
    ranks = {d.subject.rpartition("/")[2]: int(d.evidence["rank"]) for d in decisions if "rank" in d.evidence}
    assert sorted(ranks, key=lambda name: ranks[name]) == ["negative", "unset", "invalid", "hundred"]
