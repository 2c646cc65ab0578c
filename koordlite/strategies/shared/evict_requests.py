"""The rule about requests: batch and mid pods go when they request more than the node still promises.

Source: Koordinator `calculateMilliReleaseByAllocatableThresholdPercent` (CPU) and
`calculateReleaseByAllocatableThresholdPercent` (memory). Requests of pods that have ended, and of classes that no
batch or mid resource stands behind, count for nothing: they cannot be released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from koordlite.formulas.eviction import evict_order, evict_release
from koordlite.formulas.eviction.evict_order import Candidates, Excess
from koordlite.formulas.eviction.evict_walk import Task
from koordlite.model.decision import Decision
from koordlite.model.pod import eviction
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.strategies.shared import evict
from koordlite.strategies.shared.evict import Evidence, Past, Rule

Formula = Callable[..., int]
_FORMULAS: Mapping[str, Formula] = {
    "cpu": lambda *, requested, allocatable, **ends: evict_release.requested_cpu(
        requested_milli=requested, allocatable_milli=allocatable, **ends
    ),
    "memory": evict_release.requested_memory,
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the configuration for requests of one resource."""

    feature: str
    resource: str
    """cpu or memory."""
    threshold_percent: int
    lower_percent: int
    priority_threshold: int
    wait_seconds: float
    """How long a resource has to be without allocatable before it counts."""


def rule(snapshot: NodeSnapshot, past: Past, limits: Limits) -> Rule:
    """Measure the requests of the node's batch and mid pods against what the node promises."""
    requests = {pod.uid: _promised_request(pod, limits.resource) for pod in snapshot.pods if pod.active}
    release, evidence = _release(snapshot, past, limits, requests)
    candidates = _candidates(snapshot, limits)
    if not release:
        waits = any(past.time - since < limits.wait_seconds for since in _lacking(past, evidence).values())
        reason = "AllocatableJustGone" if waits else "RequestsUnderThreshold"
        return Rule(Decision(f"evict/{limits.feature}", "hold", reason, evidence), candidates=candidates)
    decision = Decision(f"evict/{limits.feature}", "hold", "RequestsOverThreshold", evidence)
    given = {uid: {name: held[name] for name in held if name in release} for uid, held in requests.items()}
    uids = tuple(pod.uid for pod in candidates.order)
    task = Task(limits.feature, eviction.REQUESTED, release, uids, given)
    return Rule(decision, task, candidates, f"batch and mid pods request more {limits.resource} than the node promises")


def _candidates(snapshot: Snapshot, limits: Limits) -> Candidates:
    return evict_order.by_priority(
        snapshot.pods,
        feature=limits.feature,
        priority_threshold=limits.priority_threshold,
        amounts={pod.uid: sum(eviction.request(pod, limits.resource).values()) for pod in snapshot.pods},
        excess=Excess(limits.resource, _used(snapshot, limits.resource)),
    )


def _used(snapshot: Snapshot, resource: str) -> dict[str, int]:
    return {uid: use.cpu if resource == "cpu" else use.memory for uid, use in snapshot.usage.pods.items()}


def _promised_request(pod: Pod, resource: str) -> dict[str, int]:
    names = eviction.promised(resource)
    return {name: amount for name, amount in eviction.request(pod, resource).items() if name in names}


def _release(
    snapshot: NodeSnapshot, past: Past, limits: Limits, requests: Mapping[str, Mapping[str, int]]
) -> tuple[dict[str, int], Evidence]:
    """By resource what has to go, and the terms."""
    evidence: Evidence = {"threshold_percent": limits.threshold_percent, "lower_percent": limits.lower_percent}
    release: dict[str, int] = {}
    low = [pod for pod in snapshot.pods if pod.priority_value <= limits.priority_threshold]
    for name, requested in _sums(low, requests).items():
        allocatable = snapshot.node.allocatable[name].value if name in snapshot.node.allocatable else 0
        ends = {"threshold_percent": limits.threshold_percent, "lower_percent": limits.lower_percent}
        amount = _FORMULAS[limits.resource](requested=requested, allocatable=allocatable, **ends)
        lacks = past.time - past.lacking.get(name, past.time - limits.wait_seconds)
        release |= {name: amount} if amount > 0 and lacks >= limits.wait_seconds else {}
        evidence |= {**evict.amounts("requested", {name: requested}), **evict.amounts("promised", {name: allocatable})}
    return release, {**evidence, **evict.amounts("release", release)}


def _sums(pods: Sequence[Pod], requests: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for pod in pods:
        for name, amount in requests.get(pod.uid, {}).items():
            sums[name] = sums.get(name, 0) + amount
    return {name: amount for name, amount in sorted(sums.items()) if amount > 0}


def _lacking(past: Past, evidence: Evidence) -> dict[str, float]:
    """Resources without allocatable that pods request."""
    return {n: at for n, at in past.lacking.items() if set(evict.amounts("requested", {n: 0})) <= set(evidence)}


SENTENCES = {
    "RequestsUnderThreshold": "batch and mid pods request no more than {threshold_percent} of the node's allocatable",
    "RequestsOverThreshold": (
        "batch and mid pods request more than {threshold_percent} of the node's allocatable; the target is"
        " {lower_percent}[: {release_batch_cpu_milli} cores of batch to release]"
        "[: {release_mid_cpu_milli} cores of mid to release][: {release_batch_memory_bytes} of batch to release]"
        "[: {release_mid_memory_bytes} of mid to release]"
        "[; all candidates together would release only {reach_batch_cpu_milli} cores of batch]"
        "[; all candidates together would release only {reach_mid_cpu_milli} cores of mid]"
        "[; all candidates together would release only {reach_batch_memory_bytes} of batch]"
        "[; all candidates together would release only {reach_mid_memory_bytes} of mid]"
    ),
    "AllocatableJustGone": "the node's allocatable has dropped to nothing, but not for long enough to evict for it",
}
"""By reason, for the strategies that share this; see `strategies.sentences`."""
