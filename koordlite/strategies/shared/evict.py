"""Evictions as decisions: what each rule wants released, and what becomes of every pod of the node.

The frame is the same for CPU and memory: check whether the input may be trusted, wait out the cool-down, measure with
each rule, walk through the candidates, explain. Source: Koordinator's `cpuevict` and `memoryevict` plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.formulas.eviction import evict_config, evict_order, evict_release, evict_walk
from koordlite.formulas.eviction.evict_order import Candidates, Excess
from koordlite.formulas.eviction.evict_walk import LEAVING_SECONDS, Amounts, Task, Walk
from koordlite.model.decision import Decision, Verdict
from koordlite.model.pod import eviction
from koordlite.model.pod.values import Pod
from koordlite.model.settings import EvictionSettings, Memory
from koordlite.model.snapshot import NodeSnapshot, Snapshot, has_node, recalled

MOST_NAMES = 50
"""Maximum number of pods named of a queue."""
Evidence = dict[str, int | float | str]

_WORDS = {
    "chosen": "ChosenForEviction",
    "leaving": "AlreadyLeaving",
    "refused": "EvictionRefused",
    "later": "NextRound",
    "reach": "GoalOutOfReach",
    "enough": "EnoughReleased",
    "nothing": "ReleasesNothing",
    "sample": "NoPodSample",
    "label": "EvictionNotEnabled",
    "priority": "PriorityTooHigh",
    "policy": "EvictionPolicyForbids",
    "class": "NotBestEffort",
    "finished": "PodHasEnded",
}
"""Reason word of a pod by the word of the walk or the bar. Where rules differ, the first in this table wins."""


class EvictionMemory(Memory, frozen=True, kw_only=True):
    """State that one round leaves for the next; times by `Snapshot.time`, pods by uid."""

    started: float | None = None
    """Time at which the strategy first judged."""
    evicted: float | None = None
    """Time at which the cluster last accepted an eviction of this strategy."""
    granted: int = 0
    """Evictions the cluster accepted in a round that it cut short by refusals: others go on with it, without waiting
    for the cool-down, and it has its bound as one. 0 for a round of its own."""
    asked: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Pods whose eviction the last round asked for, and when."""
    leaving: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Pods that are being deleted, and since when."""
    lacking: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Resources without any allocatable, and since when."""
    stuck: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Rules whose evictions come to nothing, by feature, and since when."""
    killed: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Pods whose containers were killed, and when."""


class Past(msgspec.Struct, frozen=True):
    """The rounds before, as seen from `time`."""

    time: float
    memory: EvictionMemory
    """Brought up to the present."""
    evictees: Collection[str] = ()
    """Pods, by uid, whose eviction another strategy has decided on this very picture."""

    def cooling_seconds(self, cool_down_seconds: float, *, from_start: bool) -> float:
        """Seconds for which nothing may be evicted yet; 0 when something may. `from_start`: the start counts as an
        eviction."""
        if self.memory.granted:
            return 0.0
        since = [self.memory.started] if from_start else []
        times = [at for at in (*since, self.memory.evicted) if at is not None]
        return max(0.0, max(times) + cool_down_seconds - self.time) if times else 0.0

    def going(self, snapshot: Snapshot) -> frozenset[str]:
        """Pods that are on their way out and count as released, whoever has asked for it."""
        uids = {pod.uid for pod in snapshot.pods}
        times = {**self.memory.leaving, **dict.fromkeys(self.evictees, self.time), **snapshot.evicted}
        return frozenset(uid for uid, at in times.items() if uid in uids and self.time - at < LEAVING_SECONDS)

    def remember(self, evictees: Iterable[str] = ()) -> EvictionMemory:
        """Memory for the next round; `evictees` are the pods whose eviction is asked for in this one."""
        return msgspec.structs.replace(self.memory, asked=dict.fromkeys(evictees, self.time))


class Rule(msgspec.Struct, frozen=True):
    """A feature, measured. `decision` is what it found; without a release there is no task."""

    decision: Decision
    task: Task | None = None
    candidates: Candidates = evict_order.NOBODY
    cause: str = ""
    """Reason why pods have to go, for the people who own them."""
    excess: Excess | None = None
    """Use beyond the request, where the rule goes by use."""


Measure = Callable[[NodeSnapshot, Past], Rule]


def judge(
    snapshot: Snapshot,
    config: EvictionSettings,
    measures: Mapping[str, Measure],
    past: Past,
    *,
    capacity: int,
    cool_down_seconds: float,
    from_start: bool,
) -> tuple[Sequence[Decision], Mapping[str, Rule]]:
    """All decisions of one strategy, and the rules that were measured, by feature. `measures` are its features that are
    on, in the order in which they are served.

    `capacity` is the node's of the resource that is judged, 0 when it is unknown. `from_start`: the cool-down also
    counts from the start of the agent.
    """
    if not measures:
        return (Decision("evict", "hold", "NoEvictionRule"),), {}
    cooling_seconds = past.cooling_seconds(cool_down_seconds, from_start=from_start)
    barred = _untrusted(snapshot, config, capacity)
    if not barred and cooling_seconds > 0:
        # Pods went a moment ago, or the agent has just started: what that changes has to be seen first.
        evidence: Evidence = {"left_seconds": round(cooling_seconds, 1), "cool_down_seconds": cool_down_seconds}
        barred = Decision("evict", "hold", "CoolingDown", evidence)
    if barred or not has_node(snapshot):
        return (msgspec.structs.replace(barred, remember=past.remember()),) if barred else (), {}
    rules: dict[str, Rule] = {}
    for feature, measure in measures.items():
        # A configuration that contradicts itself is refused, and measures nothing.
        wrong = evict_config.mistake(feature, snapshot.slo.threshold)
        refusal = Rule(Decision(f"evict/{feature}", "refuse", "BadEvictionConfig", {"why": wrong}))
        rules[feature] = refusal if wrong else measure(snapshot, past)
    return tuple(decisions(snapshot, config, past, tuple(rules.values()))), rules


def _untrusted(snapshot: Snapshot, config: EvictionSettings, capacity: int) -> Decision | None:
    """Reason why no pod may be evicted on this picture: switched off, no node, or input that is missing or too old."""
    if not snapshot.slo.threshold.enable:
        return Decision("evict", "hold", "Disabled")
    if snapshot.node is None or capacity <= 0:
        return Decision("evict", "skip", "NoNode")
    limits = {"usage": config.usage_age_seconds, **dict.fromkeys(("node", "pods", "config"), config.input_age_seconds)}
    old = {name: snapshot.ages[name] for name, limit in limits.items() if snapshot.ages.get(name, 0.0) > limit}
    if old:
        ages = ", ".join(f"{name} {age:.0f} s" for name, age in sorted(old.items()))
        return Decision("evict", "skip", "StaleInput", {"ages": ages})
    if snapshot.usage.node is None:
        return Decision("evict", "skip", "NoMetrics", {"ageSeconds": round(snapshot.ages.get("usage", 0.0))})
    return None


def decisions(snapshot: Snapshot, config: EvictionSettings, past: Past, rules: Sequence[Rule]) -> Iterator[Decision]:
    """Decisions of the rules, and, when one of them wants something released, a decision for each pod."""
    tasks = [rule.task for rule in rules if rule.task]
    # The bound is one for all that is evicted on a picture, and for a round that goes on after refusals.
    most = config.max_evictions_per_round - past.memory.granted - len(past.evictees)
    walk = evict_walk.walk(
        tasks,
        leaving=past.going(snapshot),
        refused=snapshot.refused_evictions,
        most=max(most, 0),
        partly=config.evict_partly,
    )
    evictees = {uid for (_, uid), fate in walk.fates.items() if fate == "chosen"}
    for rule in rules:
        evicts = rule.task is not None and any(walk.fates.get((rule.task.feature, uid)) == "chosen" for uid in evictees)
        if rule.task:
            # What all candidates together would release, where that does not suffice and so no pod goes.
            reach = amounts("reach", walk.within_reach.get(rule.task.feature, {}))
            of_rule = msgspec.structs.replace(rule.decision, evidence={**rule.decision.evidence, **reach})
        else:
            of_rule = _with_queue(rule.decision, rule.candidates, snapshot.pods)
        yield msgspec.structs.replace(of_rule, verdict="evict" if evicts else of_rule.verdict)
    if tasks:
        yield from (decision for pod in snapshot.pods if (decision := _of_pod(pod, rules, walk, snapshot)))
    # What still lacks once those that go and those that leave are gone.
    missing: dict[str, int] = {}
    for task in tasks:
        missing = evict_walk.larger(missing, evict_walk.remaining(task.to_release, walk.released[task.target]))
    evidence: Evidence = {"rules": len(tasks), "chosen": len(evictees), **amounts("missing", missing)}
    verdict: Verdict = "evict" if evictees else "hold"
    yield Decision("evict", verdict, "EvictionRound", evidence, remember=past.remember(evictees))


def _with_queue(decision: Decision, candidates: Candidates, pods: Sequence[Pod]) -> Decision:
    """Add who would go, in order, and who not, where nothing has to be released and so no pod gets a decision."""
    stay: dict[str, list[str]] = {}
    for pod in pods:
        if pod.uid in candidates.barred:
            stay.setdefault(_WORDS[candidates.barred[pod.uid]], []).append(pod.key)
    queue = {
        "queue": _names([pod.key for pod in candidates.order]),
        "stay": "; ".join(f"{word}: {_names(names)}" for word, names in sorted(stay.items())),
    }
    return msgspec.structs.replace(
        decision, evidence={**decision.evidence, **{name: text for name, text in queue.items() if text}}
    )


def _names(pods: Sequence[str]) -> str:
    more = [f"and {len(pods) - MOST_NAMES} more"] if len(pods) > MOST_NAMES else []
    return " ".join((*pods[:MOST_NAMES], *more))


def amounts(prefix: str, quantities: Amounts) -> Evidence:
    """Amounts by resource name as evidence: `release_batch_cpu_milli`, `release_memory_bytes`."""
    return {
        f"{prefix}_{name.rpartition('/')[2].replace('-', '_')}_{'milli' if name.endswith('cpu') else 'bytes'}": amount
        for name, amount in quantities.items()
    }


def _of_pod(pod: Pod, rules: Sequence[Rule], walk: Walk, snapshot: Snapshot) -> Decision | None:
    """Decision about a pod: the one that says most, by the order of the words."""
    fates = [
        (fate, rule, rule.task)
        for rule in rules
        if rule.task and (fate := walk.fates.get((rule.task.feature, pod.uid)) or rule.candidates.barred.get(pod.uid))
    ]
    if not fates:
        return None
    fate, rule, task = min(fates, key=lambda each: list(_WORDS).index(each[0]))
    evidence: Evidence = {"feature": task.feature}
    if pod.uid in task.candidates:
        evidence |= {"rank": list(task.candidates).index(pod.uid) + 1, "candidates": len(task.candidates)}
    evidence |= {"priority": pod.priority_value, **amounts("releases", task.contributions.get(pod.uid, {}))}
    evidence |= amounts("over_request", {rule.excess.resource: rule.excess.of(pod)}) if rule.excess else {}
    own, refusal = rule.candidates.unprotected.get(pod.uid), snapshot.refused_evictions.get(pod.uid)
    evidence |= {"ignored": own} if own else {}
    evidence |= {} if refusal is None else {"why": refusal}
    if fate != "chosen":
        return Decision(f"pod/{pod.key}", "hold", _WORDS[fate], evidence)
    change = EvictPod(pod.namespace, pod.name, pod.uid, f"{rule.cause}: {task.feature}")
    return Decision(f"pod/{pod.key}", "evict", _WORDS[fate], evidence, (change,))


def by_use(
    snapshot: Snapshot,
    feature: str,
    resource: Literal["cpu", "memory"],
    *,
    used: Sequence[int],
    capacity: int,
    percents: tuple[int | None, int | None],
    choose: Callable[[Excess], Candidates],
    terms: Evidence,
    numa: int | None = None,
    local: Mapping[str, int] | None = None,
) -> Rule:
    """The rule of a resource that is used beyond its threshold, by each of the amounts `used` of `capacity`: what
    decides, and what is used at present where that is another one. When it is over, it is over.

    `percents` are threshold and lower end, `terms` further evidence. On the NUMA node `numa` it is about that alone,
    `local` is what each pod has there, and somebody must be `bound` to it.
    """
    upper, lower = percents[0] or 0, evict_config.lower_end(percents[0] or 0, percents[1])
    at = [evict_release.use_percent(used=each, capacity=capacity) for each in used]
    terms = {
        **({} if numa is None else {"numa": numa}),
        **dict(zip(("used_percent", "last_percent"), at, strict=False)),
        "threshold_percent": upper,
        "lower_percent": lower,
        **terms,
    }
    release = min(
        evict_release.by_use(used=each, capacity=capacity, threshold_percent=upper, lower_percent=lower)
        for each in used
    )
    if release and numa is not None and "bound" not in terms:
        return Rule(Decision(f"evict/{feature}", "hold", "NobodyBound", terms))
    excess = Excess(resource, used_by_pods(snapshot, resource), release, local)
    candidates = choose(excess)
    if not release:
        return Rule(Decision(f"evict/{feature}", "hold", "UseUnderThreshold", terms), candidates=candidates)
    # So much brings the use below the threshold.
    least = min(evict_release.to_threshold(used=max(used), capacity=capacity, threshold_percent=upper), release)
    where = "the node" if numa is None else f"NUMA node {numa}"
    task = Task(
        feature=feature,
        target=eviction.USED if numa is None else f"{eviction.USED} {where}",
        to_release={resource: release},
        candidates=tuple(pod.uid for pod in candidates.order),
        contributions=contributions(snapshot.pods, resource, excess.releasable),
        least={resource: least} if candidates.cause_stays else {},
    )
    decision = Decision(
        f"evict/{feature}", "hold", "UseOverThreshold", {**terms, **amounts("release", {resource: release})}
    )
    name = "CPU" if resource == "cpu" else resource
    cause = f"{where} uses {at[0]} % of its {name}, {upper} % are allowed"
    return Rule(decision, task, candidates, cause, excess)


def used_by_pods(snapshot: Snapshot, resource: Literal["cpu", "memory"]) -> dict[str, int]:
    """Use of each pod, by uid: millicores or bytes."""
    return {uid: use.cpu if resource == "cpu" else use.memory for uid, use in snapshot.usage.pods.items()}


def by_requests(
    snapshot: NodeSnapshot,
    past: Past,
    *,
    resource: Literal["cpu", "memory"],
    wait_seconds: float,
) -> Rule:
    """Batch and mid pods request more than the node still promises. `wait_seconds` is how long a resource has to be
    without allocatable before it counts.

    Requests of pods that have ended, and of classes that no batch or mid resource stands behind, count for nothing:
    they cannot be released. Source: Koordinator `calculateMilliReleaseByAllocatableThresholdPercent` (CPU) and
    `calculateReleaseByAllocatableThresholdPercent` (memory).
    """
    ends = snapshot.slo.threshold
    feature = evict_config.ALLOCATABLE_CPU
    percents = ends.cpu_allocatable_evict_threshold_percent, ends.cpu_allocatable_evict_lower_percent
    if resource == "memory":
        feature = evict_config.ALLOCATABLE_MEMORY
        percents = ends.memory_allocatable_evict_threshold_percent, ends.memory_allocatable_evict_lower_percent
    formula = evict_release.requested_cpu if resource == "cpu" else evict_release.requested_memory
    threshold_percent, lower_percent = (percent or 0 for percent in percents)
    most = ends.allocatable_evict_priority_threshold or 0
    promised, lacking = eviction.promised(resource), past.memory.lacking
    requests = {
        pod.uid: {name: amount for name, amount in eviction.request(pod, resource).items() if name in promised}
        for pod in snapshot.pods
        if pod.active
    }
    evidence: Evidence = {"threshold_percent": threshold_percent, "lower_percent": lower_percent}
    sums: dict[str, int] = {}
    for pod in snapshot.pods:
        if pod.priority_value <= most:
            for name, amount in requests.get(pod.uid, {}).items():
                sums[name] = sums.get(name, 0) + amount
    release: dict[str, int] = {}
    sums = {name: amount for name, amount in sorted(sums.items()) if amount > 0}
    for name, requested in sums.items():
        allocatable = snapshot.node.allocatable[name].value if name in snapshot.node.allocatable else 0
        amount = formula(requested, allocatable, threshold_percent=threshold_percent, lower_percent=lower_percent)
        if amount > 0 and (name not in lacking or past.time - lacking[name] >= wait_seconds):
            release[name] = amount
        evidence |= {**amounts("requested", {name: requested}), **amounts("promised", {name: allocatable})}
    evidence |= amounts("release", release)
    candidates = evict_order.by_priority(
        snapshot.pods,
        feature=feature,
        priority_threshold=most,
        amounts={pod.uid: sum(eviction.request(pod, resource).values()) for pod in snapshot.pods},
        excess=Excess(resource, used_by_pods(snapshot, resource)),
    )
    if not release:
        waits = any(past.time - since < wait_seconds for name, since in lacking.items() if name in sums)
        reason = "AllocatableJustGone" if waits else "RequestsUnderThreshold"
        return Rule(Decision(f"evict/{feature}", "hold", reason, evidence), candidates=candidates)
    releases = {uid: {name: request[name] for name in request if name in release} for uid, request in requests.items()}
    task = Task(feature, eviction.REQUESTED, release, tuple(pod.uid for pod in candidates.order), releases)
    decision = Decision(f"evict/{feature}", "hold", "RequestsOverThreshold", evidence)
    return Rule(decision, task, candidates, f"batch and mid pods request more {resource} than the node promises")


def users(snapshot: Snapshot, feature: str, excess: Excess) -> Candidates:
    """Pods that allow their eviction, up to the priority threshold of the ConfigMap."""
    return evict_order.by_priority(
        snapshot.pods,
        feature=feature,
        priority_threshold=snapshot.slo.threshold.evict_enabled_priority_threshold or 0,
        amounts=excess.used,
        excess=excess,
    )


def contributions(pods: Sequence[Pod], name: str, by_uid: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Amounts of one resource as contributions, by uid."""
    return {pod.uid: {name: by_uid[pod.uid]} for pod in pods if pod.uid in by_uid}


def rounds_before(
    snapshot: Snapshot, strategy: str, resources: Iterable[str], *, evictees: Collection[str] = ()
) -> Past:
    """Rounds before, as `strategy` remembers them, brought up to the present. `resources` are those whose allocatable
    matters to it."""
    before = recalled(snapshot, strategy, EvictionMemory)
    allocatable = snapshot.node.allocatable if snapshot.node else {}
    lacking = [name for name in resources if name not in allocatable or allocatable[name].nano <= 0]
    accepted = _accepted(snapshot, before)
    refused = [uid for uid in before.asked if uid in snapshot.refused_evictions and uid not in accepted]
    memory = EvictionMemory(
        started=snapshot.time if before.started is None else before.started,
        # Only what was accepted since starts the cool-down, not what was asked for.
        evicted=max([*([] if before.evicted is None else [before.evicted]), *accepted.values()], default=None),
        # Accepted evictions of the round so far, as long as its last ones were refused in part.
        granted=before.granted + len(accepted) if refused else 0,
        leaving={p.uid: before.leaving.get(p.uid, snapshot.time) for p in snapshot.pods if p.deleting and p.active},
        lacking={name: before.lacking.get(name, snapshot.time) for name in lacking},
    )
    return Past(snapshot.time, memory, evictees)


def _accepted(snapshot: Snapshot, before: EvictionMemory) -> dict[str, float]:
    """Pods asked for in the round before whose eviction was accepted since, and when."""
    return {uid: snapshot.evicted[uid] for uid, at in before.asked.items() if snapshot.evicted.get(uid, -1.0) >= at}


def unanswered(snapshot: Snapshot, before: EvictionMemory) -> frozenset[str]:
    """Pods asked for in the round before that the cluster has not let go."""
    return frozenset(before.asked) - frozenset(_accepted(snapshot, before))
