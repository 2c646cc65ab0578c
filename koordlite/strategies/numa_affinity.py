"""Bring pods that talk to each other, or were declared to belong together, onto one NUMA node: CPUs, and memory.

It decides only for pods that share the CPUs of latency-sensitive work, and narrows what they may have: their shared
pool to the part of it on one NUMA node. Which pods talk is counted when the picture is taken (`Snapshot.affinity`).
`cpusetPools` leaves a pod to this strategy from the tick after it was placed until the tick after it was released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas.topology import affinity as rules
from koordlite.formulas.topology.affinity import Tie
from koordlite.model import cpuset, keys
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.decision import Decision, Verdict
from koordlite.model.memory import Memory
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import affinity, affinity_placing
from koordlite.strategies.shared.affinity import AffinityMemory, Config
from koordlite.strategies.shared.affinity_placing import CPUS, ENDED, MEMS, RENAMED, Placing

NAME = affinity.NAME
SUBJECT = "affinity"
Numbers = dict[str, int | float | str]


def pod_reads(_slo: SLO, pods: Iterable[Pod]) -> dict[str, tuple[str, ...]]:
    """Files that say where pods that could be placed take memory from."""
    return {pod.uid: (MEMS,) for pod in pods if pod.active and not pod.is_best_effort}


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about the node, and about each pod that has, had or nearly has a place."""
    policy, why = snapshot.kubelet.cpu_manager_policy, ""
    if not snapshot.slo.numa_policy.pod_affinity:
        why = "AffinityClosed"
    elif not policy:
        # As after a start of the agent, before kubelet has answered: what is placed stays.
        yield Decision(SUBJECT, "refuse", "AffinityPolicyUnknown")
        return
    elif policy != "none":
        why = "AffinityLeftToKubelet"
    elif len(affinity.ls_pools(snapshot)) < 2:
        why = "OneNUMANodeOnly"
    if not why:
        yield from _Answer(snapshot, config).decisions()
        return
    verdict: Verdict = "hold" if why == "AffinityClosed" else "refuse"
    yield Decision(SUBJECT, verdict, why, remember=_same(snapshot, AffinityMemory()))
    yield from _released(snapshot, {}, {})


class _Answer:
    """The decisions about one picture."""

    def __init__(self, snapshot: Snapshot, config: Config) -> None:
        self.snapshot, self.config = snapshot, config
        self.placing = Placing(snapshot, config)
        self.pods = self.placing.pods
        self.memory = affinity_placing.memory_stays(snapshot, self.pods, self.placing.after, config)
        """Why the memory of a placed pod does not follow it, by uid; empty for those whose memory does."""

    def decisions(self) -> Iterator[Decision]:
        """All of them; the node's says what is to be remembered."""
        yield self._node()
        after, leaving = self.placing.after, self.placing.leaving
        for uid in sorted(after, key=lambda uid: self.pods[uid].key):
            yield self._placed(uid)
        yield from self._not_placed()
        staying = {uid: (CPUS,) if self.memory.get(uid) else (CPUS, MEMS) for uid in after}
        yield from _released(self.snapshot, staying, {self.pods[uid].key: why for uid, why in leaving.items()})

    def _node(self) -> Decision:
        evidence = {"placed": len(self.placing.after), "ties": len(self.placing.ties.lasting)}
        connections = self.snapshot.affinity.connections
        remember = _same(self.snapshot, self.placing.remember())
        if connections is None:
            reason = "NothingCountedYet" if self.config.sample_seconds else "AffinityDeclaredOnly"
            return Decision(SUBJECT, "hold", reason, evidence, remember=remember)
        numbers: Numbers = {
            "connections": sum(connections.totals.values()),
            "pods": len(connections.totals),
            "pairs": len(connections.talks),
            "join_percent": self.config.join_percent,
        }
        if connections.uncounted:
            numbers["uncounted"] = len(connections.uncounted)
        return Decision(SUBJECT, "hold", "ConnectionsCounted", {**evidence, **numbers}, remember=remember)

    def _placed(self, uid: str) -> Decision:
        pod, place, node = self.pods[uid], self.snapshot.places[uid], self.placing.after[uid]
        sets = affinity.container_cpus(self.snapshot, place, self.placing.pools[node])
        own = cpuset.union(sets[group] for group in place.containers.values())
        reason, numbers = self._because(uid, node)
        evidence: Numbers = {"numa_node": node, "cpuset": str(own), **numbers}
        evidence |= {"memory_stays": self.memory[uid]} if self.memory[uid] else {"mems": str(node)}
        changes, cgroups = list[CgroupChange](), self.snapshot.cgroups
        was_placed = self.placing.before.get(uid) == node
        # `cpusetPools` writes these sets until it has seen that the pod is placed.
        if was_placed or not self.snapshot.affinity.enforced:
            present = {group: cgroups[group].cpuset for group, cpus in sets.items() if cpus and group in cgroups}
            changes += [
                CgroupChange(group, CPUS, sets[group])
                for group, cpus in present.items()
                if cpus not in (None, sets[group])
            ]
            changes += [
                CgroupChange(group, MEMS, 1 << node)
                for group in place.containers.values()
                if not self.memory[uid] and group in cgroups
                if cgroups[group].values.get(MEMS) not in (None, 1 << node)
            ]
        verdict: Verdict = "set" if changes or not was_placed else "hold"
        return Decision(f"pod/{pod.key}", verdict, reason, evidence, tuple(changes))

    def _because(self, uid: str, node: int) -> tuple[str, Numbers]:
        """The strongest tie to this NUMA node."""
        if self.placing.named.get(uid) == node:
            return "NUMAAffinityNamed", {}
        where, ties = {**self.placing.tied, **self.placing.after}, self.placing.ties
        for tie in (*ties.lasting, *(tie for tie, _ in ties.pending)):
            if uid in (tie.first, tie.second) and where.get(tie.other(uid)) == node:
                return ("NUMAAffinityDeclared" if tie.group else "NUMAAffinity"), self._about(uid, tie)
        return "NUMAAffinityFading", {"rounds": self.placing.alone.get(uid, 0), "needed": self.config.rounds}

    def _about(self, uid: str, tie: Tie) -> Numbers:
        """Its partner, and how much of whose connections are between them: of its own if these are enough."""
        other = self.pods.get(tie.other(uid))
        if other is None:
            return {"partner": f"NUMA node {self.placing.named[uid]}, which Oenuma names"}
        if tie.group:
            return {"partner": other.key, "group": tie.group}
        connections = self.snapshot.affinity.connections
        totals = connections.totals if connections else {}
        own = totals.get(uid, 0)
        percent = 100 * tie.connections // own if own else 0
        is_own = percent >= self.config.join_percent
        return {
            "partner": other.key,
            "percent": percent if is_own else tie.percent,
            "connections": tie.connections,
            "total": own if is_own else totals.get(other.uid, 0),
            "whose": "its" if is_own else "the partner's",
        }

    def _not_placed(self) -> Iterator[Decision]:
        """Reason why pods that belong with others are not with them."""
        _, words = affinity_placing.groups(self.pods.values())
        answered = {*self.placing.after, *self.placing.leaving, *words}
        for uid, word in words.items():
            refused: Numbers = {"annotation": keys.NUMA_GROUP, "word": word}
            yield Decision(f"pod/{self.pods[uid].key}", "refuse", "AffinityGroupRefused", refused)
        for tie, why, numbers in self._reasons():
            for uid in (tie.first, tie.second):
                if uid in self.pods and uid not in answered:
                    answered.add(uid)
                    first, more = self._of_the_pod(uid, tie) or (why, numbers)
                    evidence = {**self._about(uid, tie), **more}
                    yield Decision(f"pod/{self.pods[uid].key}", "hold", _NOT_PLACED[first], evidence)

    def _reasons(self) -> Iterator[tuple[Tie, str, Numbers]]:
        ties, outcomes = self.placing.ties, self.placing.outcomes.values()
        for outcome in outcomes:
            if outcome.node is None and outcome.tie:
                room: Numbers = {"needs_milli": outcome.needs_milli, "free_milli": outcome.free_milli}
                at: Numbers = {"numa_node": outcome.toward or 0, **room}
                yield outcome.tie, outcome.reason, at if outcome.reason == rules.NO_ROOM else {}
        yield from ((tie, rules.APART, {}) for tie in ties.lasting)
        for tie, rounds in ties.pending:
            yield tie, _PENDING, {"rounds": rounds, "needed": self.config.rounds}
        yield from ((tie, _FOREIGN, {}) for tie in ties.foreign)

    def _of_the_pod(self, uid: str, tie: Tie) -> tuple[str, Numbers] | None:
        """Reason in the pod or its partner that keeps it, which comes before that of its tie."""
        if tie not in self.placing.ties.lasting:
            return None
        other, fixed = tie.other(uid), self.placing.fixed
        if uid in fixed:
            return _FIXED, {"why": fixed[uid]}
        if self.placing.rests(uid):
            return _RESTING, {"rounds": self.config.rest_rounds}
        if other in fixed and other not in self.placing.tied:
            return _SPREAD, {"why": fixed[other]}
        return None


_PENDING, _FOREIGN, _FIXED, _RESTING, _SPREAD = "pending", "foreign", "fixed", "resting", "spread"
_NOT_PLACED = {
    rules.NO_ROOM: "NoRoomOnNUMANode",
    rules.TOO_WIDE: "WiderThanNUMANode",
    rules.APART: "AffinityApart",
    _PENDING: "AffinityNotSteady",
    _FOREIGN: "AffinityAcrossNamespaces",
    _FIXED: "NotMovable",
    _RESTING: "AffinityResting",
    _SPREAD: "PartnerNotOnOneNUMANode",
}


def _released(
    snapshot: Snapshot, staying: Mapping[str, tuple[CgroupField, ...]], leaving: Mapping[str, str]
) -> Iterator[Decision]:
    """Pods get back what was found, or `cpusetPools` takes them over in the next tick. `leaving`: why, by name."""
    back = affinity_placing.releases(snapshot, staying)
    names = {pod.uid: pod.key for pod in snapshot.pods}
    by_name = {names[uid]: changes for uid, changes in back.items() if uid in names}
    partly = {names[uid] for uid in staying if uid in names}
    for key in sorted({*by_name, *leaving}):
        reason = "AffinityMemoryReleased" if key in partly else "AffinityReleased"
        why = _WHY.get(leaving.get(key, ""), "")
        yield Decision(f"pod/{key}", "release", reason, {"why": why} if why else {}, by_name.get(key, ()))


_WHY = {
    ENDED: "it has not talked to pods there for as many counts as it takes",
    RENAMED: "Oenuma names another NUMA node",
    rules.NO_ROOM: "the NUMA node is full",
    rules.TOO_WIDE: "the CPUs that are left to it there are fewer than it uses, requests or may use",
}


def _same(snapshot: Snapshot, memory: AffinityMemory) -> Memory:
    """The memory there is already, where that is equal: what did not change stays the same object."""
    before = snapshot.remembered.get(NAME)
    return before if before == memory and before is not None else memory
