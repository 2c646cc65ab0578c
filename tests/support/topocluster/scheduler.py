"""A small kube-scheduler with one extender.

What recordings of kube-scheduler 1.36 show: filter and prioritize are serial over all pods; a node is asked about only
when it has enough resources; prioritize is not called with one node left; the score of an extender counts tenfold;
binds are asynchronous and up to twenty are open at once; an error is tried again after 1, 2, 4, 8 s; a refused pod is
tried once more at once and then sleeps until a bound pod is gone or minutes have passed, and if an extender refused it,
until any bound pod comes or changes; nothing is said to the extender of what becomes of a pod. Of large clusters only a
part of the nodes is looked at for each pod.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from koordlite.model.node_selectors import node_matches, untolerated
from koordlite.model.pod.pod_reader import effective_requests
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects
from tests.support.topocluster.events import Events
from tests.support.topocluster.store import Store, key_of

NAME, OTHER = "koordlite-scheduler", "other-scheduler"
MOST_BINDS = 20
BACKOFF = (1.0, 2.0, 4.0, 8.0, 10.0)
LONGEST_SLEEP = 300.0
FEWEST_NODES = 100
WEIGHT = 10


class Extender(Protocol):
    """The verbs of an extender, without HTTP."""

    def filter(self, obj: objects.PodObject, names: Sequence[str]) -> tuple[list[str], dict[str, str]]: ...

    def prioritize(self, obj: objects.PodObject, names: Sequence[str]) -> list[tuple[str, int]]: ...

    def bind(self, namespace: str, name: str, uid: str, node: str) -> str: ...


@dataclasses.dataclass(slots=True)
class _Node:
    cpu: int
    memory: int
    pods: int


@dataclasses.dataclass(slots=True)
class Waiting:
    pod: objects.PodObject
    cpu: int
    memory: int
    errors: int = 0
    refused_before: str = ""
    by_extender: bool = False
    """An extender refused it the last time."""
    round: int = 0
    """Goes up when it leaves the sleepers, so that an old alarm does not wake it."""


class Scheduler:
    """Places the pods that ask for it."""

    def __init__(
        self,
        *,
        events: Events,
        store: Store,
        chance: random.Random,
        extender: Extender | None,
        name: str = NAME,
        looked: Callable[[objects.PodObject, Sequence[str], Sequence[str]], None] = lambda pod, passed, refused: None,
        bind_took: tuple[float, float] = (0.005, 0.05),
        tells: bool = False,
    ) -> None:
        """`looked` is told of every answer to filter: the pod, the nodes that passed, those that were refused.
        `bind_took`: seconds until a bind is answered. `tells`: writes to a pod's condition that no node has room."""
        self._tells = tells
        self._events, self._store, self._chance, self._extender = events, store, chance, extender
        self._looked, self._bind_took, self._name = looked, bind_took, name
        self.counts: collections.Counter[str] = collections.Counter()
        self.open_binds = self.most_open_binds = 0
        self._free: dict[str, _Node] = {}
        self._taints: dict[str, Sequence[objects.Taint]] = {}
        self._order: list[str] = []
        self._next = 0
        self._active: list[tuple[int, int, str]] = []
        """The most important first, then the first that came."""
        self._came = itertools.count()
        self._waiting: dict[str, Waiting] = {}
        self._sleeping: dict[str, None] = {}
        self._held: dict[str, tuple[str, int, int]] = {}
        """uid → node and amounts that are counted there."""
        self._uids: dict[str, str] = {}
        """By `namespace/name`, of pods that are counted."""
        self._to_bind: collections.deque[tuple[Waiting, str]] = collections.deque()
        self._busy = False

    # ── what it sees ──

    def put_node(self, obj: objects.NodeObject) -> None:
        self._taints[obj.metadata.name] = obj.spec.taints or ()
        if obj.metadata.name in self._free:
            self._wake_all()
            return
        allocatable = obj.status.allocatable or {}
        cpu, memory = Quantity.parse(allocatable["cpu"]).milli, Quantity.parse(allocatable["memory"]).value
        # Of two watches that of pods may be the first.
        there = [(c, m) for node, c, m in self._held.values() if node == obj.metadata.name]
        cpu, memory = cpu - sum(c for c, _ in there), memory - sum(m for _, m in there)
        self._free[obj.metadata.name] = _Node(cpu, memory, int(allocatable["pods"]) - len(there))
        self._order.append(obj.metadata.name)

    def remove_node(self, name: str) -> None:
        self._free.pop(name, None)
        self._order = [each for each in self._order if each != name]

    def put_report(self, obj: objects.NRTObject) -> None:
        """Reports are nothing to it: they wake no pod."""

    def put_pod(self, obj: objects.PodObject) -> None:
        uid = obj.metadata.uid
        if obj.status.phase in ("Succeeded", "Failed"):
            self._release(uid)
        elif obj.spec.node_name:
            self._forget(key_of(obj))
            self._hold(obj, obj.spec.node_name)
            self._wake_all(by_extender=True)
        elif obj.spec.scheduler_name == self._name and key_of(obj) not in self._waiting:
            cpu, memory = _amounts(obj)
            self._waiting[key_of(obj)] = Waiting(obj, cpu, memory)
            self._wake(key_of(obj))
        elif key_of(obj) in self._waiting:
            self._changed(self._waiting[key_of(obj)], obj)

    def remove_pod(self, key: str) -> None:
        self._forget(key)
        self._release(self._uids.pop(key, ""))

    def _changed(self, waiting: Waiting, obj: objects.PodObject) -> None:
        """A nomination counts at once; an annotation wakes the pod, its status does not."""
        is_news = waiting.pod.metadata.annotations != obj.metadata.annotations
        waiting.pod = obj
        if is_news and key_of(obj) in self._sleeping:
            self._wake(key_of(obj))

    # ── the queue ──

    def _wake(self, key: str) -> None:
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        self._sleeping.pop(key, None)
        waiting.round += 1
        heapq.heappush(self._active, (-(waiting.pod.spec.priority or 0), next(self._came), key))
        self._go()

    def _sleep(self, key: str, waiting: Waiting) -> None:
        self._sleeping[key] = None
        self._events.after(LONGEST_SLEEP, self._alarm, key, waiting.round)

    def _alarm(self, key: str, round_: int) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.round == round_ and key in self._sleeping:
            self._wake(key)

    def _wake_all(self, *, by_extender: bool = False) -> None:
        """Wake all that sleep, or those that an extender refused."""
        for key in [key for key in self._sleeping if not by_extender or self._waiting[key].by_extender]:
            self._wake(key)

    def _forget(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._sleeping.pop(key, None)

    def _go(self) -> None:
        if not self._busy and self._active:
            self._busy = True
            self._events.after(self._chance.uniform(0.004, 0.012), self._attempt, heapq.heappop(self._active)[2])

    # ── one attempt ──

    def _attempt(self, key: str) -> None:
        self._busy = False
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.pod.metadata.uid not in self._held:
            self.counts["attempts"] += 1
            why, chosen = self._choose(waiting)
            if chosen:
                waiting.refused_before = ""
                self._hold(waiting.pod, chosen)
                self._to_bind.append((waiting, chosen))
                self._bind_more()
            else:
                self._unschedulable(key, waiting, why)
        self._go()

    def _unschedulable(self, key: str, waiting: Waiting, why: str) -> None:
        """A condition that differs from the one before wakes the pod once more; then it sleeps."""
        self.counts["unschedulable"] += 1
        if self._tells:
            self._store.unschedulable(key, waiting.pod.metadata.uid, why)
        if why != waiting.refused_before:
            waiting.refused_before = why
            self._events.after(0.015, self._wake, key)
        else:
            self._sleep(key, waiting)

    def _choose(self, waiting: Waiting) -> tuple[str, str]:
        """(why none, the node)."""
        names = self._with_room(waiting)
        waiting.by_extender = False
        if not names:
            return "Insufficient resources", ""
        nominated = waiting.pod.status.nominated_node_name or ""
        if nominated in names:
            passed = [nominated]
            if self._extender is not None:
                passed, _ = self._extender.filter(waiting.pod, passed)
            if passed:
                return "", nominated
        if self._extender is not None:
            passed, refused = self._extender.filter(waiting.pod, names)
            self._looked(waiting.pod, passed, list(refused))
            if not passed:
                waiting.by_extender = True
                self.counts["refused by the extender"] += 1
                return ", ".join(sorted(set(refused.values()))), ""
            names = passed
        if len(names) == 1:
            return "", names[0]
        scores = {name: self._least_allocated(name, waiting) for name in names}
        if self._extender is not None:
            for name, score in self._extender.prioritize(waiting.pod, names):
                scores[name] += WEIGHT * score
        best = max(scores.values())
        return "", self._chance.choice([name for name in names if scores[name] == best])

    def _with_room(self, waiting: Waiting) -> list[str]:
        """NodeResourcesFit, from where the last search ended, until enough nodes are found."""
        total = len(self._order)
        percent = max(5, 50 - total // 125)
        wanted = total if total < FEWEST_NODES else max(FEWEST_NODES, total * percent // 100)
        found: list[str] = []
        for step in range(total):
            name = self._order[(self._next + step) % total]
            if self._has_room(name, waiting):
                found.append(name)
                if len(found) >= wanted:
                    self._next = (self._next + step + 1) % total
                    break
        return found

    def _has_room(self, name: str, waiting: Waiting) -> bool:
        """Beside pods that are bound there, and those for which room is kept and that are not less important."""
        node, pod = self._free[name], waiting.pod
        kept = [
            each
            for each in self._waiting.values()
            if each.pod.status.nominated_node_name == name
            and each is not waiting
            and each.pod.metadata.uid not in self._held
            and (each.pod.spec.priority or 0) >= (pod.spec.priority or 0)
        ]
        cpu = node.cpu - sum(each.cpu for each in kept)
        memory = node.memory - sum(each.memory for each in kept)
        room = cpu >= waiting.cpu and memory >= waiting.memory and node.pods > len(kept)
        tolerated = untolerated(self._taints[name], pod.spec.tolerations or ()) is None
        return room and tolerated and node_matches(pod.spec, name, {})

    def _least_allocated(self, name: str, waiting: Waiting) -> int:
        node = self._free[name]
        return (node.cpu - waiting.cpu) // 1000 + (node.memory - waiting.memory) // 2**32

    # ── binding ──

    def _bind_more(self) -> None:
        while self._to_bind and self.open_binds < MOST_BINDS:
            waiting, node = self._to_bind.popleft()
            self.open_binds += 1
            self.most_open_binds = max(self.most_open_binds, self.open_binds)
            self._send(waiting, node)

    def _send(self, waiting: Waiting, node: str) -> None:
        self._events.after(self._chance.uniform(0.001, 0.03), self._bind, waiting, node)

    def _bind(self, waiting: Waiting, node: str) -> None:
        meta = waiting.pod.metadata
        if self._extender is None:
            error = self._store.bind(key_of(waiting.pod), meta.uid, node, {})
        else:
            error = self._extender.bind(meta.namespace, meta.name, meta.uid, node)
        self._events.after(self._chance.uniform(*self._bind_took), self._bind_answered, waiting, error)

    def _bind_answered(self, waiting: Waiting, error: str) -> None:
        self.open_binds -= 1
        key = key_of(waiting.pod)
        if not error:
            self._forget(key)
        else:
            self.counts["bind errors"] += 1
            self._release(waiting.pod.metadata.uid)
            if key in self._waiting:
                seconds = BACKOFF[min(waiting.errors, len(BACKOFF) - 1)]
                waiting.errors += 1
                self._events.after(seconds + self._chance.random(), self._wake, key)
        self._bind_more()

    # ── what nodes have left ──

    def _hold(self, pod: objects.PodObject, node: str) -> None:
        uid = pod.metadata.uid
        self._uids[key_of(pod)] = uid
        if uid in self._held:
            return
        cpu, memory = _amounts(pod)
        self._held[uid] = node, cpu, memory
        free = self._free.get(node)
        if free is None:
            return
        free.cpu, free.memory, free.pods = free.cpu - cpu, free.memory - memory, free.pods - 1

    def _release(self, uid: str) -> None:
        if uid not in self._held:
            return
        node, cpu, memory = self._held.pop(uid)
        if node not in self._free:
            return
        free = self._free[node]
        free.cpu, free.memory, free.pods = free.cpu + cpu, free.memory + memory, free.pods + 1
        self._wake_all()


def _amounts(pod: objects.PodObject) -> tuple[int, int]:
    asked = effective_requests(pod.spec, "", [])
    return asked["cpu"].milli if "cpu" in asked else 0, asked["memory"].value if "memory" in asked else 0
