"""What best-effort pods get for their batch resources, and when a memory limit waits."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite import plan
from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas import batch_resource as formula
from koordlite.formulas.batch_resource import UNLIMITED, Resources
from koordlite.model import keys
from koordlite.model.change import Standing
from koordlite.model.cpuset import CPUSet
from koordlite.model.node import Node
from koordlite.model.picture.groups import Cgroup, MemoryCharge, Original, PodGroups
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.pod.values import Amounts, ContainerInfo, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.report.sentence import sentence
from koordlite.strategies import batch_resource, cpu_suppress

BE = "kubepods/besteffort"
POD = f"{BE}/podb"
MAIN = f"{POD}/main"
GIB = 2**30
KUBELET = Cgroup(quota_us=UNLIMITED, values={"cpu.shares": 2, "memory.limit": UNLIMITED})
"""What kubelet leaves in the group of a pod without native requests."""
WRITTEN = Cgroup(quota_us=100_000, values={"cpu.shares": 512, "memory.limit": GIB})
FOUND = {
    f"{group}/{field}": Original(value, batch_resource.NAME)
    for group in (POD, MAIN)
    for field, value in (("cpu.shares", 2), ("cpu.quota", UNLIMITED), ("memory.limit", UNLIMITED))
}


def amounts(cpu: int | None = None, memory: int | None = None, **native: int) -> dict[str, Quantity]:
    given = {keys.BATCH_CPU: cpu, keys.BATCH_MEMORY: memory, **native}
    return {name: Quantity.of(value) for name, value in given.items() if value is not None}


def container(name: str = "main", *, one_shot: bool = False, **limits: Any) -> ContainerInfo:
    """Requests half a CPU where it has a limit of one; memory as its limit."""
    given = amounts(**(limits or {"cpu": 1000, "memory": GIB}))
    asked = {**given, **({keys.BATCH_CPU: Quantity.of(500)} if keys.BATCH_CPU in given else {})}
    return ContainerInfo(name, name, True, asked, given, one_shot)


@pytest.fixture
def node(build: Any) -> Any:
    """A node with one BE pod, whose groups hold what kubelet wrote, and use nothing."""

    def make(*containers: ContainerInfo, present: Cgroup = KUBELET, pod: Any = None, **more: Any) -> Snapshot:
        found = containers or (container(),)
        groups = {each.name: f"{POD}/{each.name}" for each in found}
        whole = {
            "pods": (build.pod("b", "BE", "BestEffort", containers=found, **(pod or {})),),
            "places": {"b": PodGroups(POD, groups)},
            "cgroups": {BE: Cgroup(quota_us=UNLIMITED), **dict.fromkeys((POD, *groups.values()), present)},
            "memory_held": dict.fromkeys((POD, *groups.values()), MemoryCharge(0, 0)),
            "layout": build.layout(1),
            "slo": build.suppression(),
        }
        return build.snapshot(**{**whole, **more})

    return make


def decide(seen: Snapshot, **config: Any) -> list[Any]:
    return list(batch_resource.decide(seen, batch_resource.Config(**config)))


def test_pod_and_container_get_what_they_ask_for(build: Any, node: Any) -> None:
    wanted = {"cpu.shares": "512", "cpu.quota": "100000", "memory.limit": str(GIB)}
    assert build.changes(decide(node())) == {
        f"{g}/{field}": value for g in (POD, MAIN) for field, value in wanted.items()
    }


def test_what_stands_already_is_left_alone(node: Any) -> None:
    pod, rest = decide(node(present=WRITTEN))
    assert (pod.verdict, pod.changes, rest.reason, rest.changes) == ("hold", (), "BatchResourcesOn", ())


def test_v2_keeps_a_coarser_weight_and_is_left_alone_as_well(build: Any, node: Any) -> None:
    # 512 shares are weight 20, which reads as 500 shares.
    coarse = msgspec.structs.replace(WRITTEN, values={**WRITTEN.values, "cpu.shares": 500})
    assert build.changes(decide(node(present=coarse, layout=build.layout(2)))) == {}
    assert f"{POD}/cpu.shares" in build.changes(decide(node(present=coarse)))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"phase": "Succeeded"}, id="ended"),
        pytest.param({"uid": "x"}, id="no group yet"),
    ],
)
def test_pods_that_do_not_run_here_get_nothing(node: Any, build: Any, pod: Any) -> None:
    seen = node()
    seen = dataclasses.replace(seen, pods=(msgspec.structs.replace(seen.pods[0], **pod),))
    assert [d.reason for d in decide(seen)] == ["BatchResourcesOff"]


@pytest.mark.parametrize(("qos", "kube"), [("", "BestEffort"), ("LS", "BestEffort")])
def test_only_the_label_be_counts(build: Any, node: Any, qos: str, kube: str) -> None:
    seen = node()
    other = build.pod("b", qos, kube, containers=seen.pods[0].containers)
    assert [d.reason for d in decide(dataclasses.replace(seen, pods=(other,)))] == ["BatchResourcesOff"]


def test_mid_resources_are_not_enforced(build: Any, node: Any) -> None:
    mid = {keys.MID_CPU: Quantity.of(1000)}
    assert [d.reason for d in decide(node(ContainerInfo("main", "main", True, mid, mid)))] == ["BatchResourcesOff"]


# ── who counts in the pod ──


@pytest.mark.parametrize(
    ("others", "pod", "wanted"),
    [
        pytest.param((), {}, {"cpu.shares": 512, "cpu.quota": 100_000, "memory.limit": GIB}, id="alone"),
        pytest.param(
            (container("side"),), {}, {"cpu.shares": 1024, "cpu.quota": 200_000, "memory.limit": 2 * GIB}, id="two"
        ),
        pytest.param(
            (ContainerInfo("side", "side", True, {}, {}),),
            {},
            {"cpu.shares": 512},
            id="one without limits: none for the pod",
        ),
        pytest.param(
            (container("side", cpu=1000),), {}, {"cpu.shares": 1024, "cpu.quota": 200_000}, id="one without memory"
        ),
        pytest.param(
            (container("init", one_shot=True, cpu=4000, memory=GIB),),
            {},
            {"cpu.shares": 512, "cpu.quota": 400_000, "memory.limit": GIB},
            id="a larger init container",
        ),
        pytest.param(
            (),
            {"overhead": amounts(250, GIB)},
            {"cpu.shares": 768, "cpu.quota": 125_000, "memory.limit": 2 * GIB},
            id="overhead",
        ),
    ],
)
def test_a_pod_is_what_kubelet_would_make_of_it(build: Any, node: Any, others: Any, pod: Any, wanted: Any) -> None:
    changes = build.changes(decide(node(*others, container(), pod=pod)))
    assert {k: v for k, v in changes.items() if k.startswith((f"{POD}/c", f"{POD}/memory"))} == {
        f"{POD}/{field}": str(value) for field, value in wanted.items()
    }


def test_a_native_container_counts_and_keeps_what_kubelet_gave_it(build: Any, node: Any) -> None:
    native = {"cpu": Quantity.of(1), "memory": Quantity.of(GIB)}
    changes = build.changes(decide(node(container(), ContainerInfo("side", "side", True, native, native))))
    assert (changes[f"{POD}/cpu.shares"], changes[f"{POD}/memory.limit"]) == ("1536", str(2 * GIB))
    assert not any(place.startswith(f"{POD}/side") for place in changes)


def test_the_annotation_lowers_what_the_spec_asks_for_and_raises_nothing(build: Any, node: Any) -> None:
    noted = {"main": Amounts(amounts(300), amounts(9_000_000)), "nobody": Amounts(amounts(9000), amounts(9000))}
    found = list(decide(node(pod={"extended_resources": noted})))
    changes = build.changes(found)
    assert changes[f"{MAIN}/cpu.shares"] == "307"
    assert changes[f"{MAIN}/cpu.quota"] == build.changes(decide(node()))[f"{MAIN}/cpu.quota"]
    (refused,) = [d for d in found if d.reason == "AnnotationExceedsSpec"]
    assert "main kubernetes.io/batch-cpu 9M > 1k" in str(refused.evidence["exceeds"])


def test_the_annotation_of_a_pod_whose_spec_asks_for_nothing_is_not_believed(build: Any, node: Any) -> None:
    noted = {"main": Amounts(amounts(9_000_000), amounts(9_000_000))}
    bare = ContainerInfo("main", "main", True, {}, {})
    found = list(decide(node(bare, pod={"extended_resources": noted})))
    assert not build.changes(found)
    assert [d.reason for d in found] == ["AnnotationExceedsSpec", "BatchResourcesOff"]


# ── other owners of the same files ──


def test_under_cfs_quota_the_besteffort_group_alone_is_limited(build: Any, node: Any) -> None:
    slo = build.suppression(cpu_suppress_policy="cfsQuota")
    seen = node(present=WRITTEN, slo=slo, found=FOUND, ours=frozenset(FOUND))
    pod, _ = decide(seen)
    assert build.changes([pod]) == {f"{POD}/cpu.quota": "-1", f"{MAIN}/cpu.quota": "-1"}
    assert all(change.gives_back for change in pod.changes) and "the policy is cfsQuota" in sentence(pod)


def test_on_v1_no_pod_has_more_than_the_besteffort_group(build: Any, node: Any) -> None:
    limited = {**node().cgroups, BE: Cgroup(quota_us=60_000)}
    assert build.changes(decide(node(cgroups=limited)))[f"{POD}/cpu.quota"] == "60000"
    assert build.changes(decide(node(cgroups=limited, layout=build.layout(2))))[f"{POD}/cpu.quota"] == "100000"


def test_suppression_lowers_the_quotas_of_this_strategy_before_its_own(build: Any, node: Any) -> None:
    """v1 refuses a quota for the group while a pod in it has more."""
    amounts_of = {"cpu": Quantity.of(2), "memory": Quantity.of(GIB)}
    seen = node(
        cgroups={**node(present=WRITTEN).cgroups, BE: build.cgroup("0-1")},
        found=FOUND,
        ours=frozenset(FOUND),
        slo=build.suppression(cpu_suppress_policy="cfsQuota"),
        node=Node(name="n", capacity=amounts_of, allocatable=amounts_of),
        topology=Topology((CPU(0, 0, 0, 0, 0), CPU(1, 1, 0, 0, 0)), (NUMANode(0, CPUSet.parse("0-1"), GIB),)),
    )
    used = build.used(700)
    seen = dataclasses.replace(seen, usage=msgspec.structs.replace(used, best_effort_cpu=0))
    limiting = list(cpu_suppress.decide(seen, cpu_suppress.Config()))
    quotas = {p: int(v) for p, v in build.changes(limiting).items() if p.endswith("quota")}
    assert quotas.keys() == {f"{each}/cpu.quota" for each in (BE, POD, MAIN)}
    assert len(set(quotas.values())) == 1 and quotas[f"{BE}/cpu.quota"] < 100_000
    steps = [c.group for c in plan.make(limiting, seen.cgroups).steps if getattr(c, "field", "") == "cpu.quota"]
    assert steps == [MAIN, POD, BE]


def test_an_idle_group_takes_its_shares_when_it_wakes_up(build: Any, node: Any) -> None:
    idle = msgspec.structs.replace(KUBELET, values={**KUBELET.values, "cpu.idle": 1})
    seen = node(cgroups={**node().cgroups, POD: idle})
    decisions = decide(seen)
    assert f"{POD}/cpu.shares" not in build.changes(decisions) and decisions[0].evidence["idle"] == "pod"
    assert f"{MAIN}/cpu.shares" in build.changes(decisions)


def test_the_quota_of_a_pinned_pod_is_not_its_business(build: Any, node: Any) -> None:
    seen = node()
    status = ResourceStatus(CPUSet.parse("0-1"))
    pinned = build.pod("b", "BE", "Burstable", containers=seen.pods[0].containers, status=status)
    assert not any(p.endswith("quota") for p in build.changes(decide(dataclasses.replace(seen, pods=(pinned,)))))


def test_a_faster_cpu_is_worth_a_smaller_quota_and_never_less_than_the_kernel_takes(build: Any, node: Any) -> None:
    fast = NodeNotes(cpu_normalization=4.0)
    assert build.changes(decide(node(notes=fast)))[f"{POD}/cpu.quota"] == "25000"
    assert build.changes(decide(node(container(cpu=20), notes=fast)))[f"{POD}/cpu.quota"] == "1000"


# ── memory in use ──


@pytest.mark.parametrize(
    ("held", "reason", "written"),
    [
        pytest.param(MemoryCharge(GIB, 0), "", True, id="just fits"),
        pytest.param(MemoryCharge(GIB + 8192, 8192), "MemoryLimitReclaims", True, id="page cache goes"),
        pytest.param(MemoryCharge(GIB + 8192, 4096), "MemoryLimitBelowUse", False, id="a process would go"),
        pytest.param(None, "MemoryUseUnknown", False, id="unknown"),
    ],
)
def test_a_memory_limit_never_kills_and_never_reclaims_silently(
    build: Any, node: Any, held: MemoryCharge | None, reason: str, written: bool
) -> None:
    decisions = decide(node(memory_held={POD: MemoryCharge(0, 0), **({MAIN: held} if held else {})}))
    assert [d.reason for d in decisions if d.reason.startswith("Memory")] == [reason] * bool(reason)
    assert (f"{MAIN}/memory.limit" in build.changes(decisions)) is written
    assert f"{POD}/memory.limit" in build.changes(decisions)


def test_configured_so_a_limit_is_written_below_use_and_says_it(build: Any, node: Any) -> None:
    held = {POD: MemoryCharge(2 * GIB, 0), MAIN: MemoryCharge(2 * GIB, 0)}
    decisions = decide(node(memory_held=held), limit_below_use=True)
    assert [d.reason for d in decisions if d.reason.startswith("Memory")] == ["MemoryLimitKills"] * 2
    assert build.changes(decisions)[f"{MAIN}/memory.limit"] == str(GIB)


def test_only_a_limit_that_falls_asks_what_is_in_use(node: Any) -> None:
    assert list(batch_resource.memory_held(node())) == [POD, MAIN]
    assert list(batch_resource.memory_held(node(present=WRITTEN))) == []
    lower = msgspec.structs.replace(WRITTEN, values={**WRITTEN.values, "memory.limit": GIB // 2})
    assert list(batch_resource.memory_held(node(present=lower))) == []


def test_a_limit_is_kept_in_whole_pages(build: Any, node: Any) -> None:
    changes = build.changes(decide(node(container(memory=10**9))))
    assert changes[f"{MAIN}/memory.limit"] == str(10**9 // 4096 * 4096)


# ── order, and giving back ──


def steps(seen: Snapshot, field: str) -> list[tuple[str, Any]]:
    made = plan.make([msgspec.structs.replace(d, strategy=batch_resource.NAME) for d in decide(seen)], seen.cgroups)
    return [(c.group, c.value) for c in made.steps if isinstance(c, CgroupChange) and c.field == field]


@pytest.mark.parametrize("field", ["cpu.quota", "memory.limit"])
def test_what_grows_grows_from_the_top_and_what_shrinks_from_the_bottom(node: Any, field: str) -> None:
    assert [group for group, _ in steps(node(), field)] == [MAIN, POD]
    little = Cgroup(quota_us=1000, values={"cpu.shares": 2, "memory.limit": 4096})
    assert [group for group, _ in steps(node(present=little), field)] == [POD, MAIN]


def test_a_pod_that_is_no_longer_batch_gets_back_what_was_found(build: Any, node: Any) -> None:
    seen = node(present=WRITTEN, found=FOUND, ours=frozenset(FOUND))
    (released,) = decide(dataclasses.replace(seen, pods=()))
    assert (released.verdict, released.reason) == ("release", "BatchResourcesReleased")
    assert build.changes([released]) == {place: str(found.value) for place, found in FOUND.items()}
    assert all(change.gives_back for change in released.changes)


def test_an_idle_group_gets_its_shares_back_when_it_wakes_up(build: Any, node: Any) -> None:
    idle = msgspec.structs.replace(WRITTEN, values={**WRITTEN.values, "cpu.idle": 1})
    seen = node(present=idle, found=FOUND, ours=frozenset(FOUND))
    released = build.changes(decide(dataclasses.replace(seen, pods=())))
    assert not any(place.endswith("shares") for place in released) and f"{POD}/cpu.quota" in released


def test_the_sentence_has_the_formula(node: Any) -> None:
    pod = decide(node(notes=NodeNotes(cpu_normalization=1.25)))[0]
    assert sentence(pod) == (
        "batch-cpu 500 × 1024 / 1000 = 512 shares; limit 1000 × 100 ms / 1000 / 1.25 = quota 80 ms; "
        "memory limit 1.0 GiB"
    )
    assert pod.evidence["containers"] == "main 500m → 512 shares, quota 80000 µs, memory limit 1073741824 B"


# ── properties ──

LIMITS = st.integers(0, 10**6)
CONTAINERS = st.lists(st.tuples(LIMITS, LIMITS, LIMITS, st.booleans()), min_size=1, max_size=5)


@given(CONTAINERS, st.sampled_from([0.5, 1.0, 1.1, 4.0, 5.0]))
def test_a_pod_never_has_less_than_one_of_its_containers(given_: list[Any], ratio: float) -> None:
    asked = [(Resources(request_milli=r, limit_milli=c, limit_bytes=m), ends) for r, c, m, ends in given_]
    whole = formula.values(formula.of_pod(asked, Resources()), ratio=ratio)
    for each, _ in asked:
        own = formula.values(each, ratio=ratio)
        assert whole.shares >= own.shares
        for name in ("quota_us", "limit_bytes"):
            assert getattr(whole, name) == UNLIMITED or 0 < getattr(own, name) <= getattr(whole, name)


NATIVE = ContainerInfo("side", "side", True, {}, {"cpu": Quantity.of(2), "memory": Quantity.of(GIB)}, False)
SIDE = f"{POD}/side"


def test_a_native_quota_is_worth_what_the_nodes_cpus_are(build: Any, node: Any) -> None:
    notes = NodeNotes(cpu_normalization=1.25)
    kubelet = {SIDE: Cgroup(quota_us=200_000, values={"cpu.shares": 2, "memory.limit": GIB})}
    seen = node(container(), NATIVE, notes=notes)
    seen = dataclasses.replace(seen, cgroups={**seen.cgroups, **kubelet})
    changes = build.changes(decide(seen))
    side = {place: value for place, value in changes.items() if place.startswith(SIDE)}
    assert side == {f"{SIDE}/cpu.quota": "160000"}
    assert changes[f"{POD}/cpu.quota"] == "240000", "the sum of both"
    assert "side native 2000m → quota 160000 µs" in decide(seen)[0].evidence["containers"]


@pytest.mark.parametrize(("ratio", "policy"), [(None, "cpuset"), (1.0, "cpuset"), (1.25, "cfsQuota")])
def test_a_native_quota_stays_where_it_is_right(build: Any, node: Any, ratio: float | None, policy: str) -> None:
    slo = build.suppression(cpu_suppress_policy=policy)
    seen = node(container(), NATIVE, notes=NodeNotes(cpu_normalization=ratio), slo=slo)
    assert not [place for place in build.changes(decide(seen)) if place.startswith(SIDE)]


def test_a_native_quota_comes_back_when_the_ratio_is_gone(build: Any, node: Any) -> None:
    found = {cgroup.PLACE.place(SIDE, "cpu.quota"): Original(200_000, batch_resource.NAME)}
    seen = node(container(), NATIVE, present=msgspec.structs.replace(WRITTEN, quota_us=160_000), found=found)
    assert build.changes(decide(seen))[f"{SIDE}/cpu.quota"] == "200000"


@pytest.mark.parametrize(("version", "held"), [(1, 512), (2, 500)])
def test_what_the_kernel_makes_of_our_shares_is_no_foreign_write(
    build: Any, node: Any, version: int, held: int
) -> None:
    seen = node(present=msgspec.structs.replace(WRITTEN, values={"cpu.shares": held}), layout=build.layout(version))
    assert CgroupChange(MAIN, "cpu.shares", 512).compare(seen) is Standing.OURS
    assert CgroupChange(MAIN, "cpu.shares", 2000).compare(seen) is not Standing.OURS
