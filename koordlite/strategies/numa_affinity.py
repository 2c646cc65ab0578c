"""Bring pods that talk to each other, or were declared to belong together, onto one NUMA node: CPUs, and memory.

It decides only for pods that share the CPUs of latency-sensitive work, and narrows what they may have: their shared
pool to the part of it on one NUMA node. Which pods talk is counted when the picture is taken (`Snapshot.affinity`).
`cpusetPools` leaves a pod to this strategy from the tick after it was placed until the tick after it was released.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas.topology import affinity as rules
from koordlite.formulas.topology.affinity import Member, Outcome, Room, Tie
from koordlite.model import cpuset, keys
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.decision import Decision, Verdict
from koordlite.model.picture.affinity import Connections
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Memory
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot, recalled
from koordlite.strategies.shared import affinity, group_files
from koordlite.strategies.shared.affinity import AffinityMemory, Config

NAME = affinity.NAME
SUBJECT = "affinity"
CPUS: CgroupField = "cpuset.cpus"
MEMS: CgroupField = "cpuset.mems"
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_NAMED = "Oenuma/"
"""Stands for the NUMA node that the resource Oenuma names, where a tie wants a partner."""
ENDED, RENAMED = "ended", "renamed"
_WHY_RELEASED = {
    ENDED: "it has not talked to pods there for as many counts as it takes",
    RENAMED: "Oenuma names another NUMA node",
    rules.NO_ROOM: "the NUMA node is full",
    rules.TOO_WIDE: "the CPUs that are left to it there are fewer than it uses, requests or may use",
}
_NOT_PLACED = {
    rules.NO_ROOM: "NoRoomOnNUMANode",
    rules.TOO_WIDE: "WiderThanNUMANode",
    rules.APART: "AffinityApart",
    "pending": "AffinityNotSteady",
    "foreign": "AffinityAcrossNamespaces",
    "fixed": "NotMovable",
    "resting": "AffinityResting",
    "spread": "PartnerNotOnOneNUMANode",
}
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
        yield from _Placing(snapshot, config).decisions()
        return
    verdict: Verdict = "hold" if why == "AffinityClosed" else "refuse"
    yield Decision(SUBJECT, verdict, why, remember=_same(snapshot, AffinityMemory()))
    yield from _released(snapshot, {}, {})


class _Placing:
    """A look at one picture: the ties between its pods, where each is from now on, and what is said of it.

    Pods go by uid in all mappings.
    """

    def __init__(self, snapshot: Snapshot, config: Config) -> None:
        self.snapshot, self.config = snapshot, config
        self.last = recalled(snapshot, NAME, AffinityMemory)
        """State that the last look left."""
        self.connections = snapshot.affinity.connections or Connections(rounds=0, totals={})
        self.new_count = self.connections.rounds != self.last.round
        self.pods = {pod.uid: pod for pod in snapshot.pods if pod.active and pod.uid in snapshot.places}
        """Active pods with a group."""
        self.fixed = {uid: why for uid, pod in self.pods.items() if (why := affinity.fixed(snapshot, pod))}
        """Reasons of pods that are never moved."""
        before = affinity.placed(snapshot).items()
        self.before = {uid: node for uid, node in before if uid in self.pods and uid not in self.fixed}
        """NUMA node, as it was when the picture was taken."""
        nodes = snapshot.affinity.numa_nodes
        self.named = {uid: nodes[p.key] for uid, p in self.pods.items() if p.key in nodes and uid not in self.fixed}
        """NUMA node that Oenuma names."""
        usable = group_files.pod_cpuset(snapshot)
        self.pools = {pool.node: pool.cpuset & usable for pool in affinity.ls_pools(snapshot)}
        self.refused_words: dict[str, str] = {}
        """Annotations that are no word for a group."""
        self.lasting = list(self._declared_ties())
        """Ties that hold: declared ones first, then those with most connections."""
        self.pending: list[tuple[Tie, int]] = []
        """Ties above the threshold, but in fewer counts (the number) than it takes."""
        self.foreign: list[Tie] = []
        """Ties above it, but between namespaces."""
        self.partners = defaultdict[str, set[str]](set)
        """Pods with which a pod still talks enough to stay where it is."""
        self.streaks: dict[str, int] = {}
        """Number of counts in a row in which two pods (`UID/UID`) have belonged together."""
        self._measure_ties()
        self.alone: dict[str, int] = {}
        """Number of counts in a row in which a placed pod had no partner on its NUMA node."""
        self.leaving: dict[str, str] = {}
        """Reasons of pods that do not stay."""
        self.outcomes: Mapping[str, Outcome] = {}
        """Outcomes of pods that were not placed before."""
        self.tied: dict[str, int] = {}
        """NUMA node to which others have tied a pod."""
        self.after: dict[str, int] = {}
        """NUMA node from now on."""
        if self.before or self.lasting or self.named:
            self._place()
        self.memory_stays = self._memory_stays()
        """Reason why the memory of a placed pod does not follow it; empty for those whose memory does."""

    def decisions(self) -> Iterator[Decision]:
        """All of them; the node's says what is to be remembered."""
        yield self._of_node()
        for uid in sorted(self.after, key=lambda uid: self.pods[uid].key):
            yield self._placed(uid)
        yield from self._not_placed()
        staying = {uid: (CPUS,) if self.memory_stays.get(uid) else (CPUS, MEMS) for uid in self.after}
        yield from _released(self.snapshot, staying, self.leaving)

    # ── ties ──

    def _declared_ties(self) -> Iterator[Tie]:
        """Each two neighbours of a group, in the order of their names: when one of them is placed, the next one
        follows."""
        groups: dict[tuple[str, str], list[Pod]] = defaultdict(list)
        for uid, pod in self.pods.items():
            word = pod.annotations.get(keys.NUMA_GROUP)
            if word is not None and _WORD.match(word):
                groups[pod.namespace, word].append(pod)
            elif word is not None:
                self.refused_words[uid] = word
        for (_, word), members in sorted(groups.items()):
            for pair in itertools.pairwise(sorted(members, key=lambda pod: pod.key)):
                first, second = sorted(pod.uid for pod in pair)
                yield Tie(first=first, second=second, group=word)

    def _measure_ties(self) -> None:
        """Add the ties by connections to the declared ones."""
        totals, config = self.connections.totals, self.config
        for talk in self.connections.talks:
            if talk.first not in self.pods or talk.second not in self.pods:
                continue
            own = (totals.get(uid, 0) for uid in (talk.first, talk.second))
            percent = max((100 * talk.connections // total for total in own if total), default=0)
            tie = Tie(first=talk.first, second=talk.second, connections=talk.connections, percent=percent)
            alike = config.across_namespaces or self.pods[tie.first].namespace == self.pods[tie.second].namespace
            if alike and percent >= config.stay_percent:
                self._join(tie)
            if percent < config.join_percent or tie.connections < config.min_connections:
                continue
            if not alike:
                self.foreign.append(tie)
                continue
            key = f"{tie.first}/{tie.second}"
            counts = self.streaks[key] = min(self.last.streaks.get(key, 0) + self.new_count, config.rounds)
            if counts >= config.rounds:
                self.lasting.append(tie)
            else:
                self.pending.append((tie, counts))
        for tie in self.lasting:
            self._join(tie)

    def _join(self, tie: Tie) -> None:
        self.partners[tie.first].add(tie.second)
        self.partners[tie.second].add(tie.first)

    # ── places ──

    def _place(self) -> None:
        """Let placed pods stay as far as they can, and place those that belong with others."""
        tied_nodes = {uid: affinity.tied_node(self.snapshot, self.pods[uid]) for uid in self.fixed}
        self.tied = {uid: node for uid, node in tied_nodes.items() if node is not None}
        candidates = {*self.before, *self.named, *(uid for tie in self.lasting for uid in (tie.first, tie.second))}
        # While nobody waits for a place, what CPU is in use matters once a count.
        waiting = candidates - self.before.keys() - self.fixed.keys()
        weighs = self.new_count or not self.config.sample_seconds or bool(waiting)
        usage = self.snapshot.average.pods if weighs else {}
        demand = {
            uid: max(pod.request_milli(), usage[uid].cpu if uid in usage else 0) for uid, pod in self.pods.items()
        }
        members = {uid: self._member(uid, demand[uid]) for uid in candidates - self.fixed.keys() if uid in self.pods}
        room, where = self._room(demand), {**self.tied, **self.before}
        staying = {uid: node for uid, node in self.before.items() if self._stays(uid, node, where)}
        retained, leaving = rules.retained(members, staying, self._strongest_first(staying), room)
        self.leaving |= leaving
        names = {f"{_NAMED}{node}": node for node in self.named.values()}
        ties = [Tie(first=uid, second=f"{_NAMED}{node}", group=_NAMED) for uid, node in sorted(self.named.items())]
        ready = {uid: each for uid, each in members.items() if not self._rests(uid) and uid not in self.leaving}
        self.outcomes = rules.placed(ready, [*ties, *self.lasting], {**self.tied, **names, **retained}, room)
        self.after = retained | {uid: each.node for uid, each in self.outcomes.items() if each.node is not None}

    def _member(self, uid: str, demand_milli: int) -> Member:
        pod, place, cpus = self.pods[uid], self.snapshot.places[uid], dict[int, cpuset.CPUSet]()
        devices = affinity.device_nodes(self.snapshot, pod)
        cgroups = [self.snapshot.cgroups.get(group) for group in place.containers.values()]
        # Where a group has no set, nothing can be written.
        if all(each is not None and each.cpuset is not None for each in cgroups):
            for node in (node for node in self.pools if not devices or node in devices):
                sets = affinity.container_cpus(self.snapshot, place, self.pools[node])
                smallest = min((sets[group] for group in place.containers.values()), key=len, default=cpuset.EMPTY)
                cpus |= {node: smallest} if smallest else {}
        return Member(key=pod.key, cpus=cpus, demand_milli=demand_milli, limit_milli=_limit(pod, "cpu"))

    def _room(self, demand: Mapping[str, int]) -> Room:
        """Pods with CPUs of their own, and best-effort ones, take nothing of the shared pool."""
        confined, spread = defaultdict[int, int](int), 0
        for uid, pod in self.pods.items():
            if pod.is_best_effort or pod.resource_status.cpuset or uid in self.snapshot.crane.promises:
                continue
            if uid in self.tied:
                confined[self.tied[uid]] += demand[uid]
            else:
                spread += demand[uid]
        sizes = {node: len(cpus) for node, cpus in self.pools.items()}
        return Room(sizes, confined=confined, spread_milli=spread, fill_percent=self.config.fill_percent)

    def _stays(self, uid: str, node: int, where: Mapping[str, int]) -> bool:
        """Tell whether it has a partner on its NUMA node, or had one until lately."""
        if uid in self.named:
            if self.named[uid] != node:
                self.leaving[uid] = RENAMED
            return self.named[uid] == node
        if any(where.get(other) == node for other in self.partners[uid]):
            self.alone[uid] = 0
        elif not self.config.sample_seconds:
            self.alone[uid] = self.config.rounds
        else:
            counted = self.new_count and uid in self.connections.totals
            self.alone[uid] = self.last.alone.get(uid, 0) + counted
        if self.alone[uid] >= self.config.rounds:
            self.leaving[uid] = ENDED
        return uid not in self.leaving

    def _strongest_first(self, placed: Iterable[str]) -> list[str]:
        """Order in which pods stay when not all can: those that Oenuma names, declared ones, then those with most
        connections."""
        strength: dict[str, tuple[bool, int]] = {}
        for tie in self.lasting:
            for uid in (tie.first, tie.second):
                strength[uid] = max(strength.get(uid, (False, 0)), (bool(tie.group), tie.connections))

        def rank(uid: str) -> tuple[bool, bool, int, str]:
            declared, connections = strength.get(uid, (False, 0))
            return uid not in self.named, not declared, -connections, self.pods[uid].key

        return sorted(placed, key=rank)

    def _rests(self, uid: str) -> bool:
        """Tell whether it was released a short while ago."""
        released_at = self.last.left.get(uid)
        return released_at is not None and self.connections.rounds - released_at < self.config.rest_rounds

    def _remember(self) -> Memory:
        """State for the next look."""
        rounds = self.connections.rounds
        resting = {uid: at for uid, at in self.last.left.items() if uid in self.pods and self._rests(uid)}
        memory = AffinityMemory(
            round=rounds,
            streaks=self.streaks,
            nodes=self.after,
            alone={uid: counts for uid, counts in self.alone.items() if counts and uid in self.after},
            left=resting | {uid: rounds for uid, why in self.leaving.items() if why != RENAMED},
        )
        return _same(self.snapshot, memory)

    # ── memory ──

    def _memory_stays(self) -> dict[str, str]:
        """Reason why the memory of a placed pod does not follow it.

        It follows where every container has a limit, and as much is free on the NUMA node: when a group may use one
        node only and that is full, the kernel ends its processes although others have memory.
        """
        stays, used = dict[str, str](), self.snapshot.numa_memory.get("", {})
        for node in self.snapshot.topology.nodes:
            limits: dict[str, int] = {}
            for uid in (uid for uid, at in self.after.items() if at == node.id):
                allowance = _limit(self.pods[uid], "memory")
                stays[uid] = self._why_memory_stays(self.pods[uid], node.id, limited=allowance is not None)
                if not stays[uid] and allowance is not None:
                    limits[uid] = allowance
            free = node.memory - used.get(node.id, 0)
            reserve = int(node.memory * self.config.memory_reserve_percent / 100)
            # What they have is part of what they may have: while all of it would fit once more, nobody has to look.
            if sum(limits.values()) > free - reserve:
                growth = []
                for uid, allowance in limits.items():
                    # What it may still take there, and whether its memory follows already.
                    use, groups = self.snapshot.usage.pods.get(uid), self.snapshot.places[uid].containers.values()
                    already = any(cgroup.PLACE.place(group, MEMS) in self.snapshot.found for group in groups)
                    growth.append((uid, max(0, allowance - use.memory) if already and use else allowance, already))
                fits = rules.memory_fits(growth, free=free, reserve=reserve)
                stays |= {uid: "less than its limit is free there" for uid in limits if uid not in fits}
        return stays

    def _why_memory_stays(self, pod: Pod, node: int, *, limited: bool) -> str:
        snapshot = self.snapshot
        if not self.config.memory_nodes:
            return "memoryNodes is false"
        if not limited:
            return "a container has no memory limit"
        if any((pod.uid, container.name) in snapshot.kubelet.memory_nodes for container in pod.containers):
            return "kubelet's memory manager chose its memory"
        if node not in snapshot.numa_memory.get("", {}):
            return "the use of memory by NUMA node is not known"
        for group in snapshot.places[pod.uid].containers.values():
            # What the group might take before this strategy wrote; 0 is all that the group above has.
            original, present = snapshot.found.get(cgroup.PLACE.place(group, MEMS)), snapshot.cgroups.get(group)
            mask = original.value if original is not None else present.values.get(MEMS) if present else None
            if not isinstance(mask, int) or (mask and not mask >> node & 1):
                return "a container may not take memory there"
        return ""

    # ── words ──

    def _of_node(self) -> Decision:
        evidence: Numbers = {"placed": len(self.after), "ties": len(self.lasting)}
        counted = self.snapshot.affinity.connections
        if counted is None:
            reason = "NothingCountedYet" if self.config.sample_seconds else "AffinityDeclaredOnly"
            return Decision(SUBJECT, "hold", reason, evidence, remember=self._remember())
        evidence |= {
            "connections": sum(counted.totals.values()),
            "pods": len(counted.totals),
            "pairs": len(counted.talks),
            "join_percent": self.config.join_percent,
        }
        evidence |= {"uncounted": len(counted.uncounted)} if counted.uncounted else {}
        return Decision(SUBJECT, "hold", "ConnectionsCounted", evidence, remember=self._remember())

    def _placed(self, uid: str) -> Decision:
        pod, place, node = self.pods[uid], self.snapshot.places[uid], self.after[uid]
        sets = affinity.container_cpus(self.snapshot, place, self.pools[node])
        own = cpuset.union(sets[group] for group in place.containers.values())
        reason, numbers = self._because(uid, node)
        evidence: Numbers = {"numa_node": node, "cpuset": str(own), **numbers}
        memory_stays, mask = self.memory_stays[uid], 1 << node
        evidence |= {"memory_stays": memory_stays} if memory_stays else {"mems": str(node)}
        changes, cgroups = list[CgroupChange](), self.snapshot.cgroups
        was_placed = self.before.get(uid) == node
        # `cpusetPools` writes these sets until it has seen that the pod is placed.
        if was_placed or not self.snapshot.affinity.enforced:
            for group, cpus in sets.items():
                if cpus and group in cgroups and cgroups[group].cpuset not in (None, cpus):
                    changes.append(CgroupChange(group, CPUS, cpus))
            for group in () if memory_stays else place.containers.values():
                if group in cgroups and cgroups[group].values.get(MEMS) not in (None, mask):
                    changes.append(CgroupChange(group, MEMS, mask))
        verdict: Verdict = "set" if changes or not was_placed else "hold"
        return Decision(f"pod/{pod.key}", verdict, reason, evidence, tuple(changes))

    def _because(self, uid: str, node: int) -> tuple[str, Numbers]:
        """The strongest tie to this NUMA node."""
        if self.named.get(uid) == node:
            return "NUMAAffinityNamed", {}
        where = {**self.tied, **self.after}
        for tie in (*self.lasting, *(tie for tie, _ in self.pending)):
            if uid in (tie.first, tie.second) and where.get(tie.other(uid)) == node:
                return ("NUMAAffinityDeclared" if tie.group else "NUMAAffinity"), self._about(uid, tie)
        return "NUMAAffinityFading", {"rounds": self.alone.get(uid, 0), "needed": self.config.rounds}

    def _about(self, uid: str, tie: Tie) -> Numbers:
        """Its partner, and how much of whose connections are between them: of its own if these are enough."""
        other = self.pods.get(tie.other(uid))
        if other is None:
            return {"partner": f"NUMA node {self.named[uid]}, which Oenuma names"}
        if tie.group:
            return {"partner": other.key, "group": tie.group}
        own = self.connections.totals.get(uid, 0)
        percent = 100 * tie.connections // own if own else 0
        is_own = percent >= self.config.join_percent
        return {
            "partner": other.key,
            "percent": percent if is_own else tie.percent,
            "connections": tie.connections,
            "total": own if is_own else self.connections.totals.get(other.uid, 0),
            "whose": "its" if is_own else "the partner's",
        }

    def _not_placed(self) -> Iterator[Decision]:
        """Reason why pods that belong with others are not with them."""
        answered = {*self.after, *self.leaving, *self.refused_words}
        for uid, word in self.refused_words.items():
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
        """Ties that have not brought their pods together, and why by the keys of `_NOT_PLACED`, the nearest to it
        first."""
        for outcome in self.outcomes.values():
            if outcome.node is None and outcome.tie:
                room: Numbers = {"needs_milli": outcome.needs_milli, "free_milli": outcome.free_milli}
                at: Numbers = {"numa_node": outcome.toward or 0, **room}
                yield outcome.tie, outcome.reason, at if outcome.reason == rules.NO_ROOM else {}
        yield from ((tie, rules.APART, {}) for tie in self.lasting)
        for tie, counts in self.pending:
            yield tie, "pending", {"rounds": counts, "needed": self.config.rounds}
        yield from ((tie, "foreign", {}) for tie in self.foreign)

    def _of_the_pod(self, uid: str, tie: Tie) -> tuple[str, Numbers] | None:
        """Reason in the pod or its partner that keeps it, which comes before that of its tie."""
        other = tie.other(uid)
        if tie not in self.lasting:
            return None
        if uid in self.fixed:
            return "fixed", {"why": self.fixed[uid]}
        if self._rests(uid):
            return "resting", {"rounds": self.config.rest_rounds}
        if other in self.fixed and other not in self.tied:
            return "spread", {"why": self.fixed[other]}
        return None


def _released(
    snapshot: Snapshot, staying: Mapping[str, tuple[CgroupField, ...]], leaving: Mapping[str, str]
) -> Iterator[Decision]:
    """Pods get back what was found, but for the fields in `staying`, or `cpusetPools` takes them over in the next tick.
    Under kubelet's static policy without the CPUs that it has given to other pods since. `leaving`: why, by uid."""
    for pod in sorted(snapshot.pods, key=lambda pod: pod.key):
        fields = tuple(field for field in (CPUS, MEMS) if field not in staying.get(pod.uid, ()))
        groups = snapshot.places[pod.uid].all if pod.uid in snapshot.places else ()
        changes = tuple(group_files.releases(snapshot, NAME, fields, uid=pod.uid, groups=groups))
        if changes or pod.uid in leaving:
            reason = "AffinityMemoryReleased" if pod.uid in staying else "AffinityReleased"
            why = _WHY_RELEASED.get(leaving.get(pod.uid, ""), "")
            yield Decision(f"pod/{pod.key}", "release", reason, {"why": why} if why else {}, changes)


def _limit(pod: Pod, resource: str) -> int | None:
    """Amount that all containers together may use (millicores of cpu, bytes of memory); None when one of them has no
    limit."""
    limits = [each.limits.get(resource) for each in pod.containers if not each.one_shot]
    if not limits or None in limits:
        return None
    return sum(each.milli if resource == "cpu" else each.value for each in limits if each)


def _same(snapshot: Snapshot, memory: AffinityMemory) -> Memory:
    """The memory there is already, where that is equal: what did not change stays the same object."""
    before = snapshot.remembered.get(NAME)
    return before if before == memory and before is not None else memory
