"""What an eviction round comes to, worked out from Koordinator's behaviour: with its defects, or with our rules.

A difference is explained by a rule when ours is what the round comes to with all rules, and the rule matters to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any

from koordlite.formulas.eviction import evict_config
from koordlite.model.pod import eviction
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import Threshold
from tests.conformance.adapters import shapes
from tests.conformance.adapters.evict import threshold_of

FINISHED, CONTRIBUTION, BYTES, PROMISED, LEAVING = "finished", "contribution", "bytes", "promised", "leaving"
BY_USE = "by use"
ALL = frozenset((FINISHED, CONTRIBUTION, BYTES, PROMISED, LEAVING, BY_USE))
Rules = frozenset[str]
Amounts = Mapping[str, int]
_THOUSAND = 1000
_FEATURES = {
    "cpu": (evict_config.BE_CPU, evict_config.ALLOCATABLE_CPU, evict_config.USED_CPU),
    "memory": (evict_config.BE_MEMORY, evict_config.ALLOCATABLE_MEMORY, evict_config.USED_MEMORY),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """What one feature wants released, and what it sees in each pod."""

    target: str
    to_release: Amounts
    candidates: tuple[str, ...]
    sees: Mapping[str, Amounts]
    times: int = 1
    """By how much the use of a pod is taken that is picked for this task."""


@dataclasses.dataclass(slots=True)
class Walk:
    """Who goes, in order, and what is released by target."""

    evicted: list[str]
    released: dict[str, dict[str, int]]


def walk(tasks: Collection[Task], leaving: Collection[str], rules: Rules) -> Walk:
    """Candidates of each task in order, until nothing is missing."""
    due = [task for task in tasks if any(amount > 0 for amount in task.to_release.values())]
    done, found = set[str](), Walk([], {task.target: {} for task in due})
    for uid in leaving if LEAVING in rules else ():
        done.add(uid)
        _add(found, due, uid, 1)
    for task in due:
        for uid in task.candidates:
            left = [n for n, amount in task.to_release.items() if amount > found.released[task.target].get(n, 0)]
            idle = CONTRIBUTION in rules and not any(task.sees.get(uid, {}).get(name, 0) > 0 for name in left)
            if not left or uid in done or idle:
                continue
            done.add(uid)
            found.evicted += [] if uid in leaving else [uid]
            _add(found, due, uid, task.times)
    return found


def _add(found: Walk, due: Collection[Task], uid: str, times: int) -> None:
    """Of each resource the most that any task of a target sees in the pod."""
    for target, held in found.released.items():
        seen = [task.sees.get(uid, {}) for task in due if task.target == target]
        scale = times if target == eviction.USED else 1
        for name in {name for amounts in seen for name in amounts}:
            held[name] = held.get(name, 0) + scale * max(amounts.get(name, 0) for amounts in seen)


def evicted(given: Any, rules: Rules) -> set[str]:
    """Names of the pods that go in a round of a case."""
    resource = "memory" if "nodeMemoryUsedBytes" in given else "cpu"
    strategy, node = given["thresholdStrategy"] or {}, given["node"]
    capacity = shapes.node_of(node).capacity_memory if resource == "memory" else shapes.node_of(node).capacity_milli
    used = given["nodeMemoryUsedBytes" if resource == "memory" else "nodeCPUUsageCores"]
    if not strategy.get("enable") or capacity <= 0 or used is None or not given.get("cooldownElapsed", True):
        return set()
    used = int(used) if resource == "memory" else int(used * _THOUSAND)
    threshold = threshold_of(strategy) or Threshold()
    on = [name for name in _FEATURES[resource] if name in (given["enabledFeatureGates"] or ())]
    valid = [name for name in on if not evict_config.mistake(name, threshold)]
    return set(walk([_task(given, name, resource, used * 100 // capacity, rules) for name in valid], (), rules).evicted)


def release(given: Any, resource: str, rules: Rules) -> dict[str, int]:
    """What the rule about requests wants released; memory as exact as can be, the doubles may be off by one."""
    start = f"{resource}AllocatableEvict"
    strategy, node = given["thresholdStrategy"], shapes.node_of(given["node"])
    sums: dict[str, int] = {}
    for pod in map(shapes.pod_of, given["pods"] or ()):
        counted = pod.priority_value <= strategy["allocatableEvictPriorityThreshold"]
        if counted and (pod.active or FINISHED not in rules):
            for name, amount in _requests(pod, resource, rules).items():
                sums[name] = sums.get(name, 0) + amount
    upper, lower = (strategy.get(f"{start}{end}Percent") or 0 for end in ("Threshold", "Lower"))
    found = {}
    for name, asked in sums.items():
        promised = node.allocatable[name].value if name in node.allocatable else 0
        over = promised <= 0 or Fraction(asked, promised) > Fraction(upper, 100)
        found[name] = int(asked - Fraction(promised * lower, 100)) if over and promised > 0 else asked * over
    return {name: amount for name, amount in found.items() if amount > 0}


def _requests(pod: Pod, resource: str, rules: Rules) -> Amounts:
    asked = eviction.request(pod, resource)
    return {n: a for n, a in asked.items() if PROMISED not in rules or n in eviction.promised(resource)}


def _task(given: Any, feature: str, resource: str, percent: int, rules: Rules) -> Task:
    pods = [shapes.pod_of(pod) for pod in given["pods"] or ()]
    told = given.get("podMemoryUsedBytes" if resource == "memory" else "podCPUUsageCores") or {}
    used = {uid: amount for uid, amount in told.items() if amount is not None}
    amounts = {p.name: int(used[p.uid] * (1 if resource == "memory" else _THOUSAND)) for p in pods if p.uid in used}
    best_effort = feature in (evict_config.BE_CPU, evict_config.BE_MEMORY)
    times = _THOUSAND if resource == "memory" and not best_effort and BYTES not in rules else 1
    names = tuple(pod.name for pod in _candidates(given, feature, pods, amounts, rules))
    if feature in (evict_config.ALLOCATABLE_CPU, evict_config.ALLOCATABLE_MEMORY):
        wanted = release(given, resource, rules)
        sees = {p.name: {n: a for n, a in _requests(p, resource, ALL).items() if n in wanted} for p in pods}
        return Task(eviction.REQUESTED, wanted, names, sees, times)
    strategy, key = given["thresholdStrategy"], "memoryEvict" if resource == "memory" else "cpuEvict"
    upper = strategy.get(f"{key}ThresholdPercent") or 0
    low = evict_config.lower_end(upper, strategy.get(f"{key}LowerPercent"))
    node = shapes.node_of(given["node"])
    capacity = node.capacity_memory if resource == "memory" else node.capacity_milli
    # Best-effort pods by CPU go by use of their limit, of which a round says nothing.
    over = percent >= upper and feature != evict_config.BE_CPU
    wanted = {resource: capacity * (percent - low) // 100 if over else 0}
    if BY_USE in rules:
        spared = _outside_best_effort if best_effort else _last_by_own_words
        spared_pods = [pod for pod in pods if spared(pod, feature)]
        causes = _causes(spared_pods, amounts, wanted[resource], resource)
        names = (*causes, *(name for name in names if name not in causes))
    return Task(eviction.USED, wanted, names, {name: {resource: amount} for name, amount in amounts.items()}, times)


def _outside_best_effort(pod: Pod, feature: str) -> bool:
    """A pod in the besteffort cgroup that would not be a candidate."""
    return pod.is_best_effort and (pod.raw_qos is not QoSClass.BE or not eviction.allows(pod.annotations, feature))


def _last_by_own_words(pod: Pod, feature: str) -> bool:
    """A candidate by priority that a label or annotation of its own sends to the end, or protects."""
    value = pod.priority_value
    shielded = eviction.priority(pod) > 0 or eviction.sub_priority(pod, value) > value
    return eviction.enabled(pod) and (shielded or not eviction.allows(pod.annotations, feature))


def _native(pod: Pod, resource: str) -> int:
    amount = pod.requests.get(resource)
    return 0 if amount is None else amount.milli if resource == "cpu" else amount.value


def _causes(spared: list[Pod], used: Amounts, wanted: int, resource: str) -> list[str]:
    """Those that use at least a tenth of what is to be released beyond their request, the largest excess first."""
    promised = set(eviction.promised(resource))
    excess = {}
    for pod in spared:
        if pod.active and pod.name in used:
            requests = [amount for name, amount in eviction.request(pod, resource).items() if name in promised]
            excess[pod.name] = used[pod.name] - max([*requests, _native(pod, resource)])
    return sorted((n for n, amount in excess.items() if 0 < wanted <= amount * 10), key=lambda name: -excess[name])


def _candidates(given: Any, feature: str, pods: list[Pod], used: Amounts, rules: Rules) -> list[Pod]:
    allowed = [pod for pod in pods if eviction.allows(pod.annotations, feature)]
    if feature in (evict_config.BE_CPU, evict_config.BE_MEMORY):
        ours = [p for p in allowed if p.raw_qos is QoSClass.BE and (p.active or FINISHED not in rules)]
        by_name = sorted(ours, key=lambda pod: pod.name, reverse=True)
        return sorted(by_name, key=lambda pod: (pod.priority or 0, -used.get(pod.name, 0)))
    requests = feature in (evict_config.ALLOCATABLE_CPU, evict_config.ALLOCATABLE_MEMORY)
    resource = "memory" if "emory" in feature else "cpu"
    bound = given["thresholdStrategy"][
        "allocatableEvictPriorityThreshold" if requests else "evictEnabledPriorityThreshold"
    ]

    def rank(pod: Pod) -> tuple[int, ...]:
        most = sum(eviction.request(pod, resource).values()) if requests else used[pod.name]
        return eviction.priority(pod), pod.priority_value, eviction.sub_priority(pod, pod.priority_value), -most

    free = [p for p in allowed if p.active and eviction.enabled(p) and p.name in used and p.priority_value <= bound]
    return sorted(sorted(free, key=lambda pod: pod.key), key=rank)
