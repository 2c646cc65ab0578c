"""Evict pods when memory is used or requested beyond its thresholds, before the kernel kills something worse."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from koordlite.changes.eviction import KillContainer
from koordlite.formulas.eviction import evict_config, evict_order, evict_release
from koordlite.formulas.eviction.evict_order import Candidates, Excess
from koordlite.formulas.eviction.evict_walk import Task
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import MemoryPlace
from koordlite.model.pod import eviction
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import EvictionSettings, bounded
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import NodeSnapshot, Snapshot, gives_way, recalled
from koordlite.model.topology import NUMANode
from koordlite.strategies.shared import evict
from koordlite.strategies.shared.evict import EvictionMemory, Evidence, Measure, Past, Rule

NAME = "memoryEvict"
NEW_CONTAINERS = "none"
OVERVIEW = ("evictions for memory", NAME)
KILLED_SECONDS = 60.0
"""A pod whose containers were killed is left alone for so long: kubelet starts them again, and later each time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(EvictionSettings):
    """Evictions for memory. Besides the mode, each rule has its own switch, as Koordinator's feature gates: all off."""

    be_memory_evict: bool = False
    """BEMemoryEvict: best-effort pods go when the node uses more memory than the threshold."""
    memory_allocatable_evict: bool = False
    """MemoryAllocatableEvict: batch and mid pods go when they request more memory than the node still promises."""
    memory_evict: bool = False
    """MemoryEvict: pods that allow it go when the node uses more memory than the threshold."""
    numa_memory_evict: bool = False
    """NUMAMemoryEvict, ours: best-effort pods go, those above their request first, when a NUMA node uses more of its
    memory than `numaMemoryEvictThresholdPercent` of the ConfigMap while another pod may take memory nowhere else. Each
    counts with what it has on that NUMA node. A node that has no such threshold reads nothing for this."""
    cool_down_seconds: float = bounded(4.0, ge=0, le=3600)
    """No pod is evicted for this long after an eviction. Memory can run out within seconds, so it is short."""

    overuse_first: bool = False
    """BEMemoryEvict takes pods first that use more memory than they request, whatever their priority: who keeps to the
    request goes last. Koordinator goes by priority, then by use."""
    be_memory_last_resort_seconds: float = bounded(0.0, ge=0, le=3600)
    """Time for which evictions of BEMemoryEvict may be refused or not answered while memory is over the threshold; then
    containers of BE pods are killed (`cgroup.kill`, cgroup v2), at most `maxEvictionsPerRound` pods a round. 0 never
    does so. Disruption budgets protect no pod from this."""
    memory_last_resort_seconds: float = bounded(0.0, ge=0, le=3600)
    """The same for MemoryEvict; of its candidates only BE pods are killed."""


def reads(slo: SLO, _pods: Sequence[Pod]) -> tuple[str, ...]:
    """Memory of all containers by NUMA node, where a threshold for that is set."""
    return () if slo.threshold.numa_memory_evict_threshold_percent is None else ("memory_places",)


def features(config: Config) -> dict[str, Measure]:
    """The rules that are switched on, in the order in which they are served."""
    requests = functools.partial(evict.by_requests, resource="memory", wait_seconds=config.zero_allocatable_seconds)
    rules: tuple[tuple[bool, str, Measure], ...] = (
        (config.be_memory_evict, evict_config.BE_MEMORY, functools.partial(_use, evict_config.BE_MEMORY, config)),
        (config.memory_allocatable_evict, evict_config.ALLOCATABLE_MEMORY, requests),
        (config.memory_evict, evict_config.USED_MEMORY, functools.partial(_use, evict_config.USED_MEMORY, config)),
    )
    return {feature: measure for is_on, feature, measure in rules if is_on}


def decide(snapshot: Snapshot, config: Config, evictees: Collection[str] = frozenset()) -> Iterator[Decision]:
    """Pods to evict for memory (docs/formulas.md, "Evictions"); `evictees` are on their way out already."""
    past = evict.rounds_before(snapshot, NAME, eviction.promised("memory"), evictees=evictees)
    measures = features(config)
    if config.numa_memory_evict:
        measures |= {
            f"{evict_config.NUMA_MEMORY}-{node.id}": functools.partial(_numa_use, node)
            for node in snapshot.topology.nodes
            if node.memory
        }
    decisions, rules = evict.judge(
        snapshot,
        config,
        measures,
        past,
        capacity=snapshot.node.capacity_memory if snapshot.node else 0,
        cool_down_seconds=config.cool_down_seconds,
        from_start=False,
    )
    yield from _with_last_resort(snapshot, config, decisions, rules, past)


def _use(feature: str, config: Config, snapshot: NodeSnapshot, _past: Past) -> Rule:
    """The node's memory is used beyond the threshold, by the last sample: memory does not wait for a mean."""
    assert snapshot.usage.node is not None
    ends = snapshot.slo.threshold

    def choose(excess: Excess) -> Candidates:
        if feature != evict_config.BE_MEMORY:
            return evict.users(snapshot, feature, excess)
        return evict_order.best_effort_by_memory(
            snapshot.pods, feature=feature, excess=excess, overuse_first=config.overuse_first
        )

    return evict.by_use(
        snapshot,
        feature,
        "memory",
        used=(snapshot.usage.node.memory,),
        capacity=snapshot.node.capacity_memory,
        percents=(ends.memory_evict_threshold_percent, ends.memory_evict_lower_percent),
        choose=choose,
        terms={},
    )


def _numa_use(numa: NUMANode, snapshot: NodeSnapshot, _past: Past) -> Rule:
    """A NUMA node's memory is used beyond the threshold, and a pod that does not give way may take memory only from
    NUMA nodes of which that is true."""
    feature, ends = f"{evict_config.NUMA_MEMORY}-{numa.id}", snapshot.slo.threshold
    percents = ends.numa_memory_evict_threshold_percent, ends.numa_memory_evict_lower_percent
    use = snapshot.numa_memory.get("", {})
    if numa.id not in use:
        return Rule(Decision(f"evict/{feature}", "skip", "NUMAMemoryUnknown", {"numa": numa.id}))
    full = {
        node.id
        for node in snapshot.topology.nodes
        if node.memory
        and node.id in use
        and evict_release.use_percent(used=use[node.id], capacity=node.memory) >= (percents[0] or 0)
    }
    # Pods of which a container may take memory of this NUMA node, and else only of full ones. One that may take it of
    # every NUMA node is short on the whole node: that is for the other rules.
    every, bound = {node.id for node in snapshot.topology.nodes if node.memory}, []
    for pod in snapshot.pods:
        places = [{*place.mems} & every for place in _memory_places(snapshot, pod.uid)]
        if any(numa.id in mems < every and mems <= full for mems in places) and not gives_way(snapshot, pod):
            bound.append(pod.key)
    local = {
        # Page cache that is easily given back counts neither in the node's use nor in the pod's.
        uid: min(used, sum(each.used.get(numa.id, 0) for each in _memory_places(snapshot, uid)))
        for uid, used in evict.used_by_pods(snapshot, "memory").items()
    }
    return evict.by_use(
        snapshot,
        feature,
        "memory",
        used=(use[numa.id],),
        capacity=numa.memory,
        percents=percents,
        choose=lambda excess: evict_order.best_effort_by_memory(
            snapshot.pods, feature=evict_config.NUMA_MEMORY, excess=excess, overuse_first=True
        ),
        terms={"bound": " ".join(bound[: evict.MOST_NAMES])} if bound else {},
        numa=numa.id,
        local=local,
    )


def _memory_places(snapshot: Snapshot, uid: str) -> Iterator[MemoryPlace]:
    groups = snapshot.places[uid].containers.values() if uid in snapshot.places else ()
    return (snapshot.memory_places[group] for group in groups if group in snapshot.memory_places)


# Last resort when memory runs out and nobody answers an eviction: containers of best-effort pods are killed. The
# Eviction API is always asked first. Only when it has refused or not answered for as long as the configuration says,
# the rule still wants memory released, and nothing is on its way out, do processes die: in the order of the rule's
# candidates, and no more of them than a round may evict.


def _with_last_resort(
    snapshot: Snapshot, config: Config, decisions: Sequence[Decision], rules: Mapping[str, Rule], past: Past
) -> Iterator[Decision]:
    """The decisions of a round, with those about pods that are killed in place of theirs. `rules` are those that were
    measured in this round; none where something kept the round from being judged."""
    seconds = {
        evict_config.BE_MEMORY: config.be_memory_last_resort_seconds,
        evict_config.USED_MEMORY: config.memory_last_resort_seconds,
    }
    # An agent that observes asks for no eviction, so none of them has failed.
    if not any(seconds.values()) or config.mode != "enforce":
        yield from decisions
        return
    if snapshot.layout.version == 1:
        yield from (*decisions, Decision("evict/last-resort", "skip", "LastResortImpossible"))
        return
    time, before = snapshot.time, recalled(snapshot, NAME, EvictionMemory)
    since = {name: _stuck_since(snapshot, name, rules.get(name), past) for name, wait in seconds.items() if wait > 0}
    stuck = {name: at for name, at in since.items() if at is not None}
    killed = {uid: at for uid, at in before.killed.items() if time - at < KILLED_SECONDS}
    due = [name for name, at in stuck.items() if name in rules and rules[name].task and time - at >= seconds[name]]
    dying: dict[str, Decision] = {}
    # Of the first rule that has waited for long enough: what that changes has to be seen before another one is served.
    if due and not any(time - at < config.cool_down_seconds for at in killed.values()):
        dying = dict(_dying(snapshot, rules[due[0]], config.max_evictions_per_round, killed, time - stuck[due[0]]))
    killed |= dict.fromkeys(dying, time)
    subjects = {decision.subject for decision in dying.values()}
    staying = [decision for decision in decisions if decision.subject not in subjects]
    # The round's own memory with that of the last resort: the last decision that remembers wins.
    last = max((index for index, each in enumerate(staying) if each.remember is not None), default=len(staying) - 1)
    for index, each in enumerate(staying):
        memory = each.remember if isinstance(each.remember, EvictionMemory) else EvictionMemory()
        remember = msgspec.structs.replace(memory, stuck=stuck, killed=killed)
        yield msgspec.structs.replace(each, remember=remember) if index == last else each
    yield from dying.values()


def _stuck_since(snapshot: Snapshot, feature: str, rule: Rule | None, past: Past) -> float | None:
    """Time at which this rule's evictions began to fail; None when they do not, or nothing has to go."""
    before = recalled(snapshot, NAME, EvictionMemory)
    since = before.stuck.get(feature)
    if rule is None:
        return since
    if rule.task is None or msgspec.structs.replace(past, evictees=()).going(snapshot):
        return None
    failed = evict.unanswered(snapshot, before) | snapshot.refused_evictions.keys()
    return snapshot.time if since is None and failed & set(rule.task.candidates) else since


def _dying(
    snapshot: Snapshot, rule: Rule, budget: int, killed: Collection[str], waited: float
) -> Iterator[tuple[str, Decision]]:
    """The pods whose containers are killed now, by uid: only pods that are best effort by label and by cgroup."""
    assert rule.task
    pods, missing = {pod.uid: pod for pod in snapshot.pods}, sum(rule.task.to_release.values())
    for uid in rule.task.candidates:
        releases, pod = sum(rule.task.contributions.get(uid, {}).values()), pods.get(uid)
        if missing <= 0 or budget <= 0:
            return
        if not pod or not releases or uid in killed or pod.raw_qos is not QoSClass.BE or not pod.active:
            continue
        if uid in snapshot.places and gives_way(snapshot, pod):
            yield uid, _killed(snapshot, pod, rule.task, rule.cause, waited)
            missing, budget = missing - releases, budget - 1


def _killed(snapshot: Snapshot, pod: Pod, task: Task, cause: str, waited: float) -> Decision:
    why = snapshot.refused_evictions.get(pod.uid, "no answer")
    reason = f"{cause}, and evictions have failed for {waited:.0f} s ({why})"
    containers = snapshot.places[pod.uid].containers
    changes = tuple(
        KillContainer(pod.namespace, pod.name, pod.uid, name, group, reason)
        for name, group in containers.items()
        if group in snapshot.cgroups
    )
    evidence: Evidence = {
        "feature": task.feature,
        "waited_seconds": round(waited),
        "why": why,
        "containers": len(changes),
        "releases_memory_bytes": sum(task.contributions.get(pod.uid, {}).values()),
    }
    return Decision(f"pod/{pod.key}", "evict", "LastResort", evidence, changes)
