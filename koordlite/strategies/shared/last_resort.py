"""Last resort when memory runs out and nobody answers an eviction: containers of best-effort pods are killed.

The Eviction API is always asked first. Only when it has refused or not answered for as long as the configuration says,
the rule still wants memory released, and nothing is on its way out, do processes die: in the order of the rule's
candidates, and no more of them than a round may evict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.changes.eviction import KillContainer
from koordlite.formulas.eviction.evict_walk import Task
from koordlite.model.decision import Decision
from koordlite.model.pod import eviction
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import EvictionSettings
from koordlite.model.snapshot import Snapshot, gives_way, recalled
from koordlite.strategies.shared import evict
from koordlite.strategies.shared.evict import EvictionMemory, Evidence, Rule

KILLED_SECONDS = 60.0
"""A pod whose containers were killed is left alone for so long: kubelet starts them again, and later each time."""


class LastResort(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that may kill, and how long evictions have to fail before."""

    strategy: str
    seconds: Mapping[str, float]
    """By feature; 0 never."""
    config: EvictionSettings
    cool_down_seconds: float


def added(
    snapshot: Snapshot, found: Sequence[Decision], rules: Mapping[str, Rule], allowed: LastResort
) -> Iterator[Decision]:
    """The decisions of a round, with those about pods that are killed in place of theirs.

    `rules` are those that were measured in this round; none where something kept the round from being judged.
    """
    # An agent that observes asks for no eviction, so none of them has failed.
    if not any(allowed.seconds.values()) or allowed.config.mode != "enforce":
        yield from found
    elif snapshot.layout.version == 1:
        yield from (*found, Decision("evict/last-resort", "skip", "LastResortImpossible"))
    else:
        this = _Round(snapshot, rules, allowed, recalled(snapshot, allowed.strategy, EvictionMemory))
        dying = dict(this.dying())
        subjects = {decision.subject for decision in dying.values()}
        killed = {**this.killed, **dict.fromkeys(dying, snapshot.time)}
        staying = [decision for decision in found if decision.subject not in subjects]
        yield from _remembering(staying, this.stuck, killed)
        yield from dying.values()


class _Round:
    """One look at what evictions have come to."""

    def __init__(
        self, snapshot: Snapshot, rules: Mapping[str, Rule], allowed: LastResort, before: EvictionMemory
    ) -> None:
        self._snapshot, self._rules, self._allowed, self._before = snapshot, rules, allowed, before
        since = {name: self._stuck_since(name) for name, seconds in allowed.seconds.items() if seconds > 0}
        self.stuck = {name: at for name, at in since.items() if at is not None}
        """Since when evictions fail, by rule."""
        self.killed = {uid: at for uid, at in before.killed.items() if snapshot.time - at < KILLED_SECONDS}
        """When pods were killed, by uid."""

    def _stuck_since(self, feature: str) -> float | None:
        """Since when evictions for the rule come to nothing; None when they do not, or nothing has to go."""
        snapshot, known, rule = self._snapshot, self._before.stuck.get(feature), self._rules.get(feature)
        if rule is None:
            return known
        past = evict.rounds_before(snapshot, self._allowed.strategy, eviction.promised("memory"))
        if rule.task is None or past.going(snapshot):
            return None
        failed = evict.unanswered(snapshot, self._before) | snapshot.refused_evictions.keys()
        return snapshot.time if known is None and failed & set(rule.task.candidates) else known

    def dying(self) -> Iterator[tuple[str, Decision]]:
        """By uid, the pods whose containers are killed now: of the first rule that has waited for long enough. What
        that changes has to be seen before another one is served."""
        time, cooling = self._snapshot.time, self._allowed.cool_down_seconds
        if any(time - at < cooling for at in self.killed.values()):
            return
        for feature, since in self.stuck.items():
            rule = self._rules.get(feature)
            if rule and rule.task and time - since >= self._allowed.seconds[feature]:
                yield from self._for(rule, rule.task, time - since)
                return

    def _for(self, rule: Rule, task: Task, waited: float) -> Iterator[tuple[str, Decision]]:
        pods, missing = {pod.uid: pod for pod in self._snapshot.pods}, sum(task.to_release.values())
        left = self._allowed.config.max_evictions_per_round
        for uid in task.candidates:
            releases = sum(task.contributions.get(uid, {}).values())
            pod = pods.get(uid)
            if missing <= 0 or left <= 0:
                return
            if pod and releases and uid not in self.killed and _may_die(self._snapshot, pod):
                yield uid, _killed(self._snapshot, pod, task, rule.cause, waited)
                missing, left = missing - releases, left - 1


def _may_die(snapshot: Snapshot, pod: Pod) -> bool:
    """Only what says it is best effort, and lives there."""
    return pod.raw_qos is QoSClass.BE and pod.active and pod.uid in snapshot.places and gives_way(snapshot, pod)


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


def _remembering(
    found: Sequence[Decision], stuck: Mapping[str, float], killed: Mapping[str, float]
) -> Iterator[Decision]:
    """The round's own memory with that of the last resort: the last decision that remembers wins."""
    last = max((index for index, each in enumerate(found) if each.remember is not None), default=len(found) - 1)
    for index, each in enumerate(found):
        if index == last:
            memory = each.remember if isinstance(each.remember, EvictionMemory) else EvictionMemory()
            yield msgspec.structs.replace(each, remember=msgspec.structs.replace(memory, stuck=stuck, killed=killed))
        else:
            yield each


SENTENCES = {
    "LastResort": (
        "its {containers} containers are killed for {feature}: evictions have failed for {waited_seconds} ({why})"
    ),
    "LastResortImpossible": "containers can be killed as a last resort only where the node has cgroup v2",
}
"""By reason, for the strategies that share this; see `strategies.sentences`."""
