"""The whole simulated cluster, with and without an extender, and what came of it."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from koordlite.model.wire import objects
from koordlite.numa.kubelet.requests import of_pod
from tests.support.topocluster.events import Events
from tests.support.topocluster.kubelets import Delays, EmulatedKubelet, Shape
from tests.support.topocluster.scheduler import Extender, Scheduler
from tests.support.topocluster.store import Store, Watch, Watcher
from tests.support.topocluster.workload import KINDS, Load, Workload

PLAIN, USUAL = Shape(), Delays()
CHECKED_PER_QUESTION = 2
"""Refused nodes that are compared with kubelet's own answer."""


class Side(Protocol):
    """The scheduler's side under test: an extender with its own watch of the cluster."""

    @property
    def watcher(self) -> Watcher:
        """Is told of nodes, reports and pods."""

    @property
    def verbs(self) -> Extender:
        """Is asked by the scheduler."""

    def reserved(self, node: str) -> bool:
        """Whether it keeps anything of the node for a pod that it has not seen there yet."""


MakeSide = Callable[[Callable[[], float], Store], Side]
"""(clock, API server) → the side."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """What is simulated."""

    nodes: int
    load: Load
    seed: int
    shape: Shape = PLAIN
    delays: Delays = USUAL
    with_fingerprint: bool = True
    extender_lag: tuple[float, float] = (0.005, 0.1)
    """Seconds by which the extender sees things later."""
    kinds: tuple[object, ...] = KINDS


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Counts of a run."""

    failures: Mapping[str, int]
    """Pods that kubelet refused, by reason."""
    pods: Mapping[str, int]
    scheduler: Mapping[str, int]
    most_open_binds: int
    checked: int
    """Refusals of the extender on quiet nodes that were compared with kubelet's answer."""
    wrongly_refused: tuple[str, ...]
    """Those in which kubelet would have admitted the pod."""
    refusals: tuple[str, ...]
    """What kubelet said to the first pods that it refused."""
    never_placed: int


class TopologyCluster:
    """One run."""

    def __init__(self, setup: Setup, make_side: MakeSide | None) -> None:
        self._setup = setup
        self._events = events = Events()
        seeds = random.Random(setup.seed)
        self._chance = random.Random(seeds.random())
        self._store = store = Store(events, random.Random(seeds.random()))
        self._side = make_side(lambda: events.now, store) if make_side else None
        self._checked, self._wrong = 0, list[str]()
        self._kubelets = self._make_kubelets(random.Random(seeds.random()))
        self._scheduler = Scheduler(
            events=events,
            store=store,
            chance=random.Random(seeds.random()),
            extender=self._side.verbs if self._side else None,
            looked=self._looked,
        )
        self._workload = Workload(
            setup.load,
            events=events,
            store=store,
            chance=random.Random(seeds.random()),
            finish=lambda node, key, uid: self._kubelets[node].finish(key, uid),
            kinds=setup.kinds,  # type: ignore[arg-type]
        )
        store.watch(self._scheduler, least=0.002, most=0.05)
        store.watch(self._workload, least=0.01, most=0.5)
        self._kubelet_watch = store.watch(_ToKubelets(self._kubelets), least=0.005, most=0.2)
        self._extender_watch: Watch | None = None
        if self._side is not None:
            least, most = setup.extender_lag
            self._extender_watch = store.watch(self._side.watcher, least=least, most=most)

    def run(self) -> Outcome:
        """Until all pods came, and those that could be placed have run and gone."""
        for kubelet in self._kubelets.values():
            kubelet.start()
        self._events.run(2.0)
        self._workload.start()
        self._events.run(self._workload.ends + 20 * self._setup.load.lifetime + 600.0)
        refusals = [
            f"{when:.2f} {kubelet.name}: {reason} {pod} {dict(numbers)}"
            for kubelet in self._kubelets.values()
            for when, reason, pod, numbers in kubelet.refusals
        ]
        failures: collections.Counter[str] = collections.Counter()
        for kubelet in self._kubelets.values():
            failures.update(kubelet.refused)
        return Outcome(
            dict(failures),
            dict(self._workload.counts),
            dict(self._scheduler.counts),
            self._scheduler.most_open_binds,
            self._checked,
            tuple(self._wrong),
            tuple(sorted(refusals, key=lambda text: float(text.split()[0]))[:10]),
            sum(not pod.spec.node_name for pod in self._store.pods.values()),
        )

    def _make_kubelets(self, chance: random.Random) -> dict[str, EmulatedKubelet]:
        setup, empty = self._setup, self._setup.shape.empty()
        return {
            name: EmulatedKubelet(
                name,
                setup.shape,
                empty,
                events=self._events,
                store=self._store,
                chance=chance,
                delays=setup.delays,
                with_fingerprint=setup.with_fingerprint,
            )
            for name in (f"node-{number:04}" for number in range(setup.nodes))
        }

    def _looked(self, pod: objects.PodObject, passed: Sequence[str], refused: Sequence[str]) -> None:
        """Compare refusals with kubelet's own answer, where nothing is on its way that the extender cannot know."""
        side, watch = self._side, self._extender_watch
        if side is None or watch is None:
            return
        quiet = [
            name
            for name in self._chance.sample(refused, min(len(refused), 4 * CHECKED_PER_QUESTION))
            if not self._kubelets[name].pending
            and self._kubelets[name].is_reported
            and not (watch.coming[name] or self._kubelet_watch.coming[name])
            and not side.reserved(name)
        ]
        for name in quiet[:CHECKED_PER_QUESTION]:
            self._checked += 1
            if self._kubelets[name].would_admit(of_pod(pod)):
                self._wrong.append(f"{self._events.now:.2f} {name}: {pod.metadata.name}")


class _ToKubelets:
    """Each kubelet sees the pods that are bound to its node."""

    def __init__(self, kubelets: Mapping[str, EmulatedKubelet]) -> None:
        self._kubelets = kubelets

    def put_node(self, obj: objects.NodeObject) -> None: ...

    def put_report(self, obj: objects.NRTObject) -> None: ...

    def put_pod(self, obj: objects.PodObject) -> None:
        kubelet = self._kubelets.get(obj.spec.node_name)
        if kubelet is not None:
            kubelet.see(obj)

    def remove_pod(self, key: str) -> None: ...
