"""Who is put on which CPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordlite.changes.cgroup import CgroupChange
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Cgroup, Original
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.picture.published import Published
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, HostApplication
from koordlite.strategies import cpuset_pools

GROUP = "kubepods/burstable/podp"


def decide(build: Any, *pods: Any, groups: dict[str, Cgroup] | None = None, **part: Any) -> dict[str, Decision]:
    """Decisions by subject; the first pod lives in GROUP with a container and a pause container on all CPUs."""
    present = {GROUP: build.cgroup(), f"{GROUP}/main": build.cgroup(), f"{GROUP}/pause": build.cgroup()}
    places = {pods[0].uid: build.place(GROUP)} if pods else {}
    seen = build.snapshot(**{"pods": pods, "places": places, "cgroups": {**present, **(groups or {})}, **part})
    config = part.pop("config", cpuset_pools.Config())
    return {d.subject: d for d in cpuset_pools.decide(seen, config)}


def sets(build: Any, decision: Decision) -> dict[str, str]:
    return {place: value for place, value in build.changes([decision]).items() if place.endswith("cpuset.cpus")}


def test_pinned_containers_go_on_their_cpus_and_lose_their_quota(build: Any) -> None:
    limited = {GROUP: build.cgroup(quota=200_000), f"{GROUP}/main": build.cgroup(quota=200_000)}
    pod = build.pod("p", "LSR", cpus="1,5", containers=(ContainerInfo("main", "", True, {}, {"cpu": Quantity.of(2)}),))
    decision = decide(build, pod, groups=limited)["pod/ns/p"]
    assert (decision.verdict, decision.reason) == ("set", "PinnedCPUs")
    assert build.changes([decision]) == {
        f"{GROUP}/main/cpuset.cpus": "1,5",
        f"{GROUP}/pause/cpuset.cpus": "1,5",
        f"{GROUP}/cpu.quota": "-1",
        f"{GROUP}/main/cpu.quota": "-1",
    }


def test_the_quota_stays_when_so_configured(build: Any) -> None:
    limited = {f"{GROUP}/main": build.cgroup("1,5", 200_000), f"{GROUP}/pause": build.cgroup("1,5")}
    pod, config = build.pod("p", "LSR", cpus="1,5"), cpuset_pools.Config(unset_pinned_quota=False)
    seen = build.snapshot(pods=(pod,), places={"p": build.place(GROUP)}, cgroups=limited)
    decision = list(cpuset_pools.decide(seen, config))[1]
    assert (decision.verdict, decision.changes) == ("hold", ())


def test_latency_sensitive_pods_share_what_nobody_has_for_himself(build: Any) -> None:
    found = decide(
        build,
        build.pod("p", "LS"),
        build.pod("r", "LSR", cpus="1,5"),
        reserved=ResolvedReservation(CPUSet([0])),
        system_qos=SystemQoS(CPUSet([4]), exclusive=True),
        kubelet=Kubelet(cpu_manager_policy="none", pod_cpus=(PodCPUs("k", CPUSet([7])),)),
    )
    decision = found["pod/ns/p"]
    assert (decision.reason, decision.evidence["cpuset"]) == ("SharedPool", "2-3,6")
    assert sets(build, decision) == dict.fromkeys((f"{GROUP}/main/cpuset.cpus", f"{GROUP}/pause/cpuset.cpus"), "2-3,6")


def test_a_container_with_a_resource_claim_stays_where_its_driver_put_it(build: Any) -> None:
    claimed = PodCPUs("p", CPUSet([2, 3]), {"main": CPUSet([2, 3])}, claimed=True)
    groups = {f"{GROUP}/main": build.cgroup("2-3")}
    found = decide(
        build, build.pod("p", "LS"), groups=groups, kubelet=Kubelet(cpu_manager_policy="none", pod_cpus=(claimed,))
    )
    decision = found["pod/ns/p"]
    assert found["pools"].evidence["ls_pool"] == found["pools"].evidence["be_pool"] == "0-1,4-7"
    assert decision.evidence["resource_claims"] == "main: 2-3"
    assert sets(build, decision) == {f"{GROUP}/pause/cpuset.cpus": "0-1,4-7"}


def test_best_effort_may_use_lsr_cpus_but_not_lse_ones(build: Any) -> None:
    pools = decide(build, build.pod("r", "LSR", cpus="1"), build.pod("e", "LSE", cpus="2"))["pools"]
    assert (pools.evidence["ls_pool"], pools.evidence["be_pool"]) == ("0,3-7", "0-1,3-7")


def test_pools_are_published_by_numa_node(build: Any) -> None:
    pools = decide(build)["pools"]
    texts = build.changes([pools])
    entries = json.loads(texts[f"noderesourcetopology/{keys.LS_SHARED_POOLS}"])
    assert entries == [{"socket": 0, "node": 0, "cpuset": "0-1,4-5"}, {"socket": 1, "node": 1, "cpuset": "2-3,6-7"}]


def test_published_pools_are_not_published_again(build: Any) -> None:
    texts = {c.key: c.value for c in decide(build)["pools"].changes}  # type: ignore[union-attr]
    again = decide(build, published=Published({}, texts))["pools"]
    assert (again.verdict, again.changes) == ("hold", ())


def test_promised_numa_nodes_choose_the_pool(build: Any) -> None:
    decision = decide(build, build.pod("p", "LS", status=ResourceStatus(numa_nodes=(1,))))["pod/ns/p"]
    assert decision.evidence["cpuset"] == "2-3,6-7"


@pytest.mark.parametrize(
    ("pod", "verdict", "reason"),
    [
        pytest.param(("p", "LSR", "Burstable", "12-13"), "refuse", "PinnedCPUsNotOnline", id="CPUs the machine lacks"),
        pytest.param(("p", "LS", "Burstable", ""), "hold", "EmptyPool", id="everything is reserved"),
    ],
)
def test_no_cpu_is_no_set(build: Any, pod: tuple[str, ...], verdict: str, reason: str) -> None:
    decision = decide(build, build.pod(*pod), reserved=ResolvedReservation(CPUSet.parse("0-7")))["pod/ns/p"]
    assert (decision.verdict, decision.reason, decision.changes) == (verdict, reason, ())


def test_cpus_that_went_offline_are_left_out(build: Any) -> None:
    assert decide(build, build.pod("p", "LSR", cpus="1,9"))["pod/ns/p"].evidence["cpuset"] == "1"


def test_under_the_static_policy_kubelet_places_pods_without_a_label(build: Any) -> None:
    decision = decide(build, build.pod("p", ""), kubelet=Kubelet(cpu_manager_policy="static"))["pod/ns/p"]
    assert (decision.verdict, decision.reason, decision.changes) == ("hold", "KubeletStaticPolicy", ())


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(("p", "BE", "BestEffort"), id="best-effort pods are cpuSuppress's"),
        pytest.param(("q", "LS", "Burstable"), id="a pod without a group has nothing to be placed"),
    ],
)
def test_not_its_business(build: Any, pod: tuple[str, ...]) -> None:
    places = {"p": build.place(GROUP)}
    assert set(decide(build, build.pod(*pod), places=places)) == {"pools"}


def test_ended_pods_are_passed_over(build: Any) -> None:
    assert set(decide(build, build.pod("p", "LS", phase="Succeeded"))) == {"pools"}


# ── a promise against the machine ──


def test_a_promise_that_does_not_hold_on_this_machine_is_told(build: Any) -> None:
    decision = decide(build, build.pod("p", "LSR", cpus="1,5,9"), reserved=ResolvedReservation(CPUSet([5])))["pod/ns/p"]
    assert (decision.evidence["absent"], decision.evidence["on_reserved"]) == ("9", "5")
    assert decision.evidence["cpuset"] == "1", "a reserved CPU is no pod's"


def test_one_that_holds_has_nothing_to_tell(build: Any) -> None:
    assert set(decide(build, build.pod("p", "LSR", cpus="1,5"))["pod/ns/p"].evidence) == {"qos", "cpuset"}


def test_a_finished_pod_gives_its_cpus_back_to_the_pool(build: Any) -> None:
    pools = decide(build, build.pod("r", "LSR", cpus="1", phase="Succeeded"))["pools"]
    assert pools.evidence["ls_pool"] == "0-7"


# ── giving back ──

MINE = "cpusetPools"


@pytest.mark.parametrize(
    ("present", "found", "back"),
    [
        pytest.param(-1, Original(200_000, MINE), 200_000, id="the quota that was found"),
        pytest.param(300_000, Original(200_000, MINE), 300_000, id="or the one that kubelet has set since"),
        pytest.param(-1, Original(200_000, "cpuBurst"), None, id="what another strategy wrote is not its business"),
        pytest.param(-1, None, None, id="nothing that is not ours"),
    ],
)
def test_a_pod_that_is_not_pinned_any_more_gets_its_quota_back(
    build: Any, present: int, found: Original | None, back: int | None
) -> None:
    groups = {f"{GROUP}/main": build.cgroup(quota=present), GROUP: build.cgroup()}
    journal = {f"{GROUP}/main/cpu.quota": found} if found else {}
    decision = decide(build, build.pod("p", "LS"), groups=groups, found=journal)["pod/ns/p"]
    quotas = [change for change in decision.changes if getattr(change, "field", "") == "cpu.quota"]
    wanted = [] if back is None else [CgroupChange(f"{GROUP}/main", "cpu.quota", back, gives_back=True)]
    assert quotas == wanted


def test_the_quota_comes_back_also_when_lifting_is_switched_off(build: Any) -> None:
    pod, journal = build.pod("p", "LSR", cpus="1"), {f"{GROUP}/main/cpu.quota": Original(200_000, MINE)}
    groups = {f"{GROUP}/main": build.cgroup("1", -1)}
    seen = build.snapshot(pods=(pod,), places={"p": build.place(GROUP)}, cgroups=groups, found=journal)
    decision = list(cpuset_pools.decide(seen, cpuset_pools.Config(unset_pinned_quota=False)))[1]
    assert build.changes([decision]) == {f"{GROUP}/main/cpu.quota": "200000"}


def test_what_kubelets_static_policy_takes_over_is_given_back(build: Any) -> None:
    journal = {f"{GROUP}/main/cpuset.cpus": Original(CPUSet.parse("0-6"), MINE)}
    kubelet = Kubelet(cpu_manager_policy="static")
    decision = decide(build, build.pod("p", ""), kubelet=kubelet, found=journal)["pod/ns/p"]
    assert (decision.verdict, decision.reason) == ("release", "KubeletStaticPolicy")
    assert decision.changes == (CgroupChange(f"{GROUP}/main", "cpuset.cpus", CPUSet.parse("0-6"), gives_back=True),)


def test_what_kubelet_takes_over_leaves_out_the_cpus_it_gave_to_others_since(build: Any) -> None:
    journal = {f"{GROUP}/main/cpuset.cpus": Original(CPUSet.parse("0-6"), MINE)}
    kubelet = Kubelet(cpu_manager_policy="static", pod_cpus=(PodCPUs("other", CPUSet([2, 3])),))
    decision = decide(build, build.pod("p", ""), found=journal, kubelet=kubelet)["pod/ns/p"]
    assert build.changes([decision])[f"{GROUP}/main/cpuset.cpus"] == "0-1,4-6"


# ── host applications ──

HOST = "host-latency-sensitive/nginx"


def hosts(build: Any, qos: str = "LS", **part: Any) -> dict[str, Decision]:
    """Decisions with one host application whose group is on all CPUs."""
    slo = SLO(host_applications=(HostApplication(name="nginx", qos=QoSClass(qos)),))
    usual = {"slo": slo, "host_groups": {"nginx": HOST}, "groups": {HOST: build.cgroup()}}
    return decide(build, **{**usual, **part})


def test_latency_sensitive_host_applications_are_in_the_pool(build: Any) -> None:
    decision = hosts(build, reserved=ResolvedReservation(CPUSet([0])))["host/nginx"]
    assert (decision.verdict, decision.reason) == ("set", "SharedPool")
    assert decision.changes == (CgroupChange(HOST, "cpuset.cpus", CPUSet.parse("1-7")),)


@pytest.mark.parametrize(
    ("qos", "part", "verdict", "reason"),
    [
        pytest.param("LSR", {}, "hold", "HostClassHasNoPool", id="LSR has no rule"),
        pytest.param("BE", {}, "hold", "HostClassHasNoPool", id="nor has BE"),
        pytest.param("LS", {"groups": {}}, "skip", "NoHostGroup", id="its group is not there"),
        pytest.param("LS", {"groups": {HOST: Cgroup()}}, "skip", "NoHostGroup", id="or has no cpuset controller"),
        pytest.param("LS", {}, "hold", "SharedPool", id="it is where it belongs"),
        pytest.param(
            "LS", {"reserved": ResolvedReservation(CPUSet.parse("0-7"))}, "hold", "EmptyPool", id="the pool is empty"
        ),
    ],
)
def test_host_applications_that_stay(build: Any, qos: str, part: dict[str, Any], verdict: str, reason: str) -> None:
    decision = hosts(build, qos, **part)["host/nginx"]
    assert (decision.verdict, decision.reason, decision.changes) == (verdict, reason, ())


@pytest.mark.parametrize("left", [SLO(), SLO(host_applications=(HostApplication(name="nginx", qos=QoSClass.LSR),))])
def test_an_application_that_leaves_the_pool_leaves_its_group_as_it_was(build: Any, left: SLO) -> None:
    journal = {f"{HOST}/cpuset.cpus": Original(CPUSet.parse("0-7"), MINE)}
    groups = {HOST: build.cgroup("1-7")}
    decision = decide(build, slo=left, groups=groups, found=journal)[f"host/{HOST}"]
    assert (decision.verdict, decision.reason) == ("release", "HostLeftPool")
    assert decision.changes == (CgroupChange(HOST, "cpuset.cpus", CPUSet.parse("0-7"), gives_back=True),)


@pytest.mark.parametrize(
    "journal",
    [
        pytest.param({f"{HOST}/cpuset.cpus": Original(CPUSet([1]), MINE)}, id="still in the pool"),
        pytest.param({f"{GROUP}/main/cpuset.cpus": Original(CPUSet([1]), MINE)}, id="a pod's group"),
        pytest.param(
            {"kubepods/besteffort/cpuset.cpus": Original(CPUSet([1]), "cpuSuppress")}, id="another strategy's"
        ),
        pytest.param({"gone/cpuset.cpus": Original(CPUSet([1]), MINE)}, id="a group that is gone"),
    ],
)
def test_nothing_else_is_taken_for_left(build: Any, journal: dict[str, Original]) -> None:
    slo = SLO(host_applications=(HostApplication(name="nginx", qos=QoSClass.LS),))
    groups = {HOST: build.cgroup()}
    found = decide(build, build.pod("p", "LS"), slo=slo, host_groups={"nginx": HOST}, groups=groups, found=journal)
    assert "HostLeftPool" not in {decision.reason for decision in found.values()}
