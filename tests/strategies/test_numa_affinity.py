"""Who is brought together: invented worlds of pods that talk, and what must hold in each of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.changes.cgroup import CgroupChange
from koordlite.model import cpuset, keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.affinity import AffinityState, Connections, Talk
from koordlite.model.picture.groups import Cgroup, Original
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.pod.values import ContainerInfo, Pod, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import numa_affinity
from koordlite.strategies.numa_affinity import Config
from koordlite.strategies.shared import affinity

from . import conftest as world

GIB = world.GIB
NODES = {0: CPUSet.parse("0-1,4-5"), 1: CPUSet.parse("2-3,6-7")}
CONFIG = Config(mode="enforce", rounds=1)


def pod(uid: str, qos: str = "LS", *, milli: int = 200, memory: int = GIB, **more: Any) -> Pod:
    limits = {"memory": Quantity.of(memory)} if memory else {}
    container = ContainerInfo("main", f"id-{uid}", True, {}, limits)
    return world.pod(uid, qos, requests={"cpu": Quantity.parse(f"{milli}m")}, containers=(container,), **more)


def talking(pods: list[Pod], talks: dict[tuple[str, str], int], *, rounds: int = 1, **given: Any) -> Snapshot:
    """A picture in which these pods are the only ones, with a burstable group each, and so many connections."""
    groups = {each.uid: f"kubepods/burstable/pod{each.uid}" for each in pods}
    cgroups = {name: world.cgroup() for group in groups.values() for name in (group, f"{group}/main", f"{group}/pause")}
    cgroups = {name: msgspec.structs.replace(held, values={"cpuset.mems": 3}) for name, held in cgroups.items()}
    totals = {each.uid: sum(n for pair, n in talks.items() if each.uid in pair) for each in pods}
    counted = Connections(
        rounds=rounds, totals=totals, talks=tuple(Talk(*sorted(pair), n) for pair, n in sorted(talks.items()))
    )
    whole: dict[str, Any] = {
        "pods": tuple(pods),
        "places": {uid: world.place(group) for uid, group in groups.items()},
        "cgroups": cgroups,
        "numa_memory": {"": {0: GIB, 1: GIB}},
        "affinity": AffinityState(enforced=True, connections=counted),
    }
    return world.snapshot(**{**whole, **given})


def decide(seen: Snapshot, config: Config = CONFIG) -> list[Decision]:
    return list(numa_affinity.decide(seen, config))


def after(seen: Snapshot, decisions: list[Decision]) -> Snapshot:
    """The picture once the changes are made and what is to be remembered is."""
    (remember,) = [d.remember for d in decisions if d.remember is not None]
    cgroups, found = dict(seen.cgroups), dict(seen.found)
    for change in (c for d in decisions for c in d.changes):
        assert isinstance(change, CgroupChange)
        held = cgroups[change.group]
        if change.gives_back:
            found.pop(change.place)
        else:
            before = held.cpuset if change.field == "cpuset.cpus" else held.values["cpuset.mems"]
            assert before is not None
            found.setdefault(change.place, Original(before, "numaAffinity"))
        cgroups[change.group] = _with(held, change)
    return dataclasses.replace(
        seen, cgroups=cgroups, found=found, ours=frozenset(found), remembered={"numaAffinity": remember}
    )


def _with(held: Cgroup, change: CgroupChange) -> Cgroup:
    if isinstance(change.value, CPUSet):
        return msgspec.structs.replace(held, cpuset=change.value, effective=change.value)
    return msgspec.structs.replace(held, values={change.field: change.value})


def settled(seen: Snapshot, config: Config = CONFIG) -> Snapshot:
    return after(seen, decide(seen, config)) if config else seen


def said(decisions: list[Decision], uid: str) -> Decision:
    (found,) = [d for d in decisions if d.subject == f"pod/ns/{uid}" and d.verdict != "release"]
    return found


def place_of(seen: Snapshot, uid: str) -> CPUSet | None:
    return seen.cgroups[f"kubepods/burstable/pod{uid}/main"].cpuset


def test_the_second_tick_writes_what_the_first_decided() -> None:
    """In between `cpusetPools` learns that the sets are not its own any more."""
    seen = talking([pod("a"), pod("b")], {("a", "b"): 10})
    first = decide(seen)
    assert (said(first, "a").verdict, said(first, "a").changes) == ("set", ())
    second = decide(after(seen, first))
    assert {c.place.part("field") for c in said(second, "a").changes} == {"cpuset.cpus", "cpuset.mems"}


@pytest.mark.parametrize(
    ("more", "config", "reason"),
    [
        pytest.param({}, {"min_connections": 11}, None, id="fewer connections than count"),
        pytest.param({}, {"rounds": 2}, "AffinityNotSteady", id="in one count of two"),
        pytest.param({"milli": 5000}, {}, "WiderThanNUMANode", id="5 CPUs on a node of 4"),
        pytest.param({"milli": 3300}, {}, "NoRoomOnNUMANode", id="3.3 + 0.2 > 80 % of 4"),
        pytest.param({"cpus": "0,2"}, {}, "PartnerNotOnOneNUMANode", id="a partner with CPUs of two nodes"),
    ],
)
def test_why_not(more: dict[str, Any], config: dict[str, Any], reason: str | None) -> None:
    seen = talking([pod("a"), pod("b", **more)], {("a", "b"): 10})
    decisions = decide(seen, dataclasses.replace(CONFIG, **config))
    assert [d.reason for d in decisions if d.subject == "pod/ns/a"] == ([reason] if reason else [])


@pytest.mark.parametrize("node", [0, 1])
def test_a_pod_goes_to_where_its_partner_is_bound(node: int) -> None:
    bound = pod("b", status=ResourceStatus(numa_nodes=(node,)))
    seen = settled(talking([pod("a"), bound], {("a", "b"): 10}))
    changes = said(decide(seen), "a").changes
    assert {c.value for c in changes if isinstance(c.value, CPUSet)} == {NODES[node]}


@pytest.mark.parametrize(
    ("memory", "used", "why"),
    [
        pytest.param(GIB, {0: GIB, 1: GIB}, None, id="13.4 GiB are free beside the reserve"),
        pytest.param(0, {0: GIB, 1: GIB}, "a container has no memory limit", id="no limit"),
        pytest.param(8 * GIB, {0: GIB, 1: GIB}, "less than its limit is free there", id="2 × 8 GiB into 13.4"),
        pytest.param(GIB, {}, "the use of memory by NUMA node is not known", id="unknown"),
    ],
)
def test_memory_follows_where_all_that_it_may_become_is_free(
    memory: int, used: dict[int, int], why: str | None
) -> None:
    pods = [pod("a", memory=memory), pod("b", memory=memory)]
    decisions = decide(talking(pods, {("a", "b"): 10}, numa_memory={"": used} if used else {}))
    stays = [d.evidence.get("memory_stays") for d in decisions if d.subject.startswith("pod/")]
    assert stays in ([None, why], [why, why])


def test_scarce_memory_is_given_back_and_the_cpus_stay() -> None:
    seen = settled(settled(talking([pod("a"), pod("b")], {("a", "b"): 10})))
    scarce = dataclasses.replace(seen, numa_memory={"": {0: 16 * GIB, 1: 16 * GIB}})
    decisions = decide(scarce)
    back = [d for d in decisions if d.reason == "AffinityMemoryReleased"]
    assert [d.subject for d in back] == ["pod/ns/a", "pod/ns/b"]
    assert all(c.gives_back and c.value == 3 for d in back for c in d.changes if isinstance(c, CgroupChange))
    assert place_of(after(scarce, decisions), "a") in NODES.values()


def test_while_kubelet_has_not_answered_everything_stays() -> None:
    seen = settled(settled(talking([pod("a"), pod("b")], {("a", "b"): 10})))
    unknown = dataclasses.replace(seen, kubelet=Kubelet(), remembered={})
    (said_of_node,) = decide(unknown)
    assert (said_of_node.reason, said_of_node.changes, said_of_node.remember) == ("AffinityPolicyUnknown", (), None)
    assert affinity.placed(unknown) == affinity.placed(seen) != {}
    static = decide(dataclasses.replace(seen, kubelet=Kubelet(cpu_manager_policy="static")))
    assert {d.subject for d in static if d.verdict == "release" and d.changes} == {"pod/ns/a", "pod/ns/b"}


def test_a_group_without_a_cpu_set_is_no_place() -> None:
    seen = talking([pod("a"), pod("b")], {("a", "b"): 10})
    bare = dataclasses.replace(seen, cgroups={**seen.cgroups, "kubepods/burstable/podb/main": Cgroup()})
    assert said(decide(bare), "a").reason == "AffinityApart"


def test_a_container_that_may_use_one_node_is_not_moved_to_the_other() -> None:
    seen = talking([pod("a"), pod("b")], {("a", "b"): 10})
    group = "kubepods/burstable/poda/main"
    seen = dataclasses.replace(seen, cgroups={**seen.cgroups, group: world.cgroup("2-3", effective="2-3")})
    seen = settled(settled(seen))
    assert (place_of(seen, "a"), place_of(seen, "b")) == (CPUSet.parse("2-3"), NODES[1])


UIDS = "abcdef"
KINDS = st.sampled_from(
    [
        {},
        {},
        {},
        {"qos": "LSR", "cpus": "0,4"},
        {"qos": "LSE", "cpus": "2"},
        {"qos": "LSR"},
        {"kube": "Guaranteed", "qos": ""},
    ]
)
PODS = st.lists(st.tuples(KINDS, st.integers(0, 4500), st.sampled_from([0, GIB, 9 * GIB]), st.booleans()), max_size=6)
TALKS = st.dictionaries(
    st.tuples(st.sampled_from(UIDS), st.sampled_from(UIDS)).filter(lambda pair: pair[0] < pair[1]),
    st.integers(1, 40),
    max_size=8,
)


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    pods = []
    for uid, (kind, milli, memory, declares) in zip(UIDS, draw(PODS), strict=False):
        notes = {keys.NUMA_GROUP: "together"} if declares else {}
        pods.append(pod(uid, milli=milli, memory=memory, annotations=notes, **{"qos": "LS", **kind}))
    known = {each.uid for each in pods}
    talks = {pair: n for pair, n in draw(TALKS).items() if known >= set(pair)}
    return talking(pods, talks, numa_memory={"": {0: draw(st.integers(0, 16)) * GIB, 1: GIB}})


@given(worlds())
def test_in_every_world(seen: Snapshot) -> None:
    movable = {each.uid for each in seen.pods if not affinity.fixed(seen, each)}
    owned = cpuset.union(each.resource_status.cpuset for each in seen.pods)
    for _ in range(4):
        decisions = decide(seen)
        seen = after(seen, decisions)
    placed = affinity.placed(seen)
    assert placed.keys() <= movable
    for uid, node in placed.items():
        assert place_of(seen, uid) == NODES[node] - owned
        assert seen.cgroups[f"kubepods/burstable/pod{uid}/main"].values["cpuset.mems"] in (3, 1 << node)
    for each in seen.pods:
        if each.uid not in placed:
            assert place_of(seen, each.uid) == CPUSet.parse("0-7")
    for node, cpus in NODES.items():
        demand = sum(each.request_milli() for each in seen.pods if placed.get(each.uid) == node)
        assert demand <= 800 * len(cpus - owned)
        limits = sum(
            each.containers[0].limits["memory"].value
            for each in seen.pods
            if seen.cgroups[f"kubepods/burstable/pod{each.uid}/main"].values["cpuset.mems"] == 1 << node
        )
        assert limits <= 16 * GIB - seen.numa_memory[""][node]
    # Nothing moves any more while nothing changes, and one that lost its partners goes.
    again = decide(seen)
    assert [c for d in again for c in d.changes] == []
    assert again[0].remember == seen.remembered["numaAffinity"]
    silent = dataclasses.replace(
        seen,
        pods=tuple(msgspec.structs.replace(each, annotations={}) for each in seen.pods),
        affinity=AffinityState(
            enforced=True, connections=Connections(rounds=2, totals={each.uid: 1 for each in seen.pods})
        ),
    )
    assert affinity.placed(after(silent, decide(silent))) == {}
