"""When pods have to go for memory, who goes, and when nobody does."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.changes.eviction import KillContainer
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.node import Node
from koordlite.model.picture.groups import Cgroup, Layout, MemoryPlace, PodGroups
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.settings import Memory
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import NUMANode
from koordlite.report.sentence import sentence
from koordlite.strategies import memory_evict
from koordlite.strategies.shared.evict import EvictionMemory

GIB = 2**30
THRESHOLDS = {
    "memory_evict_threshold_percent": 80,
    "memory_evict_lower_percent": 70,
    "evict_enabled_priority_threshold": 5999,
    "memory_allocatable_evict_threshold_percent": 90,
    "memory_allocatable_evict_lower_percent": 50,
    "allocatable_evict_priority_threshold": 7999,
}


def batch(name: str, priority: int | None = 5500, request: int = 0, **more: Any) -> Pod:
    """A BE pod that may be evicted."""
    requests = {keys.BATCH_MEMORY: Quantity.of(request)}
    fixed: dict[str, Any] = {
        "namespace": "ns",
        "name": name,
        "uid": name,
        "raw_qos": QoSClass.BE,
        "labels": {keys.EVICTION_ENABLED: "true"},
        "priority": priority,
        "containers": (ContainerInfo("main", "", True, requests, {}),),
    }
    return Pod(**{**fixed, **more})


def picture(build: Any, pods: tuple[Pod, ...], node: int, used: dict[str, int], **more: Any) -> Snapshot:
    """A node of 100 GiB that uses `node` of them and promises 10 GiB as batch-memory."""
    amounts = {"cpu": Quantity.of(8), "memory": Quantity.of(100 * GIB)}
    usage = Usage(Use(0, node * GIB), {uid: Use(0, gib * GIB) for uid, gib in used.items()}, {})
    promised = {**amounts, keys.BATCH_MEMORY: Quantity.of(10 * GIB)}
    fixed: dict[str, Any] = {
        "pods": pods,
        "usage": usage,
        "slo": build.suppression(**{**THRESHOLDS, **more.pop("threshold", {})}),
        "node": Node(name="n", capacity=amounts, allocatable=promised),
    }
    seen: Snapshot = build.snapshot(**{**fixed, **more})
    return seen


def decide(seen: Snapshot, *rules: str, **config: Any) -> list[Decision]:
    switched_on: dict[str, Any] = dict.fromkeys(rules, True)
    return list(memory_evict.decide(seen, memory_evict.Config(**switched_on, **config)))


def evicted(decisions: list[Decision]) -> list[str]:
    return sorted(str(change.place).split("/")[2] for d in decisions for change in d.changes)


def word(decisions: list[Decision], pod: str) -> str:
    return next(d.reason for d in decisions if d.subject == f"pod/ns/{pod}")


@pytest.mark.parametrize(
    ("node", "gone"),
    [
        pytest.param(79, [], id="79 % is less than 80 %"),
        pytest.param(80, ["low"], id="80 % reached: 10 GiB have to go, the lowest priority first"),
        pytest.param(85, ["big", "low"], id="15 GiB: of one priority the largest user first"),
        pytest.param(95, ["big", "low", "small"], id="25 GiB: everybody who may go"),
    ],
)
def test_best_effort_pods_go_until_the_lower_end(build: Any, node: int, gone: list[str]) -> None:
    pods = (batch("small"), batch("big"), batch("low", 5000), build.pod("web", "LS"))
    seen = picture(build, pods, node, {"small": 5, "big": 8, "low": 11, "web": 40})
    decisions = decide(seen, "be_memory_evict")
    assert evicted(decisions) == gone
    if gone:
        assert word(decisions, "web") == "NotBestEffort"


def test_a_victim_counts_with_its_bytes_and_no_more(build: Any) -> None:
    pods = (batch("a", 5000), batch("b", 5100), batch("c", 5200))
    assert evicted(decide(picture(build, pods, 80, {"a": 1, "b": 1, "c": 9}), "memory_evict")) == ["a", "b", "c"]


def test_the_default_lower_end_is_two_below_the_threshold(build: Any) -> None:
    seen = picture(build, (batch("a"),), 80, {"a": 1}, threshold={"memory_evict_lower_percent": None})
    assert decide(seen, "be_memory_evict")[0].evidence["release_memory_bytes"] == 2 * GIB


def test_the_order_is_eviction_priority_priority_sub_priority_use(build: Any) -> None:
    go = {keys.EVICTION_ENABLED: "true"}
    pods = (
        batch("large", 100),
        batch("later", 100, annotations={keys.EVICTION_PRIORITY: "1"}),
        batch("sooner", 5000, annotations={keys.EVICTION_PRIORITY: "-1"}),
        batch("sub", 100, labels={**go, keys.PRIORITY: "99"}),
        batch("small", 100),
        batch("high", 120, annotations={keys.EVICTION_PRIORITY: "no number"}),
    )
    used = dict.fromkeys((pod.uid for pod in pods), 1) | {"large": 2}
    decisions = decide(picture(build, pods, 99, used), "memory_evict", max_evictions_per_round=9)
    ranks = {d.subject.rpartition("/")[2]: int(d.evidence["rank"]) for d in decisions if "rank" in d.evidence}
    assert sorted(ranks, key=lambda name: ranks[name]) == ["sooner", "sub", "large", "small", "high", "later"]


def test_the_same_use_is_not_counted_twice_for_two_rules(build: Any) -> None:
    pods = (batch("a", 5000), batch("b", 5100), batch("c", 5200))
    seen = picture(build, pods, 80, {"a": 6, "b": 6, "c": 6})
    both = decide(seen, "be_memory_evict", "memory_evict")
    assert evicted(both) == ["a", "b"]
    assert both[-1].evidence == {"rules": 2, "chosen": 2}


def test_one_victim_serves_use_and_requests_alike(build: Any) -> None:
    pods = (batch("a", 5000, 8 * GIB), batch("b", 5100, 4 * GIB))
    decisions = decide(picture(build, pods, 80, {"a": 10, "b": 10}), "be_memory_evict", "memory_allocatable_evict")
    assert [d.verdict for d in decisions[:2]] == ["evict", "evict"]
    assert evicted(decisions) == ["a"]


def test_a_memory_eviction_needs_no_warm_up_and_cools_down_for_four_seconds(build: Any) -> None:
    seen = picture(build, (batch("a"), batch("b")), 99, {"a": 30, "b": 1})
    asked = decide(seen, "be_memory_evict")
    assert evicted(asked) == ["a"]
    kept = {"memoryEvict": asked[-1].remember or EvictionMemory()}
    for later, gone in ((3.9, []), (4.0, [])):
        after = dataclasses.replace(seen, time=seen.time + later, remembered=kept, evicted={"a": seen.time})
        decisions = decide(after, "be_memory_evict")
        assert evicted(decisions) == gone
        assert ("CoolingDown" in {d.reason for d in decisions}) is (later < 4)


def test_a_pod_that_will_not_go_counts_for_two_minutes_only(build: Any) -> None:
    seen = picture(build, (batch("stuck", deleting=True), batch("b")), 80, {"stuck": 20, "b": 10})
    first = decide(seen, "be_memory_evict")
    assert evicted(first) == []
    kept = {"memoryEvict": first[-1].remember or EvictionMemory()}
    later = dataclasses.replace(seen, time=seen.time + 120, remembered=kept)
    assert evicted(decide(later, "be_memory_evict")) == ["b"]


@given(
    priorities=st.lists(st.none() | st.integers(-5, 5), min_size=2, max_size=7),
    shuffle=st.randoms(use_true_random=False),
)
def test_pods_without_a_priority_have_one_place_whatever_order_they_come_in(
    build: Any, priorities: list[int | None], shuffle: Any
) -> None:
    pods = [batch(f"p{n}", priority) for n, priority in enumerate(priorities)]
    used = {pod.uid: 1 + n % 2 for n, pod in enumerate(pods)}
    first = decide(
        picture(build, tuple(pods), 74, used, threshold={"memory_evict_threshold_percent": 72}), "be_memory_evict"
    )
    shuffle.shuffle(pods)
    again = decide(
        picture(build, tuple(pods), 74, used, threshold={"memory_evict_threshold_percent": 72}), "be_memory_evict"
    )
    assert {d.subject: d for d in first} == {d.subject: d for d in again}


# ── the last resort ──


def _rounds(build: Any, seconds: int, *, refused: bool, **more: Any) -> list[list[Decision]]:
    """A round a second, in which the cluster refuses each eviction, or never answers."""
    pods = (batch("a", 5000), batch("b", 5100), batch("c", 5200))
    groups = {name: f"kubepods/besteffort/pod{name}" for name in "abc"}
    places = {name: PodGroups(group, {"main": f"{group}/m"}) for name, group in groups.items()}
    cgroups = {place.containers["main"]: Cgroup() for place in places.values()}
    more = {"version": 2, "node": 80, "last": 10, **more}
    layout = Layout(more["version"], "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort")
    remembered: dict[str, Memory] = {}
    found = []
    for second in range(seconds):
        fixed = {"places": places, "cgroups": cgroups, "layout": layout}
        seen = picture(build, pods, more["node"], dict.fromkeys("abc", 6), **fixed)
        why = dict.fromkeys("abc", "the budget") if refused and second else {}
        seen = dataclasses.replace(seen, time=float(second), remembered=remembered, refused_evictions=why)
        config = {"mode": "enforce", "be_memory_last_resort_seconds": more["last"], **more.get("config", {})}
        decisions = decide(seen, "be_memory_evict", **config)
        remembered = {"memoryEvict": next(d.remember for d in reversed(decisions) if d.remember is not None)}
        found.append(decisions)
    return found


def _killed(decisions: list[Decision]) -> list[str]:
    return [c.uid for d in decisions for c in d.changes if isinstance(c, KillContainer)]


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "not answered"])
def test_containers_die_when_evictions_have_failed_for_long_enough(build: Any, refused: bool) -> None:
    rounds = _rounds(build, 13, refused=refused)
    deaths = {second: _killed(decisions) for second, decisions in enumerate(rounds) if _killed(decisions)}
    # The first failure is known a second after it was asked for; 10 GiB have to go, the candidates hold 6 each.
    assert deaths == {11: ["a", "b"]}
    decision = next(d for d in rounds[11] if d.reason == "LastResort")
    assert decision.evidence["waited_seconds"] == 10
    assert decision.evidence["why"] == ("the budget" if refused else "no answer")
    assert sum(d.subject == "pod/ns/a" for d in rounds[11]) == 1


def test_no_more_die_than_a_round_may_evict_and_nobody_twice_in_a_minute(build: Any) -> None:
    rounds = _rounds(build, 30, refused=True, config={"max_evictions_per_round": 1})
    deaths = {second: _killed(decisions) for second, decisions in enumerate(rounds) if _killed(decisions)}
    assert deaths == {11: ["a"], 15: ["b"], 19: ["c"]}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"last": 0}, id="not switched on"),
        pytest.param({"node": 60}, id="memory is below the threshold"),
        pytest.param({"config": {"mode": "observe"}}, id="an agent that observes asks nobody"),
        pytest.param({"version": 1}, id="cgroup v1 cannot"),
    ],
)
def test_nobody_dies(build: Any, more: dict[str, Any]) -> None:
    rounds = _rounds(build, 20, refused=True, **more)
    assert [_killed(decisions) for decisions in rounds] == [[]] * 20
    assert any(d.reason == "LastResortImpossible" for d in rounds[-1]) is (more.get("version") == 1)


def test_a_pod_that_leaves_starts_the_wait_again(build: Any) -> None:
    remembered = {"memoryEvict": EvictionMemory(stuck={"BEMemoryEvict": 0.0})}
    pods = (batch("a"), batch("b", deleting=True))
    seen = picture(build, pods, 80, {"a": 6, "b": 1}, remembered=remembered, refused_evictions={"a": "x"}, time=100.0)
    seen = dataclasses.replace(seen, layout=msgspec.structs.replace(seen.layout, version=2))
    found = decide(seen, "be_memory_evict", mode="enforce", be_memory_last_resort_seconds=10)
    assert _killed(found) == []
    assert not any(d.remember.stuck for d in found if isinstance(d.remember, EvictionMemory))


@pytest.mark.parametrize(
    ("overuse_first", "gone"),
    [
        pytest.param(False, ["low"], id="by priority: who keeps to its request goes"),
        pytest.param(True, ["over"], id="who uses more than it requests goes first"),
    ],
)
def test_who_uses_more_than_it_requests_may_go_first(build: Any, overuse_first: bool, gone: list[str]) -> None:
    pods = (batch("low", 5000, request=12 * GIB), batch("over", 5900, request=11 * GIB))
    seen = picture(build, pods, 81, {"low": 12, "over": 12})
    decisions = decide(seen, "be_memory_evict", overuse_first=overuse_first)
    assert evicted(decisions) == gone
    if overuse_first:
        chosen = next(d for d in decisions if d.subject == "pod/ns/over")
        assert chosen.evidence["over_request_memory_bytes"] == GIB
        assert "1.0 GiB of its memory are beyond its request" in sentence(chosen)


def _numa_picture(
    build: Any, *, use: tuple[int, int], there: dict[str, tuple[str, dict[int, int]]], **more: Any
) -> Any:
    """Two NUMA nodes of 100 GiB with so many in use; of each pod its `cpuset.mems` and GiB by NUMA node."""
    pods = (batch("big", 5000, request=40 * GIB), batch("over", 5900, request=2 * GIB), build.pod("web", "LS"))
    nodes = tuple(NUMANode(numa, CPUSet.parse(cpus), 100 * GIB) for numa, cpus in ((0, "0-3"), (1, "4-7")))
    threshold = {"numa_memory_evict_threshold_percent": 90, **more.pop("threshold", {})}
    seen = picture(build, pods, 50, {uid: sum(gib.values()) for uid, (_, gib) in there.items()}, threshold=threshold)
    return dataclasses.replace(
        seen,
        topology=msgspec.structs.replace(seen.topology, nodes=nodes),
        numa_memory={"": {numa: gib * GIB for numa, gib in enumerate(use)}},
        places={uid: PodGroups(f"kubepods/{uid}", {"main": f"kubepods/{uid}/main"}) for uid in there},
        memory_places={
            f"kubepods/{uid}/main": MemoryPlace(CPUSet.parse(mems), {numa: each * GIB for numa, each in gib.items()})
            for uid, (mems, gib) in there.items()
        },
        **more,
    )


BOUND = {"big": ("0-1", {0: 20, 1: 10}), "over": ("0-1", {0: 1, 1: 8}), "web": ("1", {1: 50})}


def of_numa(seen: Snapshot) -> tuple[list[str], str]:
    decisions = decide(seen, "numa_memory_evict")
    return evicted(decisions), next(d.reason for d in decisions if d.subject == "evict/NUMAMemoryEvict-1")


@pytest.mark.parametrize(
    ("use", "mems", "gone", "reason"),
    [
        pytest.param((50, 89), "1", [], "UseUnderThreshold", id="under the threshold"),
        pytest.param(
            (50, 94), "1", ["over"], "UseOverThreshold", id="6 GiB: who uses more than it requests goes first"
        ),
        pytest.param((50, 99), "1", ["big", "over"], "UseOverThreshold", id="11 GiB: and then the other"),
        pytest.param((50, 94), "0-1", [], "NobodyBound", id="the service may take memory everywhere"),
        pytest.param((50, 94), "0", [], "NobodyBound", id="the service is bound to the other NUMA node"),
        pytest.param((94, 50), "0", ["big"], "UseUnderThreshold", id="who has nothing there that helps is passed over"),
    ],
)
def test_best_effort_goes_for_a_full_numa_node(
    build: Any, use: tuple[int, int], mems: str, gone: list[str], reason: str
) -> None:
    there = {**BOUND, "web": (mems, {1: 50}), "over": ("0-1", {1: 9})}
    assert of_numa(_numa_picture(build, use=use, there=there)) == (gone, reason)


def test_a_decision_about_a_numa_node_says_whose_memory_is_short_and_counts_there_only(build: Any) -> None:
    decisions = decide(_numa_picture(build, use=(50, 94), there=BOUND), "numa_memory_evict")
    rule = next(d for d in decisions if d.subject == "evict/NUMAMemoryEvict-1")
    assert (rule.evidence["bound"], rule.evidence["release_memory_bytes"]) == ("ns/web", 6 * GIB)
    assert sentence(rule) == (
        "NUMA node 1: 94 % of the node is used; the threshold is 90 %, the target 88 %: 6.0 GiB to release"
    )
    chosen = next(d for d in decisions if d.subject == "pod/ns/over")
    assert chosen.evidence["releases_memory_bytes"] == 8 * GIB
    assert chosen.evidence["over_request_memory_bytes"] == 7 * GIB
    (change,) = chosen.changes
    assert "NUMA node 1 uses 94 % of its memory, 90 % are allowed" in str(change)


def test_two_numa_nodes_may_bind_a_pod_when_both_are_full(build: Any) -> None:
    seen = _numa_picture(build, use=(94, 94), there={**BOUND, "web": ("0-1", {1: 50})})
    third = NUMANode(2, CPUSet.parse("8-11"), 100 * GIB)
    seen = dataclasses.replace(
        seen,
        topology=msgspec.structs.replace(seen.topology, nodes=(*seen.topology.nodes, third)),
        numa_memory={"": {**seen.numa_memory[""], 2: 10 * GIB}},
    )
    assert evicted(decide(seen, "numa_memory_evict")) == ["big", "over"]
    half = dataclasses.replace(seen, numa_memory={"": {0: 50 * GIB, 1: 94 * GIB, 2: 10 * GIB}})
    assert evicted(decide(half, "numa_memory_evict")) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"numa_memory": {"": {0: GIB}}}, "NUMAMemoryUnknown", id="its use is unknown"),
        pytest.param(
            {"threshold": {"numa_memory_evict_threshold_percent": None}}, "BadEvictionConfig", id="without a threshold"
        ),
    ],
)
def test_a_numa_node_that_cannot_be_judged_costs_nobody_the_place(build: Any, change: Any, reason: str) -> None:
    more = {"threshold": change["threshold"]} if "threshold" in change else {}
    seen = _numa_picture(build, use=(50, 99), there=BOUND, **more)
    if not more:
        seen = dataclasses.replace(seen, **change)
    assert of_numa(seen) == ([], reason)


GIBS = st.integers(min_value=0, max_value=30)


@given(big=st.tuples(GIBS, GIBS), over=st.tuples(GIBS, GIBS), use=st.tuples(*(st.integers(0, 100),) * 2))
def test_no_pod_goes_for_a_numa_node_on_which_it_has_nothing(
    build: Any, big: tuple[int, int], over: tuple[int, int], use: tuple[int, int]
) -> None:
    there = {"big": ("0-1", dict(enumerate(big))), "over": ("0-1", dict(enumerate(over))), "web": ("1", {1: 50})}
    gone, _ = of_numa(_numa_picture(build, use=use, there=there))
    assert all(there[name][1][1] for name in gone)
    assert not gone or use[1] >= 90
