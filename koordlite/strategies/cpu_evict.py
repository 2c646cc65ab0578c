"""Evict pods when best-effort work starves for CPU, or when CPU is used or requested beyond its thresholds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence

from koordlite.formulas.eviction import evict_config, evict_order, evict_release
from koordlite.formulas.eviction.evict_order import Excess
from koordlite.formulas.eviction.evict_walk import Task
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Usage
from koordlite.model.pod import eviction
from koordlite.model.pod.values import Pod
from koordlite.model.settings import EvictionSettings, bounded
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.strategies.shared import evict
from koordlite.strategies.shared.evict import Evidence, Measure, Past, Rule

NAME = "cpuEvict"
NEW_CONTAINERS = "none"
OVERVIEW = ("evictions for CPU", NAME)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(EvictionSettings):
    """Evictions for CPU. Besides the mode, each rule has its own switch, as Koordinator's feature gates: all off."""

    be_cpu_evict: bool = False
    """BECPUEvict: best-effort pods go when they may use far less CPU than they request, and use all they may."""
    cpu_allocatable_evict: bool = False
    """CPUAllocatableEvict: batch and mid pods go when they request more CPU than the node still promises."""
    cpu_evict: bool = False
    """CPUEvict: pods that allow it go when the node uses more CPU than the threshold."""
    cool_down_seconds: float = bounded(20.0, ge=0, le=3600)
    """No pod is evicted for this long after an eviction, and after the start: the means have to follow first."""


def windows(slo: SLO, _pods: Sequence[Pod] = ()) -> tuple[int]:
    """The mean that decides; without a window of its own the last second."""
    return (slo.threshold.cpu_evict_time_window_seconds or 1,)


def features(config: Config) -> dict[str, Measure]:
    """The rules that are switched on, in the order in which they are served."""
    requests = functools.partial(evict.by_requests, resource="cpu", wait_seconds=config.zero_allocatable_seconds)
    rules: tuple[tuple[bool, str, Measure], ...] = (
        (config.be_cpu_evict, evict_config.BE_CPU, _satisfaction),
        (config.cpu_allocatable_evict, evict_config.ALLOCATABLE_CPU, requests),
        (config.cpu_evict, evict_config.USED_CPU, _use),
    )
    return {feature: measure for is_on, feature, measure in rules if is_on}


def decide(snapshot: Snapshot, config: Config, evictees: Collection[str] = frozenset()) -> Iterator[Decision]:
    """Pods to evict for CPU (docs/formulas.md, "Evictions"); `evictees` are on their way out already."""
    decisions, _ = evict.judge(
        snapshot,
        config,
        features(config),
        evict.rounds_before(snapshot, NAME, eviction.promised("cpu"), evictees=evictees),
        capacity=snapshot.node.capacity_milli if snapshot.node else 0,
        cool_down_seconds=config.cool_down_seconds,
        from_start=True,
    )
    yield from decisions


def _satisfaction(snapshot: NodeSnapshot, _past: Past) -> Rule:
    """BE pods may use so little of what they request that some of them have to go elsewhere."""
    (window,) = windows(snapshot.slo)
    mean = snapshot.windows.get(window)
    samples = mean.samples if mean else 0
    terms: Evidence = {"window_seconds": window, "samples": samples}
    trusted = evict_release.enough_samples(
        samples=samples, sample_seconds=snapshot.interval_seconds, window_seconds=window
    )
    if mean is None or not trusted:
        return Rule(Decision("evict/BECPUEvict", "skip", "TooFewSamples", terms))
    threshold = snapshot.slo.threshold
    terms |= _terms("mean", mean) | _terms("last", snapshot.usage)
    terms |= {
        "lower_percent": threshold.cpu_evict_be_satisfaction_lower_percent or 0,
        "upper_percent": threshold.cpu_evict_be_satisfaction_upper_percent or 0,
        "limit_by": threshold.cpu_evict_policy,
    }
    amounts = (_starved(snapshot, mean), _starved(snapshot, snapshot.usage))
    if None in amounts:
        return Rule(Decision("evict/BECPUEvict", "skip", "TooFewSamples", terms))
    release = min(amount or 0 for amount in amounts)
    excess = Excess("cpu", evict.used_by_pods(snapshot, "cpu"))
    candidates = evict_order.best_effort_by_cpu(snapshot.pods, feature="BECPUEvict", excess=excess)
    if not release:
        return Rule(Decision("evict/BECPUEvict", "hold", "BestEffortSatisfied", terms), candidates=candidates)
    decision = Decision("evict/BECPUEvict", "hold", "BestEffortStarved", {**terms, "release_batch_cpu_milli": release})
    requests = {pod.uid: eviction.batch_cpu(pod) for pod in snapshot.pods if pod.active}
    task = Task(
        feature="BECPUEvict",
        target=eviction.REQUESTED,
        to_release={keys.BATCH_CPU: release},
        candidates=tuple(pod.uid for pod in candidates.order),
        contributions=evict.contributions(snapshot.pods, keys.BATCH_CPU, requests),
    )
    return Rule(decision, task, candidates, "best-effort pods may use too little of the CPU they request")


def _starved(snapshot: NodeSnapshot, usage: Usage) -> int | None:
    """batch-cpu to release by this mean or sample; None when it does not say enough."""
    threshold, limit = snapshot.slo.threshold, usage.best_effort_limit
    if threshold.cpu_evict_policy == "evictByAllocatable":
        promised = snapshot.node.allocatable.get(keys.BATCH_CPU)
        limit = evict_release.promised_limit(promised.value if promised else None)
    if usage.best_effort_cpu is None or usage.best_effort_request is None or limit is None:
        return None
    needs_it = evict_release.uses_its_limit(
        used_milli=usage.best_effort_cpu,
        limit_milli=limit,
        threshold_percent=threshold.cpu_evict_be_usage_threshold_percent,
    )
    if not needs_it:
        return 0
    return evict_release.satisfaction(
        request_milli=usage.best_effort_request,
        limit_milli=limit,
        lower_percent=threshold.cpu_evict_be_satisfaction_lower_percent or 0,
        upper_percent=threshold.cpu_evict_be_satisfaction_upper_percent or 0,
    )


def _terms(which: str, usage: Usage) -> Evidence:
    terms = {
        f"{which}_used_milli": usage.best_effort_cpu,
        f"{which}_request_milli": usage.best_effort_request,
        f"{which}_limit_milli": usage.best_effort_limit,
    }
    return {name: amount for name, amount in terms.items() if amount is not None}


def _use(snapshot: NodeSnapshot, _past: Past) -> Rule:
    """The node's CPU is used beyond the threshold, in the mean and at present: when it is over, it is over."""
    (window,) = windows(snapshot.slo)
    mean = snapshot.windows.get(window)
    if mean is None or mean.node is None or snapshot.usage.node is None:
        terms: Evidence = {"window_seconds": window, "samples": mean.samples if mean else 0}
        return Rule(Decision("evict/CPUEvict", "skip", "TooFewSamples", terms))
    ends = snapshot.slo.threshold
    return evict.by_use(
        snapshot,
        evict_config.USED_CPU,
        "cpu",
        used=(mean.node.cpu, snapshot.usage.node.cpu),
        capacity=snapshot.node.capacity_milli,
        percents=(ends.cpu_evict_threshold_percent, ends.cpu_evict_lower_percent),
        choose=functools.partial(evict.users, snapshot, evict_config.USED_CPU),
        terms={"window_seconds": window},
    )
