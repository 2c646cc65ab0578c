"""Every metric of Koordinator's agent that applies here is there, under its name and with its labels and no others.

Koordinator's table has more: those that need what this agent has not are listed below with the reason.
"""

from __future__ import annotations

import dataclasses
import pathlib

import msgspec
import pytest
from emulated import Emulated
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from reported import tick_of, tick_with

from koordlite import changes
from koordlite.changes.core_cookie import CoreCookieChange
from koordlite.kube.client.answers import ApiError, RequestTimes
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import CoreSched, Original, Process, TaskCookie
from koordlite.model.picture.usage import HardwareCounts, NumaUse, Prediction, Pressure, Stall, Use
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.slo.settings import HostApplication
from koordlite.model.status import AppliedStep
from koordlite.report.metrics.collector import KubeletMetrics, Metrics
from koordlite.report.tick import Tick

POD = {"pod_name", "pod_namespace", "pod_uid"}
CONTAINER = POD | {"container_name", "container_id"}
AMOUNT = {"resource", "unit"}
PRESSURE = {"psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported"}
NAMES: dict[str, set[str]] = {
    "start_time": set(),
    "collect_node_cpu_info_status": {"status"},
    "collect_node_numa_info_status": {"status"},
    "pod_eviction": {"reason"},
    "pod_eviction_detail": {"pod_namespace", "pod_name", "reason"},
    "node_used_cpu_cores": set(),
    "node_used_memory_bytes": set(),
    "be_suppress_cpu_cores": {"type"},
    "be_suppress_ls_used_cpu_cores": set(),
    "be_suppress_be_used_cpu_cores": set(),
    "container_scaled_cfs_burst_us": {"pod_namespace", "pod_name", "container_id", "container_name"},
    "container_scaled_cfs_quota_us": {"pod_namespace", "pod_name", "container_id", "container_name"},
    "cpuset_share_pool_cpu_cores": set(),
    "cpuset_be_share_pool_cpu_cores": set(),
    "cpuset_share_pool_info": {"cpu"},
    "cpuset_be_share_pool_info": {"cpu"},
    "host_application_resource_usage": {"host_application_name", "resource", "priority_class", "qos"},
    "node_metric_node_usage": {*AMOUNT},
    "node_metric_system_usage": {*AMOUNT},
    "node_metric_numa_node_usage": {*AMOUNT, "numa_node_id"},
    "node_metric_numa_system_usage": {*AMOUNT, "numa_node_id"},
    "container_oom_score_adj": {*POD, "container_name"},
    "container_core_sched_cookie": {*CONTAINER, "core_sched_group", "core_sched_cookie"},
    "core_sched_cookie_manage_status": {"core_sched_group", "status"},
    "resource_update_duration_milliseconds": {"type", "status"},
    "kubelet_request_duration_seconds": {"verb", "path", "code"},
    "node_resource_allocatable": {*AMOUNT},
    "node_predicted_resource_reclaimable": {*AMOUNT, "predictor"},
    "node_predicted_resource_peak": {*AMOUNT, "predictor"},
    "node_priority_resource_reclaimable": {*AMOUNT, "priority"},
    "node_resource_priority_reclaimable_status": {"priority"},
    "container_resource_requests": {*CONTAINER, *AMOUNT},
    "container_resource_limits": {*CONTAINER, *AMOUNT},
    "container_cpi": {*CONTAINER, "cpi_field"},
    "container_psi": {*CONTAINER, *PRESSURE},
    "pod_psi": {*POD, *PRESSURE},
    "resctrl_llc_occupancy": {"cache_id", "qos"},
    "resctrl_memory_bandwidth": {"cache_id", "qos", "mb_type"},
}
"""Labels by name, without the prefix `koordlet_` and the label `node`, which all have."""
NOT_HERE = {
    "collect_node_local_storage_info_status": "disks are looked at only while settings name them",
    "runtime_hook_invoked_duration_milliseconds": "there are no runtime hooks",
    "runtime_hook_reconciler_invoked_duration_milliseconds": "there are no runtime hooks",
}
COOKIE = changes.parse(f"core_sched_cookie/default/{0xC0:016x}")
APP = HostApplication(name="nginx", priority=PriorityClass.PROD, qos=QoSClass.LS)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels by name, as a scrape of an agent at work gives them."""
    node = Emulated("intel-2s-ht", tmp_path_factory.mktemp("node"))
    node.pod("web", "LS", "8000m")
    node.pod("crunch", "BE", "greedy", memory="1Gi")
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 25)[-1]
    metrics = Metrics(started=1.0, per_cpu=True)
    times = RequestTimes()
    with times.measured("GET", "/pods"):
        pass
    metrics.registry.register(KubeletMetrics(times.all))
    metrics.observe_tick(_with_all_that_happens(tick))
    return scraped(metrics.registry)


def _with_all_that_happens(tick: Tick) -> Tick:
    """The tick with what takes a machine, settings or bad luck of its own: burst, OOM scores, waiting, an eviction."""
    seen = tick.snapshot
    assert seen is not None
    pod = next(pod for pod in seen.pods if pod.name == "crunch")
    place = seen.places[pod.uid]
    group = place.containers["main"]
    stall, waiting = Stall(1.5, 1.0, 0.5, 1_000_000), (place.group, group)
    burst = msgspec.structs.replace(seen.cgroups[group], quota_us=120_000, values={"cpu.burst": 5000})
    batch = {"kubernetes.io/batch-cpu": pod.requests["kubernetes.io/batch-cpu"]}
    limited = tuple(msgspec.structs.replace(container, limits=batch) for container in pod.containers)
    pods = tuple(msgspec.structs.replace(p, containers=limited) if p is pod else p for p in seen.pods)
    host = msgspec.structs.replace(seen.usage, host_apps={"nginx": Use(1500, 1 << 30)})
    picture = dataclasses.replace(
        seen,
        pods=pods,
        prediction=Prediction(pods={}, prod=Use(1, 1), system=Use(1, 1), known_seconds=1.0, margin_percent=10),
        slo=msgspec.structs.replace(seen.slo, host_applications=(APP,)),
        usage=host,
        ours=seen.ours | {changes.parse(f"{group}/cpu.quota"), changes.parse(f"{group}/cpu.burst")},
        cgroups={**seen.cgroups, group: burst},
        oom_scores={group: (Process(7, 100, 900), Process(9, 101, 900))},
        pressure={name: {"cpu": Pressure(stall, stall), "memory": Pressure(stall, None)} for name in waiting},
        core_sched=CoreSched("", {group: (TaskCookie(7, 0xC0), TaskCookie(9, 0))}),
        found={**seen.found, COOKIE: Original(0xC0, "coreSched")},
        hardware_counts={group: HardwareCounts(cycles=3_000, instructions=2_000)},
        numa_use={0: NumaUse(node=Use(1500, 1 << 30), system_memory=1 << 20)},
    )
    evicted = AppliedStep(changes.parse("pod/ns/crunch/uid-crunch"), "evict")
    written = AppliedStep(changes.parse(f"{group}/cpu.quota"), "1000")
    joined = CoreCookieChange(group, "default")
    decided = Decision(f"pod/{pod.key}", "set", "CoreSchedGroup", changes=(joined,), strategy="coreSched")
    applied = (*tick.applied, written, evicted, AppliedStep(joined.place, "1 processes"))
    return tick_with(tick, snapshot=picture, applied=applied, decisions=(*tick.decisions, decided))


def scraped(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Labels by name; those of the exposition format itself are left out."""
    series: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            name = family.name if family.type in ("histogram", "counter") else sample.name
            series.setdefault(name, set()).update(set(sample.labels) - {"le"})
    return series


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_of_koordinator_has_its_name_and_labels(found: dict[str, set[str]], name: str) -> None:
    assert found.get(f"koordlet_{name}") == NAMES[name] | {"node"}


def test_nothing_else_has_koordinators_prefix(found: dict[str, set[str]]) -> None:
    assert {name for name in found if name.startswith("koordlet_")} == {f"koordlet_{name}" for name in NAMES}
    assert not NAMES.keys() & NOT_HERE.keys()


def test_all_others_are_our_own(found: dict[str, set[str]]) -> None:
    assert {name.split("_")[0] for name in found} == {"koordlet", "koordlite"}


def test_answers_of_kubelet_are_counted_by_code_and_time() -> None:
    times = RequestTimes(iter([0.0, 0.003, 1.0, 1.5]).__next__)
    with times.measured("GET", "/pods"):
        pass
    with pytest.raises(ApiError), times.measured("GET", "/pods"):
        raise ApiError(403, "Forbidden", "no")
    assert {code: held.counts[-1] for (_, _, code), held in times.all().items()} == {"200": 1, "403": 1}
    assert [held.counts[1] for held in times.all().values()] == [1, 0], "3 ms is within 4 ms, half a second is not"


def test_an_evicted_pods_own_series_goes_after_five_minutes(tmp_path: pathlib.Path) -> None:
    metrics = Metrics()
    step = AppliedStep(changes.parse("pod/ns/crunch/uid"), "evict")
    metrics.observe_tick(tick_of(time=0.0, node="n", applied=(step,)))
    assert "koordlet_pod_eviction_detail" in scraped(metrics.registry)
    metrics.observe_tick(tick_of(time=301.0, node="n"))
    left = scraped(metrics.registry)
    assert "koordlet_pod_eviction_detail" not in left
    assert "koordlet_pod_eviction" in left


def test_longer_means_of_waiting_are_there_where_they_are_asked_for(tmp_path: pathlib.Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("web", "LS", "1")
    tick = node.ticks(node.agent(None), 2)[-1]
    for longer, expected in ((False, {"avg10"}), (True, {"avg10", "avg60", "avg300"})):
        metrics = Metrics(longer_psi=longer)
        metrics.observe_tick(tick)
        family = next(f for f in metrics.registry.collect() if f.name == "koordlet_pod_psi")
        assert {sample.labels["psi_precision"] for sample in family.samples} == expected


def test_what_the_system_uses_on_a_numa_node_is_divided_as_all_use_is(tmp_path: pathlib.Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("web", "LS", "1")
    tick = node.ticks(node.agent(None), 3)[-1]
    seen = tick.snapshot
    assert seen is not None
    uses = {0: NumaUse(node=Use(3000, 8), system_memory=5), 1: NumaUse(node=Use(1000, 4), system_memory=None)}
    average = msgspec.structs.replace(seen.average, node=Use(4000, 12), pods={}, host_apps={})
    metrics = Metrics()
    metrics.observe_tick(tick_with(tick, snapshot=dataclasses.replace(seen, numa_use=uses, average=average)))
    found = {
        (f.name.removeprefix("koordlet_node_metric_numa_"), s.labels["numa_node_id"], s.labels["resource"]): s.value
        for f in metrics.registry.collect()
        for s in f.samples
        if "metric_numa" in f.name
    }
    assert found == {
        ("node_usage", "0", "cpu"): 3.0,
        ("node_usage", "0", "memory"): 8,
        ("node_usage", "1", "cpu"): 1.0,
        ("node_usage", "1", "memory"): 4,
        ("system_usage", "0", "cpu"): 3.0,
        ("system_usage", "0", "memory"): 5,
    }
