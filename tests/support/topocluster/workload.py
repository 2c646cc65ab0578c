"""Pods that come and go: deployments of equal pods, each with a controller that replaces a pod that failed."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any

from koordlite.model.wire import objects
from tests.support.topocluster.events import Events
from tests.support.topocluster.scheduler import NAME, OTHER
from tests.support.topocluster.store import Store, key_of

MOST_REPLACEMENTS = 5
"""A controller would go on for ever; the count of failures would be that of its patience."""


@dataclasses.dataclass(frozen=True)
class Load:
    """How many pods come, how fast, and for how long; times in seconds."""

    pods: int
    every: float
    """Mean time between pods; they come in bursts."""
    lifetime: float
    """Mean."""
    burst: int = 12
    """Replicas of a deployment, at most."""
    foreign: float = 0.0
    """Part of the deployments that a scheduler places which does not ask the extender."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    containers: tuple[tuple[str, str], ...]
    """CPU and memory of each."""
    guaranteed: bool = True
    init: tuple[tuple[str, str], ...] = ()
    weight: int = 1


KINDS = (
    _Kind((("1", "1Gi"),), weight=4),
    _Kind((("2", "2Gi"),), weight=6),
    _Kind((("4", "4Gi"),), weight=6),
    _Kind((("6", "6Gi"),), weight=4),
    _Kind((("8", "12Gi"),), weight=3),
    _Kind((("12", "8Gi"),), weight=1),
    _Kind((("2", "2Gi"), ("2", "8Gi")), weight=2),
    _Kind((("3", "1Gi"), ("1", "1Gi"), ("500m", "512Mi")), weight=2),
    _Kind((("1500m", "3Gi"),), weight=2),
    _Kind((("1", "1Gi"),), guaranteed=False, weight=3),
)
WITH_INIT = _Kind((("4", "4Gi"),), init=(("2", "1Gi"),), weight=2)


class Workload:
    """Makes the pods and watches over them; the store tells it what becomes of them."""

    def __init__(
        self,
        load: Load,
        *,
        events: Events,
        store: Store,
        chance: random.Random,
        finish: Callable[[str, str, str], None],
        kinds: tuple[_Kind, ...] = KINDS,
    ) -> None:
        """`finish` is told of node, key and uid of a pod whose work is done."""
        self._load, self._events, self._store, self._chance, self._finish = load, events, store, chance, finish
        self._kinds = kinds
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: collections.Counter[str] = collections.Counter()
        self._made = 0
        self._owned: dict[str, tuple[_Kind, int]] = {}
        self._running: set[str] = set()

    def start(self) -> None:
        """Make all pods, each in its time."""
        left, when = self._load.pods, 0.0
        while left > 0:
            size = min(left, self._chance.randint(1, self._load.burst))
            kind = self._chance.choices(self._kinds, weights=[each.weight for each in self._kinds])[0]
            scheduler = OTHER if self._chance.random() < self._load.foreign else NAME
            for _ in range(size):
                self._events.at(when + self._chance.random() * 0.2, self._create, kind, scheduler, 0)
            left -= size
            when += size * self._load.every * self._chance.uniform(0.5, 1.5)
        self.ends = when

    def put_node(self, obj: objects.NodeObject) -> None:
        """Nodes are nothing to a controller."""

    def put_report(self, obj: objects.NRTObject) -> None:
        """Reports are nothing to a controller."""

    def put_pod(self, obj: objects.PodObject) -> None:
        key, uid = key_of(obj), obj.metadata.uid
        if obj.status.phase == "Running" and uid not in self._running:
            self._running.add(uid)
            self.counts["ran"] += 1
            lifetime = self._chance.expovariate(1 / self._load.lifetime)
            self._events.after(lifetime, self._end, key, uid, obj.spec.node_name)
        elif obj.status.phase == "Failed" and uid in self._owned:
            self.failures[obj.status.reason or ""] += 1
            kind, times = self._owned.pop(uid)
            self._store.remove(key, uid)
            if times < MOST_REPLACEMENTS:
                self._create(kind, obj.spec.scheduler_name or "", times + 1)
            else:
                self.counts["given up"] += 1
        elif obj.status.phase == "Succeeded" and uid in self._owned:
            del self._owned[uid]
            self._store.remove(key, uid)

    def remove_pod(self, key: str) -> None:
        """Gone as it was told to."""

    def _create(self, kind: _Kind, scheduler: str, times: int) -> None:
        self._made += 1
        self.counts["created"] += 1
        pod = _pod(f"pod-{self._made}", kind, scheduler)
        self._owned[pod.metadata.uid] = kind, times
        self._store.create(pod)

    def _end(self, key: str, uid: str, node: str) -> None:
        """Half of them end by themselves, the others are deleted."""
        if self._chance.random() < 0.5:
            self._finish(node, key, uid)
        else:
            self._owned.pop(uid, None)
            self._store.mark_deleted(key)


def _pod(name: str, kind: _Kind, scheduler: str) -> objects.PodObject:
    spec = objects.PodSpec(
        containers=tuple(_container(f"c{i}", each, kind) for i, each in enumerate(kind.containers)),
        init_containers=tuple(_container(f"i{i}", each, kind) for i, each in enumerate(kind.init)) or None,
        scheduler_name=scheduler,
    )
    meta = objects.ObjectMeta(name=name, namespace="load", uid=f"uid-{name}")
    qos = "Guaranteed" if kind.guaranteed else "Burstable"
    return objects.PodObject(metadata=meta, spec=spec, status=objects.PodStatus(phase="Pending", qos_class=qos))


def _container(name: str, amounts: tuple[str, str], kind: _Kind) -> objects.Container:
    wanted: Mapping[str, Any] = dict(zip(("cpu", "memory"), amounts, strict=True))
    resources = objects.Resources(requests=dict(wanted), limits=dict(wanted) if kind.guaranteed else None)
    return objects.Container(name=name, image="image", resources=resources)
