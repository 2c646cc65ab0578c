"""Memory QoS, ranks of the scheduler, settings of the kernel and the queue of the OOM killer."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas import memory_qos as formula
from koordlite.model import keys
from koordlite.model.picture.groups import Cgroup, Original, PodGroups, Process
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.qos import CPUQOS, ClassQOS, MemoryQOS, ResourceQOS
from koordlite.model.slo.settings import SLO, HostApplication, System
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import cpu_identity, memory_qos, oom_score, system_config

BE = "kubepods/besteffort"
POD = f"{BE}/podb"
MAIN = f"{POD}/main"
GIB = 2**30


@pytest.fixture
def node(build: Any) -> Any:
    """One BE pod that requests 1 GiB of batch-memory."""

    def make(values: dict[str, int], *, annotations: dict[str, str] | None = None, **more: Any) -> Snapshot:
        amounts = {keys.BATCH_MEMORY: Quantity.of(GIB)}
        container = ContainerInfo("main", "main", True, amounts, amounts)
        pod = build.pod(
            "b", "BE", "BestEffort", requests=amounts, containers=(container,), annotations=annotations or {}
        )
        groups = ("kubepods", "kubepods/burstable", BE, POD, MAIN)
        cgroups = {group: Cgroup(values=dict(values)) for group in groups}
        whole = {"pods": (pod,), "places": {"b": PodGroups(POD, {"main": MAIN})}, "cgroups": cgroups}
        return build.snapshot(**{**whole, **more})

    return make


def changes(build: Any, strategy: Any, seen: Snapshot) -> Any:
    return build.changes(list(strategy.decide(seen, strategy.Config())))


def be(**parts: Any) -> SLO:
    return SLO(resource_qos=ResourceQOS(be_class=ClassQOS(**parts)))


# ── memory ──

MEMORY = {"memory.min": 0, "memory.low": 0, "memory.high": -1}


def test_pod_container_and_levels_are_protected_together(build: Any, node: Any) -> None:
    qos = MemoryQOS(enable=True, min_limit_percent=50, low_limit_percent=10)
    found = changes(build, memory_qos, node(MEMORY, slo=be(memory_qos=qos)))
    half = str(GIB // 2)
    assert found == {f"{g}/{f}": half for g in ("kubepods", BE, POD, MAIN) for f in ("memory.min", "memory.low")}


def test_a_class_that_is_off_gives_back_what_was_found_and_touches_nothing_else(build: Any, node: Any) -> None:
    held = {f"{POD}/memory.min": Original(7, memory_qos.NAME), f"{POD}/memory.low": Original(9, "other")}
    seen = node(MEMORY, found=held, ours=frozenset(held))
    assert changes(build, memory_qos, seen) == {f"{POD}/memory.min": "7"}


@pytest.mark.parametrize(
    ("annotation", "low"),
    [
        pytest.param(
            '{"policy": "auto", "lowLimitPercent": 25}', str(GIB // 4), id="auto works where the class is off"
        ),
        pytest.param('{"policy": "none", "lowLimitPercent": 25}', None, id="none wins over its own fields"),
        pytest.param('{"lowLimitPercent": 101}', None, id="out of range: the class holds"),
    ],
)
def test_an_annotation_speaks_for_its_pod(build: Any, node: Any, annotation: str, low: str | None) -> None:
    seen = node(MEMORY, annotations={keys.MEMORY_QOS: annotation})
    allowed = memory_qos.Config(annotations_may_enable=True)
    assert build.changes(list(memory_qos.decide(seen, allowed))).get(f"{POD}/memory.low") == low


@pytest.mark.parametrize(
    ("limit", "size"), [pytest.param(1000, 300, id="of a limit"), pytest.param(0, None, id="of no limit: says nothing")]
)
def test_page_cache_by_percent(limit: int, size: int | None) -> None:
    values = formula.page_cache(MemoryQOS(page_cache_limit_percent=30), limit=limit)
    assert values.get("memory.pagecache_limit.size") == size
    assert ("memory.pagecache_limit.enable" in values) == (size is not None)


ONE_SHOT = ContainerInfo(
    "setup", "", False, {keys.BATCH_MEMORY: Quantity.of(4 * GIB)}, {keys.BATCH_MEMORY: Quantity.of(4 * GIB)}, True, True
)


def test_init_containers_that_end_count_neither_in_batch_requests_nor_in_the_limit(build: Any, node: Any) -> None:
    qos = MemoryQOS(enable=True, min_limit_percent=50, page_cache_limit_percent=25)
    sizes = {"memory.min": 0, "memory.pagecache_limit.enable": 0, "memory.pagecache_limit.size": 0}
    seen = node(sizes, slo=be(memory_qos=qos))
    pod = msgspec.structs.replace(
        seen.pods[0],
        containers=(ONE_SHOT, *seen.pods[0].containers),
        requests={keys.BATCH_MEMORY: Quantity.of(4 * GIB)},
    )
    found = changes(build, memory_qos, dataclasses.replace(seen, pods=(pod,)))
    assert found[f"{POD}/memory.min"] == str(GIB // 2)
    assert found[f"{POD}/memory.pagecache_limit.size"] == str(GIB // 4)


def test_batch_memory_counts_for_those_who_are_labelled_best_effort(build: Any, node: Any) -> None:
    seen = node(MEMORY, slo=be(memory_qos=MemoryQOS(enable=True, min_limit_percent=50)))
    unlabelled = msgspec.structs.replace(seen.pods[0], raw_qos=QoSClass.NONE)
    assert changes(build, memory_qos, dataclasses.replace(seen, pods=(unlabelled,))) == {}


def test_files_the_kernel_lacks_are_named(node: Any) -> None:
    qos = MemoryQOS(enable=True, wmark_ratio=95)
    decisions = memory_qos.decide(node(MEMORY, slo=be(memory_qos=qos)), memory_qos.Config())
    assert [d.evidence["file"] for d in decisions if d.verdict == "skip"] == ["memory.wmark_ratio"]


SWAP = {**MEMORY, "memory.swap.max": -1}
QUARTER = MemoryQOS(enable=True, swap_max_percent=25)


def swap_of(build: Any, seen: Snapshot, config: memory_qos.Config | None = None) -> tuple[str | None, set[str]]:
    """What is written for the container, and the reasons that speak of swap."""
    decisions = list(memory_qos.decide(seen, config or memory_qos.Config()))
    reasons = {d.reason for d in decisions if "Swap" in d.reason}
    return build.changes(decisions).get(f"{MAIN}/memory.swap.max"), reasons


@pytest.mark.parametrize(
    ("qos", "present", "written", "reasons"),
    [
        pytest.param(MemoryQOS(enable=True), -1, None, set(), id="without the key swap is nobody's business here"),
        pytest.param(
            MemoryQOS(enable=False, swap_max_percent=25), -1, None, set(), id="a class without memory QoS has no bound"
        ),
        pytest.param(QUARTER, -1, str(GIB // 4), {"SwapLimit"}, id="25 % of 1 GiB where there is no limit"),
        pytest.param(QUARTER, 0, str(GIB // 4), {"SwapLimit"}, id="0 is kubelet's without LimitedSwap"),
        pytest.param(QUARTER, GIB, None, {"SwapOfOthers"}, id="a number that stood there is another's"),
        pytest.param(MemoryQOS(enable=True, swap_max_percent=0), -1, "0", {"SwapLimit"}, id="0 % takes the swap away"),
    ],
)
def test_swap_of_a_container_is_a_part_of_its_limit(
    build: Any, node: Any, *, qos: MemoryQOS, present: int, written: str | None, reasons: set[str]
) -> None:
    seen = node({**SWAP, "memory.swap.max": present}, slo=be(memory_qos=qos), swap_bytes=GIB)
    assert swap_of(build, seen) == (written, reasons)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"swap_bytes": 0}, "NoSwap", id="a node without swap"),
        pytest.param({"kubelet": Kubelet(swap_behavior="LimitedSwap")}, "SwapOfKubelet", id="kubelet divides it"),
        pytest.param({"lacks": True}, "SwapUnsupported", id="v1, or a kernel without swap"),
    ],
)
def test_where_swap_is_not_ours_one_decision_says_so_and_what_was_written_goes_back(
    build: Any, node: Any, more: dict[str, Any], reason: str
) -> None:
    values = MEMORY if more.pop("lacks", False) else {**SWAP, "memory.swap.max": 4096}
    ours = {f"{MAIN}/memory.swap.max": Original(-1, memory_qos.NAME)}
    seen = node(values, slo=be(memory_qos=QUARTER), **{"swap_bytes": GIB, "found": ours, "ours": ours, **more})
    assert swap_of(build, seen) == ("-1", {reason})
    assert [d.subject for d in memory_qos.decide(seen, memory_qos.Config()) if d.reason == reason] == ["node"]


def test_what_is_ours_is_changed_again_whatever_number_stands_there(build: Any, node: Any) -> None:
    ours = {f"{MAIN}/memory.swap.max": Original(0, memory_qos.NAME)}
    seen = node({**SWAP, "memory.swap.max": GIB}, slo=be(memory_qos=QUARTER), swap_bytes=GIB, found=ours, ours=ours)
    assert swap_of(build, seen) == (str(GIB // 4), {"SwapLimit"})


@pytest.mark.parametrize("may_enable", [False, True])
@pytest.mark.parametrize(
    ("annotation", "percent"),
    [
        pytest.param('{"swapMaxPercent": 10}', 10, id="less than the class"),
        pytest.param('{"swapMaxPercent": 80}', 25, id="more than the class"),
        pytest.param('{"policy": "none"}', 25, id="no memory QoS"),
        pytest.param('{"policy": "none", "swapMaxPercent": 80}', 25, id="no memory QoS and a claim"),
        pytest.param('{"enable": false, "swapMaxPercent": 10}', 10, id="off, but less"),
        pytest.param('{"policy": "auto"}', 25, id="Koordinator's own settings name no swap"),
        pytest.param('{"swapMaxPercent": 101}', 25, id="no percentage"),
        pytest.param("{", 25, id="no JSON"),
    ],
)
def test_an_annotation_only_lowers_swap(
    build: Any, node: Any, annotation: str, percent: int, *, may_enable: bool
) -> None:
    notes = {keys.MEMORY_QOS: annotation}
    seen = node(SWAP, slo=be(memory_qos=QUARTER), swap_bytes=GIB, annotations=notes)
    written, _ = swap_of(build, seen, memory_qos.Config(annotations_may_enable=may_enable))
    assert written == str(GIB * percent // 100 // 4096 * 4096)
    clipped = [
        d.evidence["clipped"]
        for d in memory_qos.decide(seen, memory_qos.Config())
        if "Swap" in d.reason and "clipped" in d.evidence
    ]
    assert clipped == (["swapMaxPercent 80 → 25"] if "80" in annotation and "none" not in annotation else [])


def test_an_annotation_gives_no_swap_where_the_class_has_no_bound(build: Any, node: Any) -> None:
    notes = {keys.MEMORY_QOS: '{"swapMaxPercent": 80}'}
    seen = node(SWAP, slo=be(memory_qos=MemoryQOS(enable=True)), swap_bytes=GIB, annotations=notes)
    assert swap_of(build, seen) == (None, set())


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=6),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_children_never_have_more_than_their_parent(requests: list[int], least: int, low: int, high: int) -> None:
    qos = MemoryQOS(min_limit_percent=least, low_limit_percent=low, throttling_percent=high)
    whole = formula.protection(qos, sum(requests))
    parts = formula.sums(formula.protection(qos, request) for request in requests)
    assert all(parts[field] <= whole[field] for field in ("memory.min", "memory.low"))
    begin = formula.throttling(qos, request=requests[0], limit=2**41, allocatable=0)
    kept = formula.protection(qos, requests[0])["memory.min"]
    assert begin == -1 or begin >= kept or (begin == 0 and kept < formula.PAGE)


def test_what_begins_within_the_first_page_begins_at_once() -> None:
    qos = MemoryQOS(min_limit_percent=100, throttling_percent=50)
    assert formula.throttling(qos, request=100, limit=4000, allocatable=0) == 0


# ── scheduler ──


def test_group_identity_where_the_kernel_has_it(build: Any, node: Any) -> None:
    slo = be(cpu_qos=CPUQOS(enable=True, group_identity=-1))
    found = changes(build, cpu_identity, node({"cpu.bvt_warp_ns": 0, "cpu.idle": 0}, slo=slo))
    assert found == {f"{BE}/cpu.bvt_warp_ns": "-1", f"{POD}/cpu.bvt_warp_ns": "-1"}


def test_mainline_makes_pods_idle_and_leaves_kubelet_s_groups_alone(build: Any, node: Any) -> None:
    slo = be(cpu_qos=CPUQOS(enable=True, group_identity=-1))
    assert changes(build, cpu_identity, node({"cpu.idle": 0}, slo=slo)) == {f"{POD}/cpu.idle": "1"}


def test_no_longer_idle_pods_get_their_shares_back(build: Any, node: Any) -> None:
    held = {f"{POD}/cpu.idle": Original(0, cpu_identity.NAME), f"{POD}/cpu.shares": Original(512, cpu_identity.NAME)}
    found = changes(build, cpu_identity, node({"cpu.idle": 1}, found=held))
    assert found == {f"{POD}/cpu.idle": "0", f"{POD}/cpu.shares": "512"}


def ls_pod(build: Any, text: str = "", qos: str = "LS", kube: str = "Burstable") -> dict[str, Any]:
    notes = {keys.CPU_QOS: text} if text else {}
    pod = build.pod("b", qos, kube, annotations=notes)
    group = "kubepods/burstable/podb" if kube == "Burstable" else "kubepods/podb"
    cgroups = {name: Cgroup(values={"cpu.bvt_warp_ns": 0}) for name in ("kubepods", "kubepods/burstable", BE, group)}
    return {"pods": (pod,), "places": {"b": PodGroups(group, {})}, "cgroups": cgroups}


LS_IDENTITY = CPUQOS(enable=True, group_identity=2)


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        pytest.param("", "2", id="that of the class"),
        pytest.param('{"enable":true,"groupIdentity":-1}', "-1", id="a pod may give way"),
        pytest.param('{"enable":true}', "2", id="without a number the class's"),
        pytest.param('{"groupIdentity":-1}', None, id="not enabled is none: it stays 0"),
        pytest.param('{"enable":false,"groupIdentity":2}', None, id="switched off"),
        pytest.param('{"enable":true,"groupIdentity":7}', "2", id="out of range changes nothing"),
        pytest.param("{", "2", id="no JSON changes nothing"),
    ],
)
def test_an_ls_pod_may_lower_its_identity(build: Any, node: Any, text: str, identity: str | None) -> None:
    slo = SLO(resource_qos=ResourceQOS(ls_class=ClassQOS(cpu_qos=LS_IDENTITY)))
    found = changes(build, cpu_identity, build.snapshot(slo=slo, **ls_pod(build, text)))
    assert found.get("kubepods/burstable/podb/cpu.bvt_warp_ns") == identity


@given(st.text(max_size=30) | st.integers().map(lambda n: f'{{"enable":true,"groupIdentity":{n}}}'))
def test_no_annotation_raises_an_identity(text: str) -> None:
    of_class = CPUQOS(enable=True, group_identity=1)
    asked, _ = pod_overrides.cpu_qos(
        Pod(namespace="n", name="p", uid="u", raw_qos=QoSClass.LS, annotations={keys.CPU_QOS: text}), of_class
    )
    assert -1 <= asked.group_identity <= 1


@pytest.mark.parametrize(("qos", "identity"), [("LSE", "2"), ("LSR", "2"), ("LS", "1")])
def test_lse_has_the_identity_of_lsr(build: Any, qos: str, identity: str) -> None:
    ls = ClassQOS(cpu_qos=CPUQOS(enable=True, group_identity=1))
    slo = SLO(resource_qos=ResourceQOS(lsr_class=ClassQOS(cpu_qos=LS_IDENTITY), ls_class=ls))
    seen = build.snapshot(slo=slo, **ls_pod(build, qos=qos, kube="Guaranteed"))
    assert changes(build, cpu_identity, seen)["kubepods/podb/cpu.bvt_warp_ns"] == identity


def test_an_annotation_of_another_class_is_refused_in_words(build: Any) -> None:
    slo = be(cpu_qos=CPUQOS(enable=True, group_identity=-1))
    seen = build.snapshot(slo=slo, **ls_pod(build, '{"enable":true,"groupIdentity":2}', qos="BE"))
    decision = next(d for d in cpu_identity.decide(seen, cpu_identity.Config()) if d.subject.startswith("pod/"))
    assert (decision.verdict, decision.reason) == ("refuse", "BadCPUQOSAnnotation")
    assert [change.describe() for change in decision.changes] == ["-1"]


def test_host_applications_have_the_identity_of_their_class(build: Any, node: Any) -> None:
    apps = tuple(HostApplication(name=name, qos=qos) for name, qos in (("yarn", QoSClass.BE), ("nginx", QoSClass.LS)))
    groups = {"yarn": "host-best-effort/yarn", "nginx": "host-latency-sensitive/nginx", "gone": "x"}
    slo = msgspec.structs.replace(be(cpu_qos=CPUQOS(enable=True, group_identity=-1)), host_applications=apps)
    seen = node({"cpu.bvt_warp_ns": 0}, slo=slo, host_groups=groups)
    cgroups = {**seen.cgroups, groups["yarn"]: Cgroup(values={"cpu.bvt_warp_ns": 0})}
    found = changes(build, cpu_identity, dataclasses.replace(seen, cgroups=cgroups))
    assert found["host-best-effort/yarn/cpu.bvt_warp_ns"] == "-1"
    assert not any("nginx" in place for place in found)


SWITCH = "kernel.sched_group_identity_enabled"


@pytest.mark.parametrize(
    ("case", "written"),
    [
        pytest.param((True, "0", None, None), "1", id="switched on with the classes"),
        pytest.param((True, "1", None, None), None, id="it is on"),
        pytest.param((True, None, None, None), None, id="an older kernel has no switch"),
        pytest.param((True, "0", 0, None), None, id="system-config has the last word"),
        pytest.param((False, "1", None, 0), "0", id="given back with the classes"),
        pytest.param((False, "0", None, None), None, id="not ours"),
    ],
)
def test_the_switch_of_the_kernel(build: Any, node: Any, case: tuple[Any, ...], written: str | None) -> None:
    enabled, present, named, found = case
    slo = be(cpu_qos=CPUQOS(enable=enabled, group_identity=-1 if enabled else 0))
    slo = msgspec.structs.replace(slo, system=System(sched_group_identity_enabled=named))
    held = {} if found is None else {f"system/{SWITCH}": Original(found, cpu_identity.NAME)}
    system = {SWITCH: present} if present else {}
    seen = node({"cpu.bvt_warp_ns": -1 if enabled else 0}, slo=slo, found=held, system=system)
    assert changes(build, cpu_identity, seen).get(f"system/{SWITCH}") == written


# ── settings ──


def test_settings_are_written_where_they_differ_and_given_back(build: Any, node: Any) -> None:
    slo = SLO(system=System(watermark_scale_factor=99, memcg_reap_back_ground=1, sched_features={"START_DEBIT": False}))
    system = {"vm.watermark_scale_factor": "10", "sched_features": "START_DEBIT NO_NEXT_BUDDY"}
    held = {"system/vm.min_free_kbytes": Original(67584, system_config.NAME)}
    seen = node({}, slo=slo, system=system, found=held)
    assert changes(build, system_config, seen) == {
        "system/vm.watermark_scale_factor": "99",
        "system/sched_features/START_DEBIT": "NO_START_DEBIT",
        "system/vm.min_free_kbytes": "67584",
    }
    skipped = [d for d in system_config.decide(seen, system_config.Config()) if d.verdict == "skip"]
    assert [d.evidence["file"] for d in skipped] == ["memcg_reaper.reap_background"]


def test_a_value_the_kernel_should_not_have_is_refused(node: Any) -> None:
    seen = node({}, slo=SLO(system=System(watermark_scale_factor=5)), system={"vm.watermark_scale_factor": "10"})
    (decision,) = system_config.decide(seen, system_config.Config())
    assert (decision.verdict, decision.reason, decision.changes) == ("refuse", "SettingOutOfRange", ())


# ── OOM killer ──


@pytest.mark.parametrize(
    ("annotations", "value"),
    [
        pytest.param({keys.OOM_SCORE_ADJ: "300"}, "300", id="the pod's number"),
        pytest.param(
            {keys.OOM_SCORE_ADJ: "300", keys.OOM_SCORE_ADJ_SPEC: '{"main": -500}'},
            "-500",
            id="the container's own first",
        ),
        pytest.param({keys.OOM_SCORE_ADJ: "2000"}, None, id="out of range is refused"),
        pytest.param({keys.OOM_SCORE_ADJ_SPEC: '{"other": 1}'}, None, id="another container's number is not ours"),
    ],
)
def test_processes_move_as_annotations_ask(build: Any, node: Any, annotations: Any, value: str | None) -> None:
    seen = node({}, annotations=annotations, oom_scores={MAIN: (Process(7, 70, 1000),)})
    allowed = oom_score.Config(best_effort_floor=-1000)
    found = build.changes(list(oom_score.decide(seen, allowed)))
    assert found == ({} if value is None else {"oom_score_adj/7/70": value})


def test_without_the_annotation_what_was_found_comes_back(build: Any, node: Any) -> None:
    held = {"oom_score_adj/7/70": Original(1000, oom_score.NAME)}
    seen = node({}, oom_scores={MAIN: (Process(7, 70, 300), Process(8, 80, 5))}, found=held)
    assert changes(build, oom_score, dataclasses.replace(seen)) == {"oom_score_adj/7/70": "1000"}


@pytest.mark.parametrize("page", [4096, 65536])
def test_amounts_are_written_as_the_kernel_keeps_them_so_that_they_are_written_once(
    build: Any, node: Any, page: int
) -> None:
    qos = MemoryQOS(enable=True, min_limit_percent=33)
    seen = node(MEMORY, slo=be(memory_qos=qos), page_bytes=page)
    found = changes(build, memory_qos, seen)
    kept = GIB * 33 // 100 // page * page
    assert found[f"{POD}/memory.min"] == found[f"{BE}/memory.min"] == str(kept)
    written = {**MEMORY, "memory.min": kept}
    assert changes(build, memory_qos, node(written, slo=be(memory_qos=qos), page_bytes=page)) == {}
