"""When containers may go beyond their CPU limit, and what stands there afterwards."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import burst
from koordlite.formulas.cpu.burst import Ledger
from koordlite.model import keys
from koordlite.model.picture.groups import Cgroup, Original, PodGroups
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.values import ContainerInfo
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, CPUBurst
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import cpu_burst

POD = "kubepods/burstable/podweb"
A, B = f"{POD}/a", f"{POD}/b"


@pytest.fixture
def web(build: Any) -> Any:
    """A pod of two containers with limits of 2 and 3 CPUs on a quiet mainline node."""

    def make(quotas: dict[str, int], *, throttled: float = 0.5, node_milli: int | None = 0, **more: Any) -> Snapshot:
        limits = {"a": 2, "b": 3}
        containers = tuple(ContainerInfo(n, n, True, {}, {"cpu": Quantity.of(cpu)}) for n, cpu in limits.items())
        pod = build.pod("web", "LS", containers=containers, annotations=more.pop("annotations", {}))
        values = {"cpu.burst": 0, **more.pop("values", {})}
        cgroups = {group: Cgroup(quota_us=quota, values=values) for group, quota in quotas.items()}
        window = Usage(None if node_milli is None else Use(node_milli, 0), {}, {})
        usage = msgspec.structs.replace(window, throttled={A: throttled, B: throttled})
        quiet = {
            "slo": SLO(cpu_burst=CPUBurst(policy="auto")),
            "windows": {cpu_burst.WINDOW_SECONDS: window},
            "places": {"web": PodGroups(POD, {"a": A, "b": B})},
        }
        whole = {"pods": (pod,), "cgroups": {"kubepods": Cgroup(values=values), **cgroups}, "usage": usage}
        return build.snapshot(**{**quiet, **whole, **more})

    return make


def decide(seen: Snapshot) -> list[Any]:
    return list(cpu_burst.decide(seen, cpu_burst.Config()))


BASE = {POD: 500_000, A: 200_000, B: 300_000}
RAISED = {POD: 600_000, A: 240_000, B: 360_000}
OURS = {f"{group}/cpu.quota": Original(quota, cpu_burst.NAME) for group, quota in BASE.items()}


@pytest.mark.parametrize(
    ("present", "now", "wanted"),
    [
        pytest.param(BASE, {}, RAISED, id="throttled on an idle node: a fifth more each"),
        pytest.param(BASE, {"throttled": 0.0}, {}, id="nobody is throttled: nothing moves"),
        pytest.param(BASE, {"node_milli": 3900}, {}, id="above 90 % of the threshold nothing grows"),
        pytest.param(BASE, {"node_milli": None}, {}, id="a node without samples grows nothing"),
        pytest.param(RAISED, {"node_milli": 8000}, BASE, id="a full node goes down, but not below the limits"),
    ],
)
def test_quotas_follow_throttling_and_the_node(build: Any, web: Any, present: Any, now: Any, wanted: Any) -> None:
    found = OURS if present is RAISED else {}
    seen = web(present, found=found, ours=frozenset(found), **now)
    changes = {p: v for p, v in build.changes(decide(seen)).items() if p.endswith("quota")}
    assert changes == {f"{group}/cpu.quota": str(quota) for group, quota in wanted.items()}


def test_burst_stays_within_the_quota_on_mainline_and_beyond_it_on_anolis(build: Any, web: Any) -> None:
    mainline = build.changes(decide(web(BASE, throttled=0.0)))
    anolis = build.changes(decide(web(BASE, throttled=0.0, values={"cpu.bvt_warp_ns": 0})))
    assert (mainline[f"{A}/cpu.burst"], mainline[f"{POD}/cpu.burst"]) == ("200000", "500000")
    assert (anolis[f"{A}/cpu.burst"], anolis[f"{POD}/cpu.burst"]) == ("2000000", "5000000")


@pytest.mark.parametrize(
    ("limit_milli", "more", "burst_us"),
    [
        pytest.param(5, {}, 5_000, id="the floor of a quota is no part of the limit"),
        pytest.param(29, {"percent": 500}, 14_499, id="doubles are cut off, as in Koordinator"),
        pytest.param(0, {}, 0, id="no limit, no burst"),
        pytest.param(20_000_000, {}, 100_000_000, id="100 s at most"),
        pytest.param(2_000, {"ratio": 1.25}, 1_600_000, id="a limit is worth less time on a faster CPU"),
        pytest.param(2_000, {"period_us": 50_000}, 1_000_000, id="by the period of the group"),
        pytest.param(5, {"beyond_quota": False, "quota_us": 1_000}, 1_000, id="within the quota"),
    ],
)
def test_burst_is_the_limit_by_the_percentage(limit_milli: int, more: Any, burst_us: int) -> None:
    usual = {"percent": 1000, "quota_us": burst.UNLIMITED, "beyond_quota": True}
    assert burst.kernel_burst(limit_milli=limit_milli, **{**usual, **more}) == burst_us


def test_a_kernel_without_burst_is_told_and_quotas_still_grow(web: Any) -> None:
    seen = web(BASE)
    bare = {group: msgspec.structs.replace(cgroup, values={}) for group, cgroup in seen.cgroups.items()}
    decisions = decide(dataclasses.replace(seen, cgroups=bare))
    assert [d.evidence["file"] for d in decisions if d.reason == "UnsupportedByKernel"] == ["cpu.burst"]
    assert {c.field for d in decisions for c in d.changes} == {"cpu.quota"}


def test_switched_off_what_was_found_comes_back_but_not_below_the_limit(web: Any) -> None:
    found = {**OURS, f"{A}/cpu.quota": Original(100_000, cpu_burst.NAME)}
    seen = web(RAISED, slo=SLO(), found=found, ours=frozenset(found))
    (released, _) = decide(seen)
    assert released.verdict == "release" and all(change.gives_back for change in released.changes)
    assert {c.group: c.value for c in released.changes} == BASE


def test_a_pod_with_a_limit_of_its_own_keeps_it(build: Any, web: Any) -> None:
    changes = build.changes(decide(web({**BASE, POD: 250_000})))
    assert f"{POD}/cpu.quota" not in changes


def test_what_is_worth_more_gets_less_quota(build: Any, web: Any) -> None:
    seen = web(RAISED, node_milli=8000, found=OURS, ours=frozenset(OURS))
    seen = dataclasses.replace(seen, notes=msgspec.structs.replace(seen.notes, cpu_normalization=1.25))
    assert build.changes(decide(seen))[f"{A}/cpu.quota"] == "192000"


def test_an_annotation_that_cannot_be_used_is_told_and_the_node_s_policy_holds(web: Any) -> None:
    seen = web(BASE, annotations={keys.CPU_BURST: '{"policy": 3}'})
    pod, *_ = decide(seen)
    assert (pod.verdict, pod.reason, pod.evidence["annotation"]) == ("refuse", "BadBurstAnnotation", keys.CPU_BURST)
    assert pod.changes == decide(web(BASE))[0].changes != ()


def test_a_pod_may_do_without_a_burst(web: Any) -> None:
    seen = web(BASE, annotations={keys.CPU_BURST: '{"cpuBurstPercent": 0}'})
    pod, *_ = decide(seen)
    assert (pod.reason, [change for change in pod.changes if change.field == "cpu.burst"]) == ("ThrottledBurst", [])


def test_a_best_effort_pod_is_left_to_suppression(build: Any, web: Any) -> None:
    seen = web(BASE)
    seen = dataclasses.replace(seen, pods=(build.pod("web", "BE", containers=seen.pods[0].containers),))
    assert build.changes(decide(seen)) == {}


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()), max_size=30))
def test_whatever_writes_are_lost_the_pod_gets_what_its_containers_need(
    build: Any, rounds: list[tuple[bool, bool, bool, bool]]
) -> None:
    """Each round: whether the node is full, and which of pod, a, b takes its write."""
    held, found = dict(BASE), {}
    for full, *taken in rounds:
        seen = picture(build, held, found, full=full)
        wanted = {c.group: c for d in decide(seen) for c in d.changes if c.field == "cpu.quota"}
        after = {group: wanted[group].value if group in wanted else held[group] for group in BASE}
        assert all(after[group] >= BASE[group] for group in (A, B))
        assert after[POD] >= after[A] + after[B]
        if f"{POD}/cpu.quota" in found:
            assert after[POD] == max(after[A] + after[B], BASE[POD])
        # The journal has the place before the write, whatever becomes of the write.
        found = {**found, **{c.place: Original(BASE[group], cpu_burst.NAME) for group, c in wanted.items()}}
        for group, took in zip((POD, A, B), taken, strict=True):
            held[group] = after[group] if took else held[group]


def picture(build: Any, held: dict[str, int], found: dict[str, Original], *, full: bool) -> Snapshot:
    containers = [ContainerInfo(n, n, True, {}, {"cpu": Quantity.of(cpu)}) for n, cpu in (("a", 2), ("b", 3))]
    window = Usage(Use(8000 if full else 0, 0), {}, {}, throttled={A: 0.5, B: 0.5})
    return build.snapshot(
        slo=SLO(cpu_burst=CPUBurst(policy="auto")),
        pods=(build.pod("web", "LS", containers=tuple(containers)),),
        places={"web": PodGroups(POD, {"a": A, "b": B})},
        cgroups={group: Cgroup(quota_us=quota) for group, quota in held.items()},
        usage=window,
        windows={cpu_burst.WINDOW_SECONDS: window},
        found=found,
        ours=frozenset(found),
    )


@given(
    st.lists(st.tuples(st.integers(0, 500), st.floats(0, 100)), max_size=50), st.integers(0, 600), st.integers(100, 500)
)
def test_tokens_stay_within_the_capacity(uses: list[tuple[int, float]], period: int, percent: int) -> None:
    held = burst.first_tokens("c", period_seconds=period, percent=percent, time=0.0)
    now = 0.0
    for use, seconds in uses:
        now += seconds
        held = burst.spend(held, usage_percent=use, now=now)
        assert -held.capacity <= held.left <= held.capacity


def test_tokens_outlive_the_tick_and_end_with_their_container() -> None:
    ledger = Ledger({}, now=0.0)
    ledger.allows("g", period_seconds=100, percent=200, usage_percent=0)
    later = Ledger(ledger.tokens, now=10.0)
    later.allows("g", period_seconds=100, percent=200, usage_percent=40)
    assert later.tokens["g"].left == ledger.tokens["g"].left + 60 * 10
    assert not Ledger(ledger.tokens, now=201.0).tokens


@given(
    limit=st.integers(1, 64_000),
    ratio=st.floats(1.0, 3.0),
    current=st.integers(-1, 20_000_000),
    found=st.one_of(st.just(-1), st.integers(1000, 20_000_000)),
    percent=st.integers(0, 1000),
    policy=st.sampled_from(["auto", "cfsQuotaBurstOnly", "cpuBurstOnly", "none"]),
    throttled=st.sampled_from([None, 0.0, 0.7]),
    node_milli=st.sampled_from([None, 0, 3900, 8000]),
    ours=st.booleans(),
)
def test_no_quota_that_is_written_is_below_the_limit_of_its_container(build: Any, **case: Any) -> None:
    base = burst.base_quota(limit_milli=case["limit"], ratio=case["ratio"])
    container = ContainerInfo("a", "a", True, {}, {"cpu": Quantity.parse(f"{case['limit']}m")})
    node = case["node_milli"]
    window = Usage(None if node is None else Use(node, 0), {}, {})
    throttled = {} if case["throttled"] is None else {A: case["throttled"]}
    held = {f"{group}/cpu.quota": Original(case["found"], cpu_burst.NAME) for group in (POD, A)} if case["ours"] else {}
    seen = build.snapshot(
        slo=SLO(cpu_burst=CPUBurst(policy=case["policy"], cfs_quota_burst_percent=case["percent"])),
        notes=NodeNotes(cpu_normalization=case["ratio"]),
        pods=(build.pod("web", "LS", containers=(container,)),),
        places={"web": PodGroups(POD, {"a": A})},
        cgroups={group: Cgroup(quota_us=case["current"]) for group in (POD, A)},
        usage=msgspec.structs.replace(window, throttled=throttled),
        windows={cpu_burst.WINDOW_SECONDS: window},
        found=held,
        ours=frozenset(held),
    )
    written = {c.group: c.value for d in decide(seen) for c in d.changes if c.field == "cpu.quota"}
    assert all(value == -1 or value >= base for value in written.values())
    if POD in written and written[POD] != -1:
        assert written[POD] >= written.get(A, 0)
