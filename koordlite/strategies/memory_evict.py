"""Evict pods when memory is used or requested beyond its thresholds, before the kernel kills something worse."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator

from koordlite.formulas.eviction import evict_config, evict_order, evict_release
from koordlite.formulas.eviction.evict_order import Excess
from koordlite.model.decision import Decision
from koordlite.model.settings import EvictionSettings, bounded
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.strategies.shared import evict, evict_requests, last_resort
from koordlite.strategies.shared.evict import Evidence, Past, Rule
from koordlite.strategies.shared.last_resort import LastResort

NAME = "memoryEvict"
NEW_CONTAINERS = "none"
OVERVIEW = ("evictions for memory", NAME)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(EvictionSettings):
    """Evictions for memory. Besides the mode, each rule has its own switch, as Koordinator's feature gates: all off."""

    be_memory_evict: bool = False
    """BEMemoryEvict: best-effort pods go when the node uses more memory than the threshold."""
    memory_allocatable_evict: bool = False
    """MemoryAllocatableEvict: batch and mid pods go when they request more memory than the node still promises."""
    memory_evict: bool = False
    """MemoryEvict: pods that allow it go when the node uses more memory than the threshold."""
    cool_down_seconds: float = bounded(4.0, ge=0, le=3600)
    """No pod is evicted for this long after an eviction. Memory can run out within seconds, so it is short."""

    be_memory_last_resort_seconds: float = bounded(0.0, ge=0, le=3600)
    """Where evictions of BEMemoryEvict have been refused or not answered for so long and memory is still over the
    threshold, containers of BE pods are killed (`cgroup.kill`, cgroup v2), at most `maxEvictionsPerRound` pods a round.
    0 never does so. Disruption budgets protect no pod from this."""
    memory_last_resort_seconds: float = bounded(0.0, ge=0, le=3600)
    """The same for MemoryEvict; of its candidates only BE pods are killed."""


def features(config: Config) -> tuple[str, ...]:
    """The rules that are switched on, in the order in which they are served."""
    switches = {
        evict_config.BE_MEMORY: config.be_memory_evict,
        evict_config.ALLOCATABLE_MEMORY: config.memory_allocatable_evict,
        evict_config.USED_MEMORY: config.memory_evict,
    }
    return tuple(name for name, on in switches.items() if on)


def decide(snapshot: Snapshot, config: Config, asked: Collection[str] = frozenset()) -> Iterator[Decision]:
    """Pods to evict for memory (docs/formulas.md, "Evictions"); `asked` are on their way out already."""
    measured: dict[str, Rule] = {}
    found = evict.judge(
        snapshot,
        config,
        {feature: functools.partial(_kept, measured, feature, config) for feature in features(config)},
        asked=asked,
        strategy=NAME,
        resource="memory",
        cool_down_seconds=config.cool_down_seconds,
        from_start=False,
    )
    seconds = {
        evict_config.BE_MEMORY: config.be_memory_last_resort_seconds,
        evict_config.USED_MEMORY: config.memory_last_resort_seconds,
    }
    allowed = LastResort(strategy=NAME, seconds=seconds, config=config, cool_down_seconds=config.cool_down_seconds)
    yield from last_resort.added(snapshot, tuple(found), measured, allowed)


def _kept(measured: dict[str, Rule], feature: str, config: Config, snapshot: NodeSnapshot, past: Past) -> Rule:
    """Measure a rule, and keep what it found for the last resort."""
    measured[feature] = _RULES[feature](config, snapshot, past)
    return measured[feature]


def _requests(config: Config, snapshot: NodeSnapshot, past: Past) -> Rule:
    threshold = snapshot.slo.threshold
    limits = evict_requests.Limits(
        feature=evict_config.ALLOCATABLE_MEMORY,
        resource="memory",
        threshold_percent=threshold.memory_allocatable_evict_threshold_percent or 0,
        lower_percent=threshold.memory_allocatable_evict_lower_percent or 0,
        priority_threshold=threshold.allocatable_evict_priority_threshold or 0,
        wait_seconds=config.zero_allocatable_seconds,
    )
    return evict_requests.rule(snapshot, past, limits)


def _use(feature: str, _config: Config, snapshot: NodeSnapshot, _past: Past) -> Rule:
    """The node's memory is used beyond the threshold, by the last sample: memory does not wait for a mean."""
    assert snapshot.usage.node is not None
    upper = snapshot.slo.threshold.memory_evict_threshold_percent
    lower = evict_config.lower_end(upper, snapshot.slo.threshold.memory_evict_lower_percent)
    used, capacity = snapshot.usage.node.memory, snapshot.node.capacity_memory
    terms: Evidence = {
        "used_percent": evict_release.use_percent(used=used, capacity=capacity),
        "threshold_percent": upper,
        "lower_percent": lower,
    }
    release = evict_release.by_use(used=used, capacity=capacity, threshold_percent=upper, lower_percent=lower)
    least = evict_release.to_threshold(used=used, capacity=capacity, threshold_percent=upper)
    excess = Excess("memory", {uid: use.memory for uid, use in snapshot.usage.pods.items()}, release)
    if feature == evict_config.BE_MEMORY:
        candidates = evict_order.best_effort_by_memory(snapshot.pods, feature=feature, excess=excess)
    else:
        candidates = evict.users(snapshot, feature, excess)
    return evict.by_use(snapshot, feature, excess=excess, least=least, terms=terms, candidates=candidates)


_RULES: dict[str, Callable[[Config, NodeSnapshot, Past], Rule]] = {
    evict_config.BE_MEMORY: functools.partial(_use, evict_config.BE_MEMORY),
    evict_config.ALLOCATABLE_MEMORY: _requests,
    evict_config.USED_MEMORY: functools.partial(_use, evict_config.USED_MEMORY),
}


SENTENCES = {**evict.SENTENCES, **evict_requests.SENTENCES, **last_resort.SENTENCES}
