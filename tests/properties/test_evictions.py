"""Whoever the pods are: nobody goes on old news, and no pod goes that was not needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite.formulas.eviction import evict_walk
from koordlite.formulas.eviction.evict_walk import Task
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.node import Node, ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod import eviction
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, Threshold
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import Topology
from koordlite.resctrl.values import Resctrl
from koordlite.strategies import cpu_evict, memory_evict
from koordlite.strategies.shared.evict import EvictionMemory

RULES: dict[Any, Any] = {
    cpu_evict: cpu_evict.Config(be_cpu_evict=True, cpu_allocatable_evict=True, cpu_evict=True),
    memory_evict: memory_evict.Config(be_memory_evict=True, memory_allocatable_evict=True, memory_evict=True),
}
LIMITS = {"usage": 2.0, "node": 60.0, "pods": 60.0, "config": 60.0}
THRESHOLD = Threshold(
    enable=True,
    cpu_evict_be_satisfaction_lower_percent=50,
    cpu_evict_be_satisfaction_upper_percent=60,
    cpu_evict_threshold_percent=20,
    memory_evict_threshold_percent=20,
    evict_enabled_priority_threshold=9999,
    cpu_allocatable_evict_threshold_percent=20,
    cpu_allocatable_evict_lower_percent=10,
    memory_allocatable_evict_threshold_percent=20,
    memory_allocatable_evict_lower_percent=10,
    allocatable_evict_priority_threshold=7999,
)

amounts = st.integers(0, 3000)


@st.composite
def pods(draw: st.DrawFn) -> tuple[Pod, ...]:
    """Pods of every kind, some of which may go."""
    made = []
    for number in range(draw(st.integers(1, 8))):
        wanted = {keys.BATCH_CPU: Quantity.of(draw(amounts)), keys.BATCH_MEMORY: Quantity.of(draw(amounts))}
        pod = Pod(
            namespace="ns",
            name=f"p{number}",
            uid=f"u{number}",
            raw_qos=draw(st.sampled_from([QoSClass.BE, QoSClass.LS, QoSClass.NONE])),
            labels={keys.EVICTION_ENABLED: "true"} if draw(st.booleans()) else {},
            priority=draw(st.sampled_from([None, 0, 5500, 7500, 9500])),
            phase=draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded"])),
            deleting=draw(st.integers(0, 5)) == 0,
            containers=(ContainerInfo("main", "", True, wanted, {}),),
        )
        made.append(pod)
    return tuple(made)


@st.composite
def pictures(draw: st.DrawFn) -> Snapshot:
    """A node under pressure of CPU, memory and requests, warm, seen a moment ago."""
    capacity = {"cpu": Quantity.of(8), "memory": Quantity.of(10_000)}
    promised = {**capacity, keys.BATCH_CPU: Quantity.of(1000), keys.BATCH_MEMORY: Quantity.of(1000)}
    present = draw(pods())
    use = {pod.uid: Use(draw(amounts), draw(amounts)) for pod in present if draw(st.integers(0, 5))}
    usage = Usage(
        Use(draw(st.integers(0, 8000)), draw(st.integers(0, 10_000))),
        use,
        {},
        best_effort_cpu=900,
        best_effort_request=draw(st.integers(1, 20_000)),
        best_effort_limit=900,
        samples=100,
    )
    return Snapshot(
        time=10_000.0,
        taken_at="",
        node=Node(name="n", capacity=capacity, allocatable=promised),
        slo=SLO(threshold=THRESHOLD),
        topology=Topology((), ()),
        reserved=ResolvedReservation(),
        system_qos=SystemQoS(),
        kubelet=Kubelet(reserved_cpus=CPUSet()),
        layout=Layout(1, "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort"),
        pods=present,
        places={},
        cgroups={},
        usage=usage,
        average=usage,
        resctrl=Resctrl(),
        published=Published({}, {}),
        windows={1: usage},
        remembered=dict.fromkeys(("cpuEvict", "memoryEvict"), EvictionMemory(started=0.0)),
        ages=dict.fromkeys(LIMITS, 0.0),
    )


def gone(strategy: Any, seen: Snapshot) -> list[str]:
    return [c.uid for d in strategy.decide(seen, RULES[strategy]) for c in d.changes]


@pytest.mark.parametrize("strategy", RULES, ids=["cpu", "memory"])
def test_the_pictures_are_such_that_somebody_often_goes(strategy: Any) -> None:
    found = []

    @settings(derandomize=True, deadline=None)
    @given(seen=pictures())
    def look(seen: Snapshot) -> None:
        found.append(bool(gone(strategy, seen)))

    look()
    assert sum(found) > len(found) / 10


@pytest.mark.parametrize("strategy", RULES, ids=["cpu", "memory"])
@given(seen=pictures(), name=st.sampled_from(sorted(LIMITS)), beyond=st.floats(0.01, 1e6))
def test_nobody_goes_on_old_news(strategy: Any, seen: Snapshot, name: str, beyond: float) -> None:
    old = dataclasses.replace(seen, ages={**seen.ages, name: LIMITS[name] + beyond})
    assert gone(strategy, old) == []


def above_its_request(seen: Snapshot, pod: Pod) -> bool:
    """Whether the pod uses more CPU or memory than it requests, batch and mid resources among them."""
    use = seen.usage.pods.get(pod.uid, Use(cpu=0, memory=0))
    return any(used > eviction.largest_request(pod, name) for name, used in (("cpu", use.cpu), ("memory", use.memory)))


@pytest.mark.parametrize("strategy", RULES, ids=["cpu", "memory"])
@given(seen=pictures())
def test_whoever_goes_may_go_goes_once_and_is_not_on_its_way_already(strategy: Any, seen: Snapshot) -> None:
    by_uid = {pod.uid: pod for pod in seen.pods}
    chosen = gone(strategy, seen)
    assert len(chosen) == len(set(chosen)) <= RULES[strategy].max_evictions_per_round
    for pod in map(by_uid.__getitem__, chosen):
        assert pod.active
        assert not pod.deleting
        allowed = pod.raw_qos is QoSClass.BE or pod.labels.get(keys.EVICTION_ENABLED) == "true"
        assert allowed or (pod.kube_qos is KubeQoS.BEST_EFFORT and above_its_request(seen, pod))


@pytest.mark.parametrize("strategy", RULES, ids=["cpu", "memory"])
@given(seen=pictures())
def test_once_they_are_leaving_nobody_else_goes_for_the_same(strategy: Any, seen: Snapshot) -> None:
    chosen = gone(strategy, seen)
    missing = next(d.evidence for d in strategy.decide(seen, RULES[strategy]) if d.reason == "EvictionRound")
    after = dataclasses.replace(seen, evicted=dict.fromkeys(chosen, seen.time))
    if len(chosen) < RULES[strategy].max_evictions_per_round:
        assert gone(strategy, after) == [], missing


# ── the walk itself ──

NAMES = ("cpu", "memory")
by_name = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 20))


@st.composite
def tasks(draw: st.DrawFn) -> list[Task]:
    """What up to three rules want of up to six pods, of one target or of two."""
    uids = [f"u{number}" for number in range(draw(st.integers(0, 6)))]
    return [
        Task(
            feature=f"rule{number}",
            target=draw(st.sampled_from(["used", "requested"])),
            to_release=draw(by_name),
            candidates=draw(st.permutations(uids)),
            contributions={uid: draw(by_name) for uid in uids},
        )
        for number in range(draw(st.integers(1, 3)))
    ]


def left(task: Task, due: Sequence[Task], going: Sequence[str]) -> dict[str, int]:
    """What a task still misses when these pods are gone, added up anew."""
    parts = [evict_walk.contribution(uid, due).get(task.target, {}) for uid in going]
    released = {name: sum(part.get(name, 0) for part in parts) for name in task.to_release}
    return evict_walk.remaining(task.to_release, released)


@given(tasks(), st.sets(st.sampled_from(["u0", "u1"])), st.sets(st.sampled_from(["u2", "u3"])))
def test_each_chosen_pod_was_needed_and_none_that_was_is_left(
    wanted: list[Task], leaving: set[str], refused: set[str]
) -> None:
    due = [task for task in wanted if any(amount > 0 for amount in task.to_release.values())]
    fates = evict_walk.walk(wanted, leaving=leaving, refused=refused).fates
    going = sorted(leaving)
    for task in due:
        for uid in task.candidates:
            if fates[task.feature, uid] == "chosen" and uid not in going:
                lacks, own = left(task, due, going), task.contributions.get(uid, {})
                assert any(own.get(name, 0) > 0 for name in lacks), "it releases something that is still missing"
                assert uid not in refused
                going.append(uid)
        lacks = left(task, due, going)
        idle = [uid for uid in task.candidates if uid not in going and uid not in refused]
        helpful = [uid for uid in idle if any(task.contributions.get(uid, {}).get(name, 0) > 0 for name in lacks)]
        assert not helpful, "nobody stays who would release what is missing"
