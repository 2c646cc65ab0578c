"""Placement on NUMA nodes: the pods of a picture, the ties between them, what is remembered of both, and whether the
memory of a pod follows it."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas.topology import affinity as rules
from koordlite.formulas.topology.affinity import Member, Outcome, Room, Tie
from koordlite.model import cpuset, keys
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot, recalled
from koordlite.strategies.shared import affinity, group_files
from koordlite.strategies.shared.affinity import AffinityMemory, Config

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_NAMED = "Oenuma/"
"""Stands for the NUMA node that the resource Oenuma names, where a tie wants a partner."""
ENDED, RENAMED = "ended", "renamed"


class Ties(msgspec.Struct, frozen=True):
    """Ties that hold, that do not yet, and that never will."""

    lasting: tuple[Tie, ...] = ()
    """Declared ones first, then those with most connections."""
    pending: tuple[tuple[Tie, int], ...] = ()
    """Above the threshold, but in fewer rounds (the number) than it takes."""
    foreign: tuple[Tie, ...] = ()
    """Above it, but between namespaces."""
    partners: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    """By uid: with whom it still talks enough to stay where it is."""
    streaks: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What is to be remembered of them."""
    new_round: bool = False
    """There was a count since the last look."""


class Placing:
    """A look at a picture."""

    def __init__(self, snapshot: Snapshot, config: Config) -> None:
        self.snapshot, self._config = snapshot, config
        self._memory = recalled(snapshot, affinity.NAME, AffinityMemory)
        self.pods = {pod.uid: pod for pod in snapshot.pods if pod.active and pod.uid in snapshot.places}
        """Those that live in a group, by uid."""
        self.fixed = {uid: why for uid, pod in self.pods.items() if (why := affinity.fixed(snapshot, pod))}
        """Why a pod is never moved."""
        before = affinity.placed(snapshot).items()
        self.before = {uid: node for uid, node in before if uid in self.pods and uid not in self.fixed}
        """NUMA node by uid, as it was when the picture was taken."""
        self.ties = ties_of(snapshot, self.pods, self._memory, config)
        nodes = snapshot.affinity.numa_nodes
        self.named = {uid: nodes[p.key] for uid, p in self.pods.items() if p.key in nodes and uid not in self.fixed}
        """NUMA node by uid, of pods that Oenuma names."""
        usable = group_files.pod_cpuset(snapshot)
        self.pools = {pool.node: pool.cpuset & usable for pool in affinity.ls_pools(snapshot)}
        self.alone: dict[str, int] = {}
        """In how many counts in a row a placed pod had no partner on its NUMA node."""
        self.leaving: dict[str, str] = {}
        """Why pods do not stay."""
        self.outcomes: Mapping[str, Outcome] = {}
        """Of pods that were not placed before."""
        self.tied: dict[str, int] = {}
        """NUMA node by uid, of pods that others have tied to one."""
        self.after: dict[str, int] = {}
        """NUMA node by uid, from now on."""
        waiting = {
            *self.named,
            *(uid for tie in self.ties.lasting for uid in (tie.first, tie.second)),
        } - self.before.keys()
        self._weighs = self.ties.new_round or not config.sample_seconds or bool(waiting - self.fixed.keys())
        """Whether it matters how much CPU is in use: while nobody waits, once a count is enough."""
        if self.before or self.ties.lasting or self.named:
            self._place()

    def rests(self, uid: str) -> bool:
        """Tell whether it was released a short while ago."""
        released_at = self._memory.left.get(uid)
        return released_at is not None and self._rounds - released_at < self._config.rest_rounds

    def remember(self) -> AffinityMemory:
        """State for the next look."""
        released = {uid: self._rounds for uid, why in self.leaving.items() if why != RENAMED}
        resting = {uid: at for uid, at in self._memory.left.items() if uid in self.pods and self.rests(uid)}
        return AffinityMemory(
            round=self._rounds,
            streaks=self.ties.streaks,
            nodes=self.after,
            alone={uid: rounds for uid, rounds in self.alone.items() if rounds and uid in self.after},
            left=resting | released,
        )

    def _place(self) -> None:
        self.tied = {
            uid: node for uid in self.fixed if (node := affinity.tied_node(self.snapshot, self.pods[uid])) is not None
        }
        candidates = {*self.before, *self.named, *(uid for tie in self.ties.lasting for uid in (tie.first, tie.second))}
        members = {uid: self._member(uid) for uid in candidates if uid in self.pods and uid not in self.fixed}
        room, where = self._room(), {**self.tied, **self.before}
        staying = {uid: node for uid, node in self.before.items() if self._stays(uid, node, where)}
        retained, leaving = rules.retained(members, staying, self._strongest(staying), room)
        self.leaving |= leaving
        names = {f"{_NAMED}{node}": node for node in self.named.values()}
        ties = [Tie(first=uid, second=f"{_NAMED}{node}", group=_NAMED) for uid, node in sorted(self.named.items())]
        ready = {uid: each for uid, each in members.items() if not self.rests(uid) and uid not in self.leaving}
        self.outcomes = rules.placed(ready, [*ties, *self.ties.lasting], {**self.tied, **names, **retained}, room)
        new = {uid: each.node for uid, each in self.outcomes.items() if each.node is not None}
        self.after = {**retained, **new}

    def _stays(self, uid: str, node: int, where: Mapping[str, int]) -> bool:
        """Tell whether it has a partner on its NUMA node, or had one until lately."""
        if uid in self.named:
            if self.named[uid] != node:
                self.leaving[uid] = RENAMED
            return self.named[uid] == node
        connections, most = self.snapshot.affinity.connections, self._config.rounds
        if any(where.get(other) == node for other in self.ties.partners.get(uid, ())):
            self.alone[uid] = 0
        elif not self._config.sample_seconds:
            self.alone[uid] = most
        else:
            looked = self.ties.new_round and connections is not None and uid in connections.totals
            self.alone[uid] = self._memory.alone.get(uid, 0) + looked
        if self.alone[uid] >= most:
            self.leaving[uid] = ENDED
        return self.alone[uid] < most

    def _strongest(self, placed: Mapping[str, int]) -> list[str]:
        """Order in which pods stay when not all can: those that Oenuma names, declared ones, then those with most
        connections."""
        strength: dict[str, tuple[bool, int]] = {}
        for tie in self.ties.lasting:
            for uid in (tie.first, tie.second):
                strength[uid] = max(strength.get(uid, (False, 0)), (bool(tie.group), tie.connections))
        rank = {uid: (uid in self.named, *strength.get(uid, (False, 0))) for uid in placed}
        return sorted(placed, key=lambda uid: (*(-int(each) for each in rank[uid]), self.pods[uid].key))

    @property
    def _rounds(self) -> int:
        connections = self.snapshot.affinity.connections
        return connections.rounds if connections else 0

    def _demand(self, pod: Pod) -> int:
        use = self.snapshot.average.pods.get(pod.uid) if self._weighs else None
        return max(pod.request_milli(), use.cpu if use else 0)

    def _member(self, uid: str) -> Member:
        pod, place = self.pods[uid], self.snapshot.places[uid]
        devices = affinity.device_nodes(self.snapshot, pod)
        nodes = [node for node in self.pools if not devices or node in devices]
        cpus = {}
        cgroups = [self.snapshot.cgroups.get(group) for group in place.containers.values()]
        if any(cgroup is None or cgroup.cpuset is None for cgroup in cgroups):
            nodes = []  # Nothing can be written there.
        for node in nodes:
            sets = affinity.container_cpus(self.snapshot, place, self.pools[node])
            smallest = min((sets[group] for group in place.containers.values()), key=len, default=cpuset.EMPTY)
            if smallest:
                cpus[node] = smallest
        return Member(key=pod.key, cpus=cpus, demand_milli=self._demand(pod), limit_milli=limit(pod, "cpu"))

    def _room(self) -> Room:
        """Pods with CPUs of their own, and best-effort ones, take nothing of the shared pool."""
        confined: dict[int, int] = {}
        spread = 0
        for uid, pod in self.pods.items():
            if pod.is_best_effort or pod.resource_status.cpuset or uid in self.snapshot.crane.promises:
                continue
            if uid in self.tied:
                confined[self.tied[uid]] = confined.get(self.tied[uid], 0) + self._demand(pod)
            else:
                spread += self._demand(pod)
        sizes = {node: len(cpus) for node, cpus in self.pools.items()}
        return Room(sizes, confined=confined, spread_milli=spread, fill_percent=self._config.fill_percent)


def ties_of(snapshot: Snapshot, pods: Mapping[str, Pod], memory: AffinityMemory, limits: Config) -> Ties:
    """The ties between `pods`, given what the last look left."""
    rounds = snapshot.affinity.connections.rounds if snapshot.affinity.connections else 0
    new_round = rounds != memory.round
    lasting, partners = list(_declared(pods)), defaultdict[str, set[str]](set)
    pending, foreign, streaks = [], [], dict[str, int]()
    connections = snapshot.affinity.connections
    totals = connections.totals if connections else {}
    for talk in connections.talks if connections else ():
        if talk.first not in pods or talk.second not in pods:
            continue
        own = (totals.get(uid, 0) for uid in (talk.first, talk.second))
        percent = max((100 * talk.connections // total for total in own if total), default=0)
        tie = Tie(first=talk.first, second=talk.second, connections=talk.connections, percent=percent)
        alike = limits.across_namespaces or pods[tie.first].namespace == pods[tie.second].namespace
        if alike and tie.percent >= limits.stay_percent:
            partners[tie.first].add(tie.second)
            partners[tie.second].add(tie.first)
        if tie.percent < limits.join_percent or tie.connections < limits.min_connections:
            continue
        if not alike:
            foreign.append(tie)
            continue
        key = f"{tie.first}/{tie.second}"
        lasted = streaks[key] = min(memory.streaks.get(key, 0) + new_round, limits.rounds)
        if lasted >= limits.rounds:
            lasting.append(tie)
        else:
            pending.append((tie, lasted))
    for tie in lasting:
        partners[tie.first].add(tie.second)
        partners[tie.second].add(tie.first)
    by_uid = {uid: frozenset(uids) for uid, uids in partners.items()}
    return Ties(tuple(lasting), tuple(pending), tuple(foreign), by_uid, streaks, new_round)


def groups(pods: Iterable[Pod]) -> tuple[dict[tuple[str, str], list[Pod]], dict[str, str]]:
    """Pods by namespace and the word of their annotation, and by uid the words that are none."""
    alike: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    refused: dict[str, str] = {}
    for pod in pods:
        word = pod.annotations.get(keys.NUMA_GROUP)
        if word is None:
            continue
        if _WORD.match(word):
            alike[pod.namespace, word].append(pod)
        else:
            refused[pod.uid] = word
    return alike, refused


def _declared(pods: Mapping[str, Pod]) -> Iterable[Tie]:
    """Each two neighbours of a group, in the order of their names: when one of them is placed, the next one follows."""
    alike, _ = groups(pods.values())
    for (_, word), members in sorted(alike.items()):
        ordered = sorted(members, key=lambda pod: pod.key)
        for first, second in itertools.pairwise(ordered):
            low, high = sorted((first.uid, second.uid))
            yield Tie(first=low, second=high, group=word)


# The files of the groups, and what they get back.

CPUS: CgroupField = "cpuset.cpus"
MEMS: CgroupField = "cpuset.mems"


def releases(
    snapshot: Snapshot, staying: Mapping[str, Collection[CgroupField]]
) -> Mapping[str, tuple[CgroupChange, ...]]:
    """By uid: what was found comes back where this strategy wrote, but for the fields in `staying` of a pod. Under
    kubelet's static policy without the CPUs that it has given to other pods since."""
    back: dict[str, tuple[CgroupChange, ...]] = {}
    for uid, place in snapshot.places.items():
        fields = tuple(field for field in (CPUS, MEMS) if field not in staying.get(uid, ()))
        if changes := tuple(group_files.releases(snapshot, affinity.NAME, fields, uid=uid, groups=place.all)):
            back[uid] = changes
    return back


def memory_stays(
    snapshot: Snapshot, pods: Mapping[str, Pod], placed: Mapping[str, int], config: Config
) -> dict[str, str]:
    """Reason why the memory of a placed pod does not follow it, by uid; empty for those whose memory does.

    It follows where every container has a limit, and as much is free on the NUMA node: when a group may use one node
    only and that is full, the kernel ends its processes although others have memory.
    """
    stays: dict[str, str] = {}
    used = snapshot.numa_memory.get("", {})
    for node in snapshot.topology.nodes:
        limits: dict[str, int] = {}
        for uid in (uid for uid, at in placed.items() if at == node.id):
            allowance = limit(pods[uid], "memory")
            stays[uid] = _why(
                snapshot, pods[uid], node.id, config, limited=allowance is not None, measured=node.id in used
            )
            if not stays[uid] and allowance is not None:
                limits[uid] = allowance
        free, reserve = node.memory - used.get(node.id, 0), int(node.memory * config.memory_reserve_percent / 100)
        # What they have is part of what they may have: while all of it would fit once more, nobody has to look.
        if sum(limits.values()) > free - reserve:
            growth = []
            for uid, allowance in limits.items():
                # What it may still take there, and whether its memory follows already.
                use, groups = snapshot.usage.pods.get(uid), snapshot.places[uid].containers.values()
                already = any(cgroup.PLACE.place(group, MEMS) in snapshot.found for group in groups)
                growth.append((uid, max(0, allowance - use.memory) if already and use else allowance, already))
            fits = rules.memory_fits(growth, free=free, reserve=reserve)
            stays |= {uid: "less than its limit is free there" for uid in limits if uid not in fits}
    return stays


def limit(pod: Pod, resource: str) -> int | None:
    """Amount that all containers together may use (millicores of cpu, bytes of memory); None when one of them has no
    limit."""
    limits: Sequence[int | None] = [
        (each.limits[resource].milli if resource == "cpu" else each.limits[resource].value)
        if resource in each.limits
        else None
        for each in pod.containers
        if not each.one_shot
    ]
    return None if None in limits or not limits else sum(each for each in limits if each is not None)


def _why(snapshot: Snapshot, pod: Pod, node: int, config: Config, *, limited: bool, measured: bool) -> str:
    if not config.memory_nodes:
        return "memoryNodes is false"
    if not limited:
        return "a container has no memory limit"
    if any((pod.uid, container.name) in snapshot.kubelet.memory_nodes for container in pod.containers):
        return "kubelet's memory manager chose its memory"
    if not measured:
        return "the use of memory by NUMA node is not known"
    if any(not _may_take(snapshot, group, node) for group in snapshot.places[pod.uid].containers.values()):
        return "a container may not take memory there"
    return ""


def _may_take(snapshot: Snapshot, group: str, node: int) -> bool:
    """Tell whether the group might take memory there before this strategy wrote; 0 is all that the group above has."""
    original = snapshot.found.get(cgroup.PLACE.place(group, MEMS))
    present = snapshot.cgroups.get(group)
    mask = original.value if original is not None else present.values.get(MEMS) if present else None
    return isinstance(mask, int) and (mask == 0 or bool(mask >> node & 1))
