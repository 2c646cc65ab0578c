"""Evictions for CPU and memory: configuration, amounts, orders, whole rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from koordlite.apply.evictions import Evictions
from koordlite.formulas import evict_config, evict_order, evict_release, evict_walk
from koordlite.formulas.evict_walk import Task
from koordlite.model import eviction, keys
from koordlite.model.decision import ClusterChange, Decision, EvictPod
from koordlite.model.errors import EvictionRefused
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.pod import ContainerInfo, Pod
from koordlite.model.qos import QoSClass
from koordlite.model.quantity import Quantity
from koordlite.model.resctrl import Resctrl
from koordlite.model.slo import SLO, Threshold
from koordlite.model.snapshot import Kubelet, Layout, Published, Snapshot, Usage, Use
from koordlite.model.strict import camel
from koordlite.model.topology import Topology
from koordlite.ports import ClusterView
from koordlite.strategies import cpu_evict, memory_evict
from tests.conformance.adapters import adapter, shapes

NO_BOUND = 1000
NOW = 10_000.0
FIELDS = {camel(field.name): field.name for field in dataclasses.fields(Threshold)} | {
    "cpuEvictBESatisfactionUpperPercent": "cpu_evict_be_satisfaction_upper_percent",
    "cpuEvictBESatisfactionLowerPercent": "cpu_evict_be_satisfaction_lower_percent",
    "cpuEvictBEUsageThresholdPercent": "cpu_evict_be_usage_threshold_percent",
}
SWITCHES = {
    evict_config.BE_CPU: "be_cpu_evict",
    evict_config.ALLOCATABLE_CPU: "cpu_allocatable_evict",
    evict_config.USED_CPU: "cpu_evict",
    evict_config.BE_MEMORY: "be_memory_evict",
    evict_config.ALLOCATABLE_MEMORY: "memory_allocatable_evict",
    evict_config.USED_MEMORY: "memory_evict",
}


# ── configuration ──


@adapter("cpu_evict.config_satisfaction", "cpu_evict.config_used", "cpu_evict.config_allocatable")
def cpu_config(given: Any, expect: Any) -> tuple[Any, Any]:
    kinds = {"cpuEvictBE": evict_config.BE_CPU, "cpuAllocatable": evict_config.ALLOCATABLE_CPU}
    names = given["thresholdStrategy"] or {}
    by_key = next((f for start, f in kinds.items() if any(n.startswith(start) for n in names)), evict_config.USED_CPU)
    return _mistake(by_key, given), expect


@adapter("memory_evict.config_check")
def memory_config(given: Any, expect: Any) -> tuple[Any, Any]:
    return _mistake(given["feature"], given), expect


@adapter("cpu_evict.enabled", "memory_evict.enabled")
def switched_on(given: Any, expect: Any) -> tuple[Any, Any]:
    on = {name.removesuffix("Enabled") for name, value in given.items() if name.endswith("Enabled") and value}
    module = memory_evict if any("Memory" in name for name in given) else cpu_evict
    found = module.features(_config(module, on))
    return {"enabled": bool(found) and given["evictIntervalSeconds"] > 0}, expect


def _mistake(feature: str, given: Any) -> dict[str, Any]:
    found = evict_config.mistake(feature, _threshold(given["thresholdStrategy"]))
    return {"valid": not found, "message": found or None}


# ── amounts ──


@adapter("cpu_evict.be_satisfaction_release")
def satisfaction(given: Any, expect: Any) -> tuple[Any, Any]:
    # Where no window is set ours is a second, in which there is one sample: as Koordinator's, which is an interval.
    window = given["thresholdStrategy"].get("cpuEvictTimeWindowSeconds") or 1
    seen = _snapshot(
        {**given, "pods": []},
        usage=_be_usage(given["latestMetrics"]),
        windows={window: _be_usage(given["averageWindowMetrics"])},
    )
    found = _told(cpu_evict, seen, evict_config.BE_CPU)
    return {"releaseBatchCPUMilli": found.evidence.get("release_batch_cpu_milli", 0)}, expect


@adapter("cpu_evict.used_threshold_release")
def cpu_use(given: Any, expect: Any) -> tuple[Any, Any]:
    strategy = given["thresholdStrategy"]
    upper = strategy["cpuEvictThresholdPercent"]
    found = evict_release.by_use(
        used=int(given["nodeCPUUsageCores"] * 1000),
        capacity=shapes.node_of(given["node"]).capacity_milli,
        threshold_percent=upper,
        lower_percent=evict_config.lower_end(upper, strategy.get("cpuEvictLowerPercent")),
    )
    return {next(iter(expect)): found}, expect


@adapter("memory_evict.used_threshold_release")
def memory_use(given: Any, expect: Any) -> tuple[Any, Any]:
    strategy = given["thresholdStrategy"]
    upper = strategy["memoryEvictThresholdPercent"]
    found = evict_release.by_use(
        used=given["nodeMemoryUsedBytes"],
        capacity=shapes.node_of(given["node"]).capacity_memory,
        threshold_percent=upper,
        lower_percent=evict_config.lower_end(upper, strategy.get("memoryEvictLowerPercent")),
    )
    return {"releaseMemoryBytes": found}, expect


@adapter("cpu_evict.allocatable_release", "memory_evict.allocatable_release")
def by_requests(given: Any, expect: Any) -> tuple[Any, Any]:
    module, feature, kind = (
        (cpu_evict, evict_config.ALLOCATABLE_CPU, "cpu")
        if "cpuAllocatableEvictThresholdPercent" in given["thresholdStrategy"]
        else (memory_evict, evict_config.ALLOCATABLE_MEMORY, "memory")
    )
    seen = _seen(given, {})
    evidence = _told(module, seen, feature).evidence
    unit = "milli" if kind == "cpu" else "bytes"
    release = {
        name: evidence[f"release_{name.rpartition('/')[2].replace('-', '_')}_{unit}"]
        for name in eviction.promised(kind)
        if f"release_{name.rpartition('/')[2].replace('-', '_')}_{unit}" in evidence
    }
    requests = {pod.uid: eviction.request(pod, kind) for pod in seen.pods}
    released = {
        pod.name: {name: amount for name, amount in requests[pod.uid].items() if name in release} or None
        for pod in seen.pods
        if pod.name in expect["podContribution"]
    }
    return {"release": release, "releaseResources": sorted(release), "podContribution": released}, {
        **expect,
        "releaseResources": sorted(expect["releaseResources"]),
    }


# ── orders ──


@adapter("cpu_evict.be_sort")
def be_order(given: Any, expect: Any) -> tuple[Any, Any]:
    seen = _seen({**given, "thresholdStrategy": {}, "node": None}, given["podCPUUsageCores"])
    used = {uid: use.cpu for uid, use in seen.usage.pods.items()}
    found = evict_order.best_effort_by_cpu(seen.pods, feature=evict_config.BE_CPU, used_milli=used)
    return [pod.name for pod in found.order], [row["pod"] for row in expect["ordered"]]


@adapter("cpu_evict.priority_sort", "memory_evict.priority_sort")
def priority_order(given: Any, expect: Any) -> tuple[Any, Any]:
    memory = "podMemoryUsedBytes" in given
    seen = _seen(given, given.get("podMemoryUsedBytes" if memory else "podCPUUsageCores") or {})
    used = {uid: use.memory if memory else use.cpu for uid, use in seen.usage.pods.items()}
    requests = {pod.uid: sum(eviction.request(pod, "memory" if memory else "cpu").values()) for pod in seen.pods}
    by_request = "Allocatable" in given["feature"]
    threshold = seen.slo.threshold
    found = evict_order.by_priority(
        seen.pods,
        feature=given["feature"],
        priority_threshold=(
            threshold.allocatable_evict_priority_threshold if by_request else threshold.evict_enabled_priority_threshold
        )
        or 0,
        amounts=requests if by_request else used,
        used=used,
    )
    ordered = expect.get("orderedPodNames", expect.get("ordered"))
    return [pod.name for pod in found.order], [o["pod"] if isinstance(o, dict) else o for o in ordered]


# ── rounds ──


@adapter("cpu_evict.reconcile")
def cpu_round(given: Any, expect: Any) -> tuple[Any, Any]:
    evicted = _evicted(cpu_evict, given, given["podCPUUsageCores"] or {})
    wanted = set(expect["mustEvictPodNames"])
    return wanted - evicted, set()


@adapter("memory_evict.reconcile")
def memory_round(given: Any, expect: Any) -> tuple[Any, Any]:
    evicted = _evicted(memory_evict, given, given["podMemoryUsedBytes"] or {})
    kept = set(expect["notEvictedPodNames"])
    return (evicted, kept & evicted), (set(expect["evictedPodNames"]), set())


def _evicted(module: Any, given: Any, used: dict[str, float]) -> set[str]:
    config = _config(module, given["enabledFeatureGates"])
    decisions = module.decide(_seen(given, used), config)
    return {change.name for d in decisions for change in d.changes if isinstance(change, EvictPod)}


# ── evict_util ──


@adapter("evict_util.task_check")
def task_check(given: Any, expect: Any) -> tuple[Any, Any]:
    target = given["task"]["releaseTarget"]
    wanted, released = shapes.quantities(given["task"]["toRelease"]), (given["released"] or {}).get(target)
    left = evict_walk.remaining(_nano(wanted), _nano(shapes.quantities(released)))
    return {"finished": not left, "remaining": left}, {
        **expect,
        "remaining": _nano(shapes.quantities(expect["remaining"])),
    }


@adapter("evict_util.sub_no_negative")
def less(given: Any, expect: Any) -> tuple[Any, Any]:
    return _two(evict_walk.remaining, given), _nano(shapes.quantities(expect["result"]))


@adapter("evict_util.merge_max")
def larger(given: Any, expect: Any) -> tuple[Any, Any]:
    return _two(evict_walk.larger, given), _nano(shapes.quantities(expect["result"]))


def _two(formula: Callable[..., dict[str, int]], given: Any) -> dict[str, int]:
    return formula(_nano(shapes.quantities(given["a"])), _nano(shapes.quantities(given["b"])))


@adapter("evict_util.is_zero")
def is_zero(given: Any, expect: Any) -> tuple[Any, Any]:
    return {"result": not any(_nano(shapes.quantities(given["a"])).values())}, expect


@adapter("evict_util.priority_label")
def priority_label(given: Any, expect: Any) -> tuple[Any, Any]:
    return {"value": eviction.sub_priority(shapes.pod_of(given["pod"]), given["default"])}, expect


@adapter("evict_util.request_from_pod")
def request(given: Any, expect: Any) -> tuple[Any, Any]:
    found = eviction.request(shapes.pod_of(given["pod"]), given["resource"])
    scale = 10**6 if given["resource"] == "cpu" and "cpu" in found else 10**9
    return {n: amount * scale for n, amount in found.items()}, _nano(shapes.quantities(expect["resourceList"]))


@adapter("evict_util.eviction_policy_allowed")
def policy(given: Any, expect: Any) -> tuple[Any, Any]:
    allowed = not given["podIsNil"] and eviction.allows(given["annotations"] or {}, given["policy"])
    return {"allowed": allowed}, expect


@adapter("evict_util.default_executor")
def executor(given: Any, expect: Any) -> tuple[Any, Any]:
    """There is but one way: the Eviction API."""
    asked = Evictions(_Answering(given["evictionAPISucceeds"]), _NoClock())
    (step,) = asked.take([EvictPod("ns", "pod", "uid", "why")], time=0.0)
    return {"result": step.ok}, expect


class _NoClock:
    def monotonic(self) -> float:
        return 0.0

    wall = monotonic

    def wait(self, seconds: float) -> bool:
        return False


class _Answering:
    """A cluster that lets every pod go, or none."""

    def __init__(self, lets_go: bool) -> None:
        self.lets_go = lets_go

    def view(self) -> ClusterView:
        raise AssertionError

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        raise AssertionError(changes)

    def evict(self, pod: EvictPod) -> None:
        if not self.lets_go:
            raise EvictionRefused(pod.place, "no")


@adapter("evict_util.kill_and_evict")
def walk(given: Any, expect: Any) -> tuple[Any, Any]:
    pods = {name: _described(name, row) for name, row in given["pods"].items()}
    seen = {name: _seen_in(given["pods"][name], pods[name]) for name in pods}
    tasks = [
        Task(str(number), row["releaseTarget"], row["toRelease"], row["sortedPods"], _contributions(row, seen))
        for number, row in enumerate(given["tasks"])
    ]
    found = evict_walk.walk(tasks, leaving=given["alreadyEvicted"])
    evicted = [uid for uid in pods if any(found.fates.get((t.feature, uid)) == "chosen" for t in tasks)]
    wanted = {**expect, "evicted": sorted(expect["evicted"])}
    released = {target: dict(amounts) for target, amounts in found.released.items()}
    return {"newlyEvicted": bool(evicted), "evicted": sorted(evicted), "released": released}, wanted


def _contributions(row: Any, seen: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    return {name: by_kind[row["contribution"]] for name, by_kind in seen.items()}


def _described(name: str, row: Any) -> Pod:
    requests = {resource: Quantity.of(amount) for resource, amount in (row.get("requests") or {}).items()}
    labels = {keys.PRIORITY_CLASS: row["priorityClass"]} if "priorityClass" in row else {}
    containers = (ContainerInfo("main", "", True, requests, {}),)
    return Pod(namespace="", name=name, uid=name, labels=labels, raw_qos=QoSClass(row["qos"]), containers=containers)


def _seen_in(row: Any, pod: Pod) -> dict[str, dict[str, int]]:
    requests = {n: amount for n, amount in eviction.request(pod, "cpu").items() if n != "cpu"}
    return {
        "memoryUsed": {"memory": row.get("memoryUsed", 0)},
        "cpuUsed": {"cpu": row.get("milliCPUUsed", 0)},
        "cpu request of mid/batch class": requests,
    }


# ── shapes ──


def _nano(amounts: dict[str, Quantity]) -> dict[str, int]:
    return {name: amount.nano for name, amount in amounts.items()}


def _threshold(written: Any) -> Threshold | None:
    if written is None:
        return None
    known = {FIELDS[name]: value for name, value in written.items() if value is not None}
    return Threshold(**known)


def _config(module: Any, on: Iterable[str]) -> Any:
    return module.Config(max_evictions_per_round=NO_BOUND, **{SWITCHES[name]: True for name in on})


def _told(module: Any, seen: Snapshot, feature: str) -> Decision:
    """What the rule says of a picture in which nothing else stands in the way."""
    slo = dataclasses.replace(seen.slo, threshold=dataclasses.replace(seen.slo.threshold, enable=True))
    decisions: Iterable[Decision] = module.decide(dataclasses.replace(seen, slo=slo), _config(module, [feature]))
    return next(d for d in decisions if d.subject in (f"evict/{feature}", "evict"))


def _be_usage(metrics: Any) -> Usage:
    given = metrics or {"count": 0, "beUsedMilli": None, "beRequestMilli": None, "beRealLimitMilli": None}
    return Usage(
        node=Use(0, 0),
        pods={},
        host_apps={},
        best_effort_cpu=given["beUsedMilli"],
        best_effort_request=given["beRequestMilli"],
        best_effort_limit=given["beRealLimitMilli"],
        samples=given["count"],
    )


def _seen(given: Any, used: dict[str, float]) -> Snapshot:
    """A picture of a case that gives the use of the node and of pods by name or uid."""
    cores, memory = given.get("nodeCPUUsageCores"), given.get("nodeMemoryUsedBytes")
    known = cores is not None or memory is not None or "pods" in given
    in_bytes = any("emory" in name for name in given)
    pods = {uid: Use(0, int(amount)) if in_bytes else Use(int(amount * 1000), 0) for uid, amount in used.items()}
    use = Use(int((cores or 0) * 1000), int(memory or 0)) if known else None
    usage = Usage(use, pods, {}, samples=NO_BOUND)
    window = (given.get("thresholdStrategy") or {}).get("cpuEvictTimeWindowSeconds") or 1
    return _snapshot(given, usage=usage, windows={window: usage})


def _snapshot(given: Any, *, usage: Usage, windows: dict[int, Usage]) -> Snapshot:
    started = {"started": 0.0, **{f"lacking/{name}": 0.0 for name in keys.PROMISED_RESOURCES}}
    started |= {} if given.get("cooldownElapsed", True) else {"evicted": NOW}
    return Snapshot(
        time=NOW,
        taken_at="",
        node=shapes.node_of(given["node"]) if given.get("node") else None,
        slo=SLO(threshold=_threshold(given.get("thresholdStrategy")) or Threshold()),
        topology=Topology((), ()),
        reserved=ResolvedReservation(),
        system_qos=SystemQoS(),
        kubelet=Kubelet(),
        layout=Layout(1, "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort"),
        pods=tuple(shapes.pod_of(item) for item in given.get("pods") or ()),
        places={},
        cgroups={},
        usage=usage,
        average=usage,
        resctrl=Resctrl(),
        published=Published({}, {}),
        windows=windows,
        interval_seconds=given.get("metricCollectIntervalSeconds") or 1,
        remembered={"cpuEvict": started, "memoryEvict": started},
    )
