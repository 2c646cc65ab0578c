"""When best-effort pods give way, wait, come back and are let go."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu.contention import Guidance
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.node import Node, ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Original
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.picture.usage import CPUWait, Usage, Use
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, HostApplication, Threshold
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, Topology
from koordlite.report.sentence import sentence
from koordlite.strategies import cpu_suppress, discover
from koordlite.strategies.cpu_suppress import NAME, SuppressMemory

RULE = next(rule for rule in discover() if rule.module == "cpu_suppress")

BE = "kubepods/besteffort"
SET, QUOTA = f"{BE}/cpuset.cpus", f"{BE}/cpu.quota"
CONTAINER_SET = f"{BE}/podb/main/cpuset.cpus"


def decide(seen: Snapshot, **config: Any) -> list[Decision]:
    return list(RULE.answer(seen, cpu_suppress.Config(**config)))


# ── by cpuset ──


@pytest.mark.parametrize(
    ("present", "prod", "verdict", "cpus"),
    [
        pytest.param("0-7", 1200, "shrink", 4, id="load takes CPUs away at once: 8 × 65 % − 1.2 = 4"),
        pytest.param("0-7", 9000, "shrink", 2, id="two CPUs are always left"),
        pytest.param("2,6", 0, "grow", 3, id="it comes back by a tenth of the node a tick, not at once"),
        pytest.param("0,2,4,6", 1200, "hold", 4, id="a budget that fits what it holds changes nothing"),
        pytest.param("0,2,4,6", 1300, "hold", 4, id="a budget of 3.9 CPUs still is 4 CPUs"),
        pytest.param("0,2,4,6", 1199, "grow", 5, id="a started CPU counts"),
        pytest.param("0,2,4,6", 2200, "shrink", 3, id="at 3 CPUs the fourth is given up"),
        pytest.param("0-3", 1200, "set", 4, id="a set that splits cores is put right"),
    ],
)
def test_cpuset_follows_the_budget(build: Any, present: str, prod: int, verdict: str, cpus: int) -> None:
    seen = build.snapshot(
        pods=(build.pod("web", "LS"),), usage=build.used(prod, web=prod), cgroups=build.best_effort(present)
    )
    (decision,) = decide(seen)
    assert (decision.verdict, decision.evidence["target_cpus"], decision.reason) == (verdict, cpus, "BECPUBudget")
    assert set(build.changes([decision])) == (set() if verdict == "hold" else {SET, *groups_below("cpuset.cpus")})


def groups_below(field: str) -> set[str]:
    return {f"{BE}/podb/{field}", f"{BE}/podb/main/{field}"}


def test_evidence_holds_every_term_of_the_formula(build: Any) -> None:
    applications = (HostApplication(name="db"), HostApplication(name="scan", base="KubepodsBesteffort"))
    pods = (build.pod("web", "LS"), build.pod("b", "BE", "BestEffort"))
    usage = Usage(Use(6000, 0), {"web": Use(1500, 0), "b": Use(2000, 0)}, {"db": Use(500, 0)})
    slo = msgspec.structs.replace(build.suppression(cpu_suppress_min_percent=10), host_applications=applications)
    (decision,) = decide(build.snapshot(pods=pods, usage=usage, slo=slo))
    terms = {
        "capacity_milli": 8000,
        "threshold_percent": 65,
        "prod_milli": 1500,
        "host_milli": 500,
        "system_milli": 6000 - 1500 - 2000 - 500,
        "min_percent": 10,
    }
    assert terms.items() <= dict(decision.evidence).items()
    assert "budget_milli" not in decision.evidence, "evidence explains: what is acted on is the outcome"
    assert decision.outcome.budget_milli == 5200 - 1500 - 500 - 2000
    assert decision.explained == {"budget_milli": 1200, **decision.evidence}


def test_reserved_cpu_counts_as_used_by_the_system(build: Any) -> None:
    amounts = {"cpu": Quantity.of(8), "memory": Quantity.of(1)}
    kept = Node(name="n", capacity=amounts, allocatable={**amounts, "cpu": Quantity.parse("6500m")})
    (decision,) = decide(build.snapshot(node=kept))
    assert decision.evidence["system_milli"] == 1500
    annotated = ResolvedReservation(CPUSet([0]), {"cpu": Quantity.of(2)})
    (decision,) = decide(build.snapshot(node=kept, reserved=annotated))
    assert decision.evidence["system_milli"] == 2000


def test_a_set_that_holds_a_reserved_cpu_is_moved_even_when_its_size_is_right(build: Any) -> None:
    reserved = ResolvedReservation(CPUSet([0]), {"cpu": Quantity.of(1)})
    seen = build.snapshot(reserved=reserved, cgroups=build.best_effort("0-3"), usage=build.used(1200))
    (decision,) = decide(seen)
    assert decision.verdict == "set"
    assert "0" not in str(decision.evidence["cpuset"]).split("-")[0].split(",")
    assert decision.evidence["target_cpus"] == 4


@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
@pytest.mark.parametrize(("present", "verdict"), [(-1, "shrink"), (50_000, "shrink"), (2_000, "hold")])
def test_no_cpu_left_means_the_smallest_quota(build: Any, policy: str, present: int, verdict: str) -> None:
    everything = SystemQoS(CPUSet.parse("0-7"), exclusive=True)
    groups, slo = build.best_effort(quota=present), build.suppression(cpu_suppress_policy=policy)
    (decision,) = decide(build.snapshot(system_qos=everything, cgroups=groups, slo=slo))
    assert (decision.verdict, decision.reason) == (verdict, "NoCPULeftForBestEffort")
    assert decision.evidence["forbidden"] == "0-7"
    assert build.changes([decision]) == ({f"{BE}/cpu.quota": "2000"} if verdict == "shrink" else {})


def test_an_absent_cpuset_file_is_not_written(build: Any) -> None:
    groups = {BE: build.cgroup(), f"{BE}/podb": msgspec.structs.replace(build.cgroup(), cpuset=None)}
    (decision,) = decide(build.snapshot(cgroups=groups, usage=build.used(9000)))
    assert set(build.changes([decision])) == {SET}


# ── cgroup v2 and kubelet's static policy ──


def v2(build: Any, root: str, below: str, *, effective: str) -> dict[str, Any]:
    groups = {
        BE: build.cgroup(root, effective=root or effective),
        f"{BE}/podb": build.cgroup(below, effective=effective),
        f"{BE}/podb/main": build.cgroup(below, effective=effective),
    }
    return {"layout": build.layout(2), "cgroups": groups}


def test_on_v2_groups_that_inherit_are_left_empty(build: Any) -> None:
    (decision,) = decide(build.snapshot(**v2(build, "", "", effective="0-7"), usage=build.used(9000)))
    assert set(build.changes([decision])) == {SET}


def test_on_v2_groups_with_a_set_of_their_own_are_narrowed_too(build: Any) -> None:
    (decision,) = decide(build.snapshot(**v2(build, "", "0-7", effective="0-7"), usage=build.used(9000)))
    assert set(build.changes([decision])) == {SET, *groups_below("cpuset.cpus")}


def test_on_v2_an_untouched_node_is_released_without_a_write(build: Any) -> None:
    (decision,) = decide(build.snapshot(**v2(build, "", "", effective="0-7"), slo=build.suppression(enable=False)))
    assert (decision.verdict, decision.changes) == ("hold", ())


STATIC = Kubelet(cpu_manager_policy="static")


def test_under_the_static_policy_only_containers_are_narrowed(build: Any) -> None:
    (decision,) = decide(build.snapshot(kubelet=STATIC, usage=build.used(9000)))
    assert set(build.changes([decision])) == {CONTAINER_SET}


def test_under_the_static_policy_a_steady_budget_changes_nothing(build: Any) -> None:
    groups = {**build.best_effort(), f"{BE}/podb/main": build.cgroup("1,3,5,7")}
    (decision,) = decide(build.snapshot(kubelet=STATIC, cgroups=groups, usage=build.used(1300)))
    assert (decision.verdict, decision.changes) == ("hold", ())


def test_under_the_static_policy_containers_grow_by_steps(build: Any) -> None:
    groups = {**build.best_effort(), f"{BE}/podb/main": build.cgroup("2-3")}
    (decision,) = decide(build.snapshot(kubelet=STATIC, cgroups=groups))
    assert (decision.verdict, decision.evidence["target_cpus"]) == ("grow", 3)


def test_under_the_static_policy_on_v1_kubelet_can_write_its_own_set_into_a_new_container(build: Any) -> None:
    """Kubelet's default set has the CPUs that an annotation reserves, and v1 nests sets by force."""
    reserved = ResolvedReservation(CPUSet([0]), {"cpu": Quantity.of(1)})
    groups = build.best_effort("1-7")
    (decision,) = decide(build.snapshot(kubelet=STATIC, reserved=reserved, cgroups=groups, usage=build.used(9000)))
    made = build.changes([decision])
    assert made[SET] == made[f"{BE}/podb/cpuset.cpus"] == "0-7"
    assert "0" not in made[CONTAINER_SET].split(",")


def test_under_the_static_policy_groups_a_container_made_follow_it(build: Any) -> None:
    groups = {**build.best_effort(), f"{BE}/podb/main/worker": build.cgroup()}
    (decision,) = decide(build.snapshot(kubelet=STATIC, cgroups=groups, usage=build.used(9000)))
    made = build.changes([decision])
    assert made[f"{BE}/podb/main/worker/cpuset.cpus"] == made[CONTAINER_SET]


# ── where the least set is all there is ──

TWO = Topology((CPU(0, 0, 0, 0), CPU(1, 1, 0, 0)), ())


def two_cpus(build: Any, *, used: int, quota: int | None = -1, **part: Any) -> list[Decision]:
    """A node of two CPUs with the threshold of 65 %: 1300 millicores less what the service uses are for best effort."""
    amounts = {"cpu": Quantity.of(2), "memory": Quantity.of(1)}
    return decide(
        build.snapshot(
            topology=TWO,
            node=Node(name="n", capacity=amounts, allocatable=amounts),
            pods=(build.pod("web", "LS"),),
            places={"web": build.place("kubepods/burstable/podweb")},
            usage=build.used(used, web=used),
            cgroups=build.best_effort("0-1", quota),
            **part,
        )
    )


LEARNED = SuppressMemory(guidance=Guidance(own={"web": 0.1}, learned_at=900.0, known_at=999.0))


@pytest.mark.parametrize(
    ("used", "share", "reason", "quotas"),
    [
        pytest.param(300, 0.05, "SetIsLeast", (-1, -1), id="no service waits: no quota"),
        pytest.param(300, 0.05, "ServicesDoNotWait", (100_000, 120_000), id="it grows by a tenth of the node"),
        pytest.param(300, 0.3, "ServicesWait", (-1, 148_000), id="one waits: half the way from 98 % to the budget"),
        pytest.param(1000, 0.3, "ServicesWait", (32_000, 30_000), id="and then the budget"),
        pytest.param(2000, 0.3, "ServicesWait", (2_000, 2_000), id="at the least 2 ms"),
    ],
)
def test_on_two_cpus_there_is_a_quota_only_while_services_wait(
    build: Any, used: int, share: float, reason: str, quotas: tuple[int, int]
) -> None:
    present, quota = quotas
    waits = {"web": CPUWait(995, 1000, round(1e6 * (1 - share)), round(1e6 * share))}
    by_set, by_quota = two_cpus(build, used=used, quota=present, cpu_waits=waits, remembered={NAME: LEARNED})
    assert (by_set.verdict, by_set.evidence["cpuset"]) == ("hold", "0-1")
    assert (by_quota.subject, by_quota.reason, by_quota.evidence["cpuset"]) == ("besteffort/quota", reason, "0-1")
    assert build.changes([by_quota]) == ({} if quota == present else {QUOTA: str(quota)})


def test_a_reservation_that_leaves_one_cpu_counts(build: Any) -> None:
    reserved = ResolvedReservation(CPUSet([0]), {"cpu": Quantity.of(1)})
    by_set, by_quota = two_cpus(build, used=200, reserved=reserved, time=1000 + 10, remembered={NAME: LEARNED})
    assert (by_set.evidence["cpuset"], by_quota.reason) == ("1", "NoWaitSignal")
    assert by_quota.evidence["quota_us"] == 10_000


def test_a_quota_that_has_grown_to_all_cpus_is_lifted(build: Any) -> None:
    part = {"cpu_waits": {"web": CPUWait(995, 1000, 1_000_000, 0)}, "ours": frozenset({QUOTA})}
    by_quota = two_cpus(build, used=0, quota=170_000, **part)[1]
    assert (by_quota.reason, by_quota.evidence["quota_us"]) == ("ServicesDoNotWait", 190_000)
    lifted = two_cpus(build, used=0, quota=190_000, **part)[1]
    assert (lifted.reason, build.changes([lifted])) == ("SetIsLeast", {QUOTA: "-1"})


def test_a_larger_node_keeps_its_least_of_two_cpus_and_no_quota(build: Any) -> None:
    (decision,) = decide(build.snapshot(usage=build.used(9000)))
    assert (decision.evidence["target_cpus"], decision.reason) == (2, "BECPUBudget")


# ── by quota ──


@pytest.mark.parametrize(
    ("present", "prod", "verdict", "quota"),
    [
        pytest.param(-1, 1200, "shrink", 400_000, id="from no limit at once to the budget"),
        pytest.param(500_000, 1200, "shrink", 400_000, id="down at once"),
        pytest.param(200_000, 1200, "grow", 280_000, id="up by a tenth of the node"),
        pytest.param(395_000, 1200, "hold", 395_000, id="within 1 % of the node nothing changes"),
        pytest.param(500_000, 9000, "shrink", 2_000, id="at the least 2 ms"),
        pytest.param(2_000, 9000, "hold", 2_000, id="at the minimum already"),
    ],
)
def test_quota_follows_the_budget(build: Any, present: int, prod: int, verdict: str, quota: int) -> None:
    seen = build.snapshot(
        slo=build.suppression(cpu_suppress_policy="cfsQuota"),
        pods=(build.pod("web", "LS"),),
        usage=build.used(prod, web=prod),
        cgroups=build.best_effort(quota=present),
    )
    by_quota, by_set = decide(seen)
    assert (by_quota.verdict, by_quota.reason, by_quota.evidence["quota_us"]) == (verdict, "BECPUBudget", quota)
    assert build.changes([by_quota]) == ({} if verdict == "hold" else {QUOTA: str(quota)})
    assert (by_set.subject, by_set.verdict, by_set.reason) == ("besteffort/cpuset", "hold", "PolicyIsQuota")


def test_a_budget_below_zero_is_told_as_what_is_lacking(build: Any) -> None:
    used = {"pods": (build.pod("web", "LS"),), "usage": build.used(9000, web=9000)}
    policy = build.suppression(cpu_suppress_policy="cfsQuota")
    by_quota, _ = decide(build.snapshot(slo=policy, cgroups=build.best_effort(quota=500_000), **used))
    assert sentence(by_quota) == (
        "BE may use 0.0 cores and 3.8 are lacking: 8.0 × 65 % − LS 9.0 − system 0.0; "
        "shrinks quota 500 ms → 2 ms per 100 ms; 2 ms is the least it gets"
    )


def test_under_the_quota_policy_a_narrow_set_is_given_back(build: Any) -> None:
    seen = build.snapshot(slo=build.suppression(cpu_suppress_policy="cfsQuota"), cgroups=build.best_effort("0-3"))
    _, by_set = decide(seen)
    assert (by_set.verdict, build.changes([by_set])[SET]) == ("release", "0-7")


@pytest.mark.parametrize(
    ("ours", "lifted"),
    [
        pytest.param(frozenset({QUOTA}), {QUOTA: "-1"}, id="a quota of ours is lifted when the policy is cpuset"),
        pytest.param(frozenset(), {}, id="a quota somebody else set stays"),
    ],
)
def test_quota_left_behind(build: Any, ours: frozenset[str], lifted: dict[str, str]) -> None:
    found = decide(build.snapshot(cgroups=build.best_effort(quota=100_000), ours=ours))[1:]
    assert build.changes(found) == lifted
    assert [d.reason for d in found] == ["PolicyIsCPUSet"] * len(lifted)


def test_a_quota_that_was_found_comes_back(build: Any) -> None:
    found = {QUOTA: Original(300_000, "cpuSuppress")}
    seen = build.snapshot(cgroups=build.best_effort(quota=100_000), ours=frozenset({QUOTA}), found=found)
    assert build.changes(decide(seen)[1:]) == {QUOTA: "300000"}


def test_no_quota_file_is_said(build: Any) -> None:
    seen = build.snapshot(slo=build.suppression(cpu_suppress_policy="cfsQuota"), cgroups=build.best_effort(quota=None))
    assert next((d.verdict, d.reason) for d in decide(seen)) == ("skip", "NoQuotaFile")


# ── when nothing can or may be judged ──


def test_disabled_gives_back_set_and_quota_of_ours(build: Any) -> None:
    seen = build.snapshot(
        slo=build.suppression(enable=False), cgroups=build.best_effort("0-3", 100_000), ours=frozenset({QUOTA})
    )
    (decision,) = decide(seen)
    assert (decision.verdict, decision.reason) == ("release", "Disabled")
    assert build.changes([decision]) == {QUOTA: "-1", **dict.fromkeys({SET, *groups_below("cpuset.cpus")}, "0-7")}


def test_disabled_does_not_give_away_cpus_that_are_somebodys(build: Any) -> None:
    seen = build.snapshot(
        slo=build.suppression(enable=False),
        reserved=ResolvedReservation(CPUSet([0])),
        pods=(build.pod("lse", "LSE", cpus="1"),),
        cgroups=build.best_effort("2-3"),
    )
    (decision,) = decide(seen)
    assert build.changes([decision])[SET] == "2-7"


@pytest.mark.parametrize(
    ("age", "verdict", "reason"),
    [
        pytest.param(1.0, "hold", "NoMetrics", id="without usage the last limit stays"),
        pytest.param(60.0, "hold", "NoMetrics", id="up to and including holdSeconds"),
        pytest.param(60.1, "release", "NoMetricsReleased", id="after that best-effort is let go"),
    ],
)
def test_missing_usage(build: Any, age: float, verdict: str, reason: str) -> None:
    seen = build.snapshot(usage=build.used(None), ages={"usage": age}, cgroups=build.best_effort("0-3"))
    (decision,) = decide(seen)
    assert (decision.verdict, decision.reason) == (verdict, reason)
    assert bool(decision.changes) == (verdict == "release")


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        pytest.param({"node": None}, "NoNode", id="no Node object"),
        pytest.param({"node": Node(name="n")}, "NoNode", id="a Node without capacity"),
        pytest.param({"cgroups": {}}, "NoBestEffortGroup", id="no besteffort group"),
    ],
)
def test_without_what_it_needs_it_says_so(build: Any, part: dict[str, Any], reason: str) -> None:
    (decision,) = decide(build.snapshot(**part))
    assert (decision.verdict, decision.reason, decision.changes) == ("skip", reason, ())


# ── properties ──

CPUS = st.integers(1, 3).flatmap(
    lambda bits: st.tuples(st.just(2**bits), st.sampled_from([1, 2]), st.sampled_from([1, 2]))
)
PARTS = st.lists(st.integers(0, 15), max_size=5)


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """A machine, who holds which CPUs, and what is used; nothing needs to make sense."""
    cores, threads, sockets = draw(CPUS)
    cpus = tuple(CPU(i, i % cores, i % cores % sockets, i % cores % sockets) for i in range(cores * threads))
    return {
        "topology": Topology(cpus, ()),
        "lse": CPUSet(draw(PARTS)),
        "lsr": CPUSet(draw(PARTS)),
        "kubelet": CPUSet(draw(PARTS)),
        "reserved": CPUSet(draw(PARTS)),
        "system": CPUSet(draw(PARTS)),
        "present": CPUSet(draw(st.lists(st.integers(0, len(cpus) - 1), min_size=1))),
        "used": draw(st.integers(0, 20_000)),
        "enable": draw(st.booleans()),
        "static": draw(st.booleans()),
        "policy": draw(st.sampled_from(["cpuset", "cfsQuota"])),
    }


def pictured(build: Any, held: dict[str, Any]) -> Snapshot:
    given_away = (PodCPUs("k", held["kubelet"]),) if held["kubelet"] else ()
    cpus = len(held["topology"].cpus)
    threshold = Threshold(enable=held["enable"], cpu_suppress_policy=held["policy"])
    return build.snapshot(  # type: ignore[no-any-return]
        topology=held["topology"],
        node=Node(name="n", capacity={"cpu": Quantity.of(cpus)}, allocatable={"cpu": Quantity.of(cpus)}),
        slo=SLO(threshold=threshold),
        pods=(build.pod("e", "LSE", cpus=str(held["lse"])), build.pod("r", "LSR", cpus=str(held["lsr"]))),
        kubelet=Kubelet(cpu_manager_policy="static" if held["static"] else "none", pod_cpus=given_away),
        reserved=ResolvedReservation(held["reserved"] & held["topology"].cpuset),
        system_qos=SystemQoS(held["system"], exclusive=True),
        usage=build.used(held["used"]),
        cgroups=build.best_effort(str(held["present"])),
    )


@given(held=nodes())
def test_best_effort_never_gets_a_cpu_that_is_somebody_elses(build: Any, held: dict[str, Any]) -> None:
    forbidden = held["lse"] | held["kubelet"] | held["reserved"] | held["system"]
    for decision in decide(pictured(build, held)):
        for change in decision.changes:
            if isinstance(change.value, CPUSet):  # type: ignore[union-attr]
                assert change.value, "a set is never empty"
                # Under the static policy only containers hold processes that a set must keep in bounds.
                if not held["static"] or change.group.count("/") > 2:
                    assert not change.value & forbidden
                assert change.value <= held["topology"].cpuset


@given(held=nodes())
def test_the_same_load_settles(build: Any, held: dict[str, Any]) -> None:
    """Writing what was decided, again and again, comes to a rest within as many ticks as there are CPUs."""
    seen = pictured(build, held)
    for _ in range(len(held["topology"].cpus) + 2):
        wanted = {c.group: c for d in decide(seen) for c in d.changes if isinstance(c.value, CPUSet)}  # type: ignore[union-attr]
        if not wanted:
            break
        written = {
            g: msgspec.structs.replace(c, cpuset=wanted[g].value, effective=wanted[g].value)
            for g, c in seen.cgroups.items()
            if g in wanted
        }
        seen = dataclasses.replace(seen, cgroups={**seen.cgroups, **written})
    assert not [c for d in decide(seen) for c in d.changes if isinstance(c.value, CPUSet)]  # type: ignore[union-attr]


def test_a_pod_that_is_gone_counts_as_protected(build: Any) -> None:
    """Its use is known but its class is not, so it is not taken for best-effort."""
    (decision,) = decide(build.snapshot(usage=build.used(1500, ghost=1500)))
    assert decision.evidence["prod_milli"] == 1500


# ── quotas below the besteffort group, on v1 ──

POD = f"{BE}/pod1"


def quotas(build: Any, *, root: int, pod: int, prod: int, found: int | None = None) -> dict[str, str]:
    """What the quota policy asks for when the node is 8 CPUs and prod uses `prod` millicores."""
    seen = build.snapshot(
        slo=build.suppression(cpu_suppress_policy="cfsQuota"),
        usage=build.used(prod, web=prod),
        pods=(build.pod("web", "LS"),),
        cgroups={**build.best_effort(quota=root), POD: build.cgroup(quota=pod)},
        found={} if found is None else {f"{POD}/cpu.quota": Original(found, "cpuSuppress")},
    )
    return dict(build.changes(decide(seen)[:1]))


def test_a_quota_above_the_new_limit_follows_it(build: Any) -> None:
    asked = quotas(build, root=-1, pod=400_000, prod=3000)
    assert asked[f"{POD}/cpu.quota"] == asked[QUOTA]


def test_a_quota_within_the_new_limit_stays(build: Any) -> None:
    assert set(quotas(build, root=-1, pod=10_000, prod=3000)) == {QUOTA}


def test_a_quota_that_was_lowered_gets_back_what_it_had_when_the_limit_grows(build: Any) -> None:
    asked = quotas(build, root=100_000, pod=100_000, prod=100, found=150_000)
    assert int(asked[QUOTA]) > 150_000
    assert asked[f"{POD}/cpu.quota"] == "150000"
