"""Evictions for CPU and memory: configuration, amounts, orders, whole rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.formulas.eviction import evict_config, evict_order, evict_release
from koordlite.formulas.eviction.evict_order import Excess
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod import eviction
from koordlite.model.reading.strict import camel
from koordlite.model.settings import EvictionSettings
from koordlite.model.slo.settings import SLO, Threshold
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import cpu_evict, memory_evict
from koordlite.strategies.shared import evict
from koordlite.strategies.shared.evict import EvictionMemory
from tests.conformance.adapters import adapter, mappings, shapes

NO_BOUND = 1000
NOW = 10_000.0
FIELDS = {camel(name): name for name in Threshold.__struct_fields__} | {
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


mappings(
    {
        "cpu_evict.config_satisfaction": lambda given: _mistake(evict_config.BE_CPU, given),
        "cpu_evict.config_used": lambda given: _mistake(evict_config.USED_CPU, given),
        "cpu_evict.config_allocatable": lambda given: _mistake(evict_config.ALLOCATABLE_CPU, given),
        "memory_evict.config_check": lambda given: _mistake(given["feature"], given),
    }
)


@adapter("cpu_evict.enabled", "memory_evict.enabled")
def switched_on(given: Any, expect: Any) -> tuple[Any, Any]:
    on = {name.removesuffix("Enabled") for name, value in given.items() if name.endswith("Enabled") and value}
    module = memory_evict if any("Memory" in name for name in given) else cpu_evict
    found = module.features(_config(module, on))
    return {"enabled": bool(found) and given["evictIntervalSeconds"] > 0}, expect


def _mistake(feature: str, given: Any) -> dict[str, Any]:
    found = evict_config.mistake(feature, threshold_of(given["thresholdStrategy"]))
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


@adapter("memory_evict.used_threshold_release")
def memory_use(given: Any, expect: Any) -> tuple[Any, Any]:
    strategy = given["thresholdStrategy"]
    upper = strategy["memoryEvictThresholdPercent"]
    found = evict_release.by_use(
        used=int(given["nodeMemoryUsedBytes"] or 0),
        capacity=shapes.node_of(given["node"]).capacity_memory,
        threshold_percent=upper,
        lower_percent=evict_config.lower_end(upper, strategy.get("memoryEvictLowerPercent")),
    )
    return {"releaseMemoryBytes": found}, expect


@adapter("cpu_evict.allocatable_release", "memory_evict.allocatable_release")
def by_requests(given: Any, expect: Any) -> tuple[Any, Any]:
    """The rule by itself: whether its configuration contradicts itself is asked elsewhere."""
    resource: Any = "cpu" if any(name.startswith("cpuAllocatable") for name in given["thresholdStrategy"]) else "memory"
    strategy = {"cpu": cpu_evict.NAME, "memory": memory_evict.NAME}[resource]
    seen = _seen(given, {})
    past = evict.rounds_before(seen, strategy, eviction.promised(resource))
    wait_seconds = EvictionSettings().zero_allocatable_seconds
    task = evict.by_requests(seen, past, resource=resource, wait_seconds=wait_seconds).task
    release = dict(task.to_release) if task else {}
    released = task.contributions if task else {}
    by_pod = {pod.name: dict(released.get(pod.uid, {})) or None for pod in seen.pods}
    return {
        "release": release,
        "releaseResources": sorted(release),
        "podContribution": {name: held for name, held in by_pod.items() if name in (expect["podContribution"] or {})},
    }, {
        "release": expect["release"] or {},
        "releaseResources": sorted(expect["releaseResources"] or ()),
        "podContribution": {name: held or None for name, held in (expect["podContribution"] or {}).items()},
    }


# ── orders ──


@adapter("cpu_evict.be_sort")
def be_order(given: Any, expect: Any) -> tuple[Any, Any]:
    seen = _seen({**given, "thresholdStrategy": {}, "node": None}, given["podCPUUsageCores"] or {})
    used = {uid: use.cpu for uid, use in seen.usage.pods.items()}
    excess = Excess("cpu", used)
    found = evict_order.best_effort_by_cpu(seen.pods, feature=evict_config.BE_CPU, excess=excess)
    return [pod.name for pod in found.order], [row["pod"] for row in expect["ordered"]]


@adapter("memory_evict.priority_sort")
def priority_order(given: Any, expect: Any) -> tuple[Any, Any]:
    seen = _seen(given, given.get("podMemoryUsedBytes") or {})
    used = {uid: use.memory for uid, use in seen.usage.pods.items()}
    requests = {pod.uid: sum(eviction.request(pod, "memory").values()) for pod in seen.pods}
    feature = given.get("feature") or evict_config.USED_MEMORY
    by_request = "Allocatable" in feature
    threshold = seen.slo.threshold
    bound = threshold.allocatable_evict_priority_threshold if by_request else threshold.evict_enabled_priority_threshold
    found = evict_order.by_priority(
        seen.pods,
        feature=feature,
        priority_threshold=given.get("priorityThreshold") or bound or 0,
        amounts=requests if by_request else used,
        excess=Excess("memory", used),
    )
    ordered = expect.get("orderedPodNames", expect.get("ordered"))
    return [pod.name for pod in found.order], [o["pod"] if isinstance(o, dict) else o for o in ordered]


# ── rounds ──


@adapter("cpu_evict.reconcile")
def cpu_round(given: Any, expect: Any) -> tuple[Any, Any]:
    evicted = _evicted(cpu_evict, given, given["podCPUUsageCores"] or {})
    missed = set(expect["mustEvictPodNames"]) - evicted
    return (missed, set()), (set(), set())


@adapter("memory_evict.reconcile")
def memory_round(given: Any, expect: Any) -> tuple[Any, Any]:
    evicted = _evicted(memory_evict, given, given["podMemoryUsedBytes"] or {})
    kept = set(expect["notEvictedPodNames"])
    return (evicted, kept & evicted), (set(expect["evictedPodNames"]), set())


def _evicted(module: Any, given: Any, used: dict[str, float]) -> set[str]:
    config = _config(module, given["enabledFeatureGates"] or ())
    decisions = module.decide(_seen(given, used), config)
    return {change.name for d in decisions for change in d.changes if isinstance(change, EvictPod)}


# ── shapes ──


def threshold_of(written: Any) -> Threshold | None:
    if written is None:
        return None
    known = {FIELDS[name]: value for name, value in written.items() if value is not None}
    return Threshold(**known)


def _config(module: Any, on: Iterable[str]) -> Any:
    # Bounded and aimed as Koordinator's rounds are, which is: not at all.
    switches = {SWITCHES[name]: True for name in on}
    return module.Config(max_evictions_per_round=NO_BOUND, evict_partly=True, **switches)


def _told(module: Any, seen: Snapshot, feature: str) -> Decision:
    """What the rule says of a picture in which nothing else stands in the way."""
    slo = msgspec.structs.replace(seen.slo, threshold=msgspec.structs.replace(seen.slo.threshold, enable=True))
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
        samples=given["count"] or 0,
    )


def _seen(given: Any, used: dict[str, float]) -> Snapshot:
    """A picture of a case that gives the use of the node and of pods by name or uid."""
    cores, memory = given.get("nodeCPUUsageCores"), given.get("nodeMemoryUsedBytes")
    known = cores is not None or memory is not None or "pods" in given
    in_bytes = any("emory" in name for name in given)
    sampled = {uid: amount for uid, amount in used.items() if amount is not None}
    pods = {uid: Use(0, int(amount)) if in_bytes else Use(int(amount * 1000), 0) for uid, amount in sampled.items()}
    use = Use(int((cores or 0) * 1000), int(memory or 0)) if known else None
    usage = Usage(use, pods, {}, samples=NO_BOUND)
    window = (given.get("thresholdStrategy") or {}).get("cpuEvictTimeWindowSeconds") or 1
    return _snapshot(given, usage=usage, windows={window: usage})


def _snapshot(given: Any, *, usage: Usage, windows: dict[int, Usage]) -> Snapshot:
    memory = EvictionMemory(
        started=0.0,
        evicted=None if given.get("cooldownElapsed", True) else NOW,
        lacking=dict.fromkeys(keys.PROMISED_RESOURCES, 0.0),
    )
    return shapes.snapshot(
        time=NOW,
        node=shapes.node_of(given["node"]) if given.get("node") else None,
        slo=SLO(threshold=threshold_of(given.get("thresholdStrategy")) or Threshold()),
        pods=tuple(shapes.pod_of(item) for item in given.get("pods") or ()),
        usage=usage,
        average=usage,
        windows=windows,
        interval_seconds=given.get("metricCollectIntervalSeconds") or 1,
        remembered={"cpuEvict": memory, "memoryEvict": memory},
    )
