"""The whole simulated cluster, with and without an extender, and what came of it."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from koordlite.model.wire import objects
from koordlite.numa.kubelet.requests import of_pod
from tests.support.topocluster.events import Events
from tests.support.topocluster.kubelets import Delays, EmulatedKubelet, Refusal, Shape
from tests.support.topocluster.scheduler import NAME, OTHER, Extender, Scheduler
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
    """Pods that kubelet refused, by reason, of those that the scheduler under test placed."""
    unknowable: Mapping[str, int]
    """The part of these that the extender cannot know of, by why: another scheduler's pod was bound to the node and on
    its way to the extender; or a pod ended after the last report, so that an init container went where it ended and
    keeps the next container from the NUMA node that was meant for it."""
    foreign_failures: Mapping[str, int]
    """Pods of the other scheduler that kubelet refused."""
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
        self._unseen: dict[str, set[str]] = collections.defaultdict(set)
        self._foreign_first: set[str] = set()
        self._reported_at: dict[str, float] = {}
        """When the report was written that the extender knew when it bound a pod, by the pod's uid."""
        store.on_bind = self._bound
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
        other = random.Random(seeds.random())
        store.watch(
            Scheduler(events=events, store=store, chance=other, extender=None, name=OTHER), least=0.002, most=0.05
        )
        store.watch(self._workload, least=0.01, most=0.5)
        self._kubelet_watch = store.watch(_ToKubelets(self._kubelets), least=0.005, most=0.2)
        self._extender_watch: Watch | None = None
        if self._side is not None:
            least, most = setup.extender_lag
            self._seen = _Seen(self._side.watcher, self._unseen, store)
            self._extender_watch = store.watch(self._seen, least=least, most=most)

    def run(self) -> Outcome:
        """Until all pods came, and those that could be placed have run and gone."""
        for kubelet in self._kubelets.values():
            kubelet.start()
        self._events.run(2.0)
        self._workload.start()
        self._events.run(self._workload.ends + 20 * self._setup.load.lifetime + 600.0)
        refused = [each for kubelet in self._kubelets.values() for each in kubelet.refusals]
        ours = [each for each in refused if each.pod.spec.scheduler_name == NAME]
        return Outcome(
            _by_reason(ours),
            dict(collections.Counter(why for each in ours if (why := self._excuse(each)))),
            _by_reason(each for each in refused if each.pod.spec.scheduler_name != NAME),
            dict(self._workload.counts),
            dict(self._scheduler.counts),
            self._scheduler.most_open_binds,
            self._checked,
            tuple(self._wrong),
            tuple(str(each) for each in sorted(ours, key=lambda each: each.when)[:10]),
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

    def _bound(self, pod: objects.PodObject) -> None:
        """Remember what the extender knew at that moment."""
        node, uid = pod.spec.node_name, pod.metadata.uid
        if pod.spec.scheduler_name != NAME:
            self._unseen[node].add(uid)
            return
        if self._unseen[node]:
            self._foreign_first.add(uid)
        if self._side is not None:
            self._reported_at[uid] = self._seen.reported_at.get(node, 0.0)

    def _excuse(self, refusal: Refusal) -> str:
        uid = refusal.pod.metadata.uid
        if uid in self._foreign_first:
            return "foreign pod"
        known = self._reported_at.get(uid, refusal.when)
        ended = any(known < at < refusal.when for at in self._kubelets[refusal.node].left)
        return "pod ended" if ended and refusal.pod.spec.init_containers else ""

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


def _by_reason(refusals: Iterable[Refusal]) -> dict[str, int]:
    return dict(collections.Counter(each.reason for each in refusals))


class _Seen:
    """Passes everything on to the extender's side, and keeps track of what it has seen."""

    def __init__(self, watcher: Watcher, unseen: Mapping[str, set[str]], store: Store) -> None:
        self._watcher, self._unseen, self._store = watcher, unseen, store
        self.put_node, self.remove_pod = watcher.put_node, watcher.remove_pod
        self.reported_at: dict[str, float] = {}
        """When the latest report that it has seen was written, by node."""

    def put_report(self, obj: objects.NRTObject) -> None:
        self._watcher.put_report(obj)
        self.reported_at[obj.metadata.name] = self._store.written[obj.metadata.resource_version]

    def put_pod(self, obj: objects.PodObject) -> None:
        self._watcher.put_pod(obj)
        self._unseen[obj.spec.node_name].discard(obj.metadata.uid)


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
