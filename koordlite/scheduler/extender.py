"""The verbs of an extender, without HTTP: filter, prioritize, preempt and bind.

One scheduler asks filter and prioritize one after the other; binds come up to twenty at a time and overlap with the
questions about the next pods (kube-scheduler 1.36, recorded). So the node that a pod will probably get is counted from
its last question on, and the node it does get from the entry of bind.
"""

from __future__ import annotations

import collections
import heapq
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from koordlite.model.errors import KoordliteError
from koordlite.model.wire import objects
from koordlite.reservation import pods
from koordlite.reservation.matching import Candidate
from koordlite.reservation.pods import KnownPod, PodShape
from koordlite.scheduler.attempts import MOST_ENTRIES, SAMPLES, Attempt, Attempts, Board
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement import judge, victims
from koordlite.scheduler.judgement.nodes import Promise, Row
from koordlite.scheduler.loads import Judged, Loads
from koordlite.scheduler.nominations import LEAVING, Nominations, Offer
from koordlite.scheduler.owners import Met, Owners

LOG = logging.getLogger(__name__)
BINDING_SECONDS = 0.05
"""How long the next pod's question waits for the binding of the pod before it. The scheduler sends both at the same
moment, and only the binding tells which of the nodes that passed it has chosen."""
SUMS = "too little in all for the pod, as kube-scheduler counts"
"""Why nodes were refused that the scheduler only asked about when it looked for victims."""
TRIES = 3
"""How often a binding is judged anew, where its node changed meanwhile, before it is judged with the lock held."""


class NotReady(KoordliteError):
    """Nothing can be answered now; the text is the same each time, so that the scheduler does not take it for news."""


class Binder(Protocol):
    """Binds pods, and writes to pods that are bound; everything that is not good is a BindError."""

    def bind(self, pod: KnownPod, node: str, annotations: Mapping[str, str]) -> None:
        """Bind the pod. Returns also when it was bound to that node already."""

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        """The pod as the API server has it."""

    def promise(self, obj: objects.PodObject, annotations: Mapping[str, str]) -> None:
        """Write annotations to this version of the pod, and to no later one."""


class BindError(KoordliteError):
    """A pod was not bound. `is_certain`: it is known that it was not; else it may have been all the same."""

    def __init__(self, text: str, *, is_certain: bool) -> None:
        super().__init__(text)
        self.is_certain = is_certain


class Victims(msgspec.Struct, frozen=True):
    """Pods that the scheduler would evict on one node."""

    uids: tuple[str, ...]
    violations: int = 0


class Extender:
    """Answers a scheduler. `wall` is the clock for people; everything else goes by the cluster's monotonic one."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        wall: Callable[[], float],
        binder: Binder | None = None,
        age: Callable[[], float | None] = lambda: 0.0,
        loads: Loads | None = None,
    ) -> None:
        """`age`: seconds since what is known was last vouched for; None: it never was. Without `binder` pods cannot
        be bound here. `loads`: what was measured on the nodes; None: they are judged by requests only."""
        self.cluster, self._wall, self._binder, self._age = cluster, wall, binder, age
        self.loads = loads
        self.attempts = Attempts(cluster.settings)
        self.refusals: collections.Counter[str] = collections.Counter()
        """Nodes refused, by reason, over all questions."""
        self._boards: dict[PodShape, Board] = {}
        """Those asked for last come last; all of them judge by the settings of `attempts`."""
        self._owners = Owners(cluster)
        self._nominations = Nominations(cluster)
        self._undecided: tuple[str, float] | None = None
        """uid of the pod that was answered last and is not bound yet, and when."""
        self._decided = threading.Condition(cluster.lock)
        self._expects_bindings = binder is not None
        """False once a binding did not come in time: a scheduler may bind without us."""
        self._questions = threading.Lock()
        """Held by one question after the other, so that each counts what was kept for the pods before it. Bindings,
        events and pages do not wait for it, nor for the judgement."""

    def filter(self, obj: objects.PodObject, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Filter `names` to those the pod may go to, with reasons against the others. NotReady when nothing can be
        said."""
        self._check()
        with self._questions:
            with self.cluster.lock:
                pod = self._asked(obj)
                self._await_binding(pod)
                self._nominations.refresh()
                # What was kept for the pod by an earlier attempt is not in its own way.
                self.cluster.assumed.end(pod.uid, "attempted again", self.cluster.now())
            refusals: Mapping[str, str] = self._board(pod.shape).refused
            met = self._owners.met(pod, obj)
            if met.rows:
                refusals = met.refusals(refusals, names)
            passed = [name for name in names if name not in refusals]
            refused = {name: refusals[name] for name in names if name in refusals}
            with self.cluster.lock:
                self._readmit(pod, passed, refused)
            measured = self.loads.judged(obj) if self.loads is not None else None
            if measured is not None and (busy := measured.refusals(passed)):
                passed, refused = [name for name in passed if name not in busy], {**refused, **busy}
            attempt = self._remember(pod, names, len(passed), refused, met=met, measured=measured)
            if len(passed) == 1:
                self._keep(pod, passed[0], attempt)
                self._undecided = pod.uid, self.cluster.now()
        return passed, refused

    def prioritize(self, obj: objects.PodObject, names: Sequence[str]) -> list[tuple[str, int]]:
        """0 to 10 for each of `names`; the best one is kept for the pod for a moment."""
        self._check()
        with self._questions:
            with self.cluster.lock:
                pod = self._asked(obj)
            board = self._board(pod.shape)
            scores = self._score(board, names)
            scores = self._owners.met(pod, obj).scores(names, scores)
            if self.loads is not None:
                with self.cluster.lock:
                    attempt = self.attempts.of_uid(pod.key, pod.uid)
                measured = attempt.measured if attempt is not None else None
                measured = measured or self.loads.judged(obj)
                scores = [measured.scored(name, score) for name, score in zip(names, scores, strict=True)]
            stands = by_tenths(scores)
            answer = [(name, stands[score]) for name, score in zip(names, scores, strict=True)]
            best = [name for _, name in heapq.nlargest(SAMPLES, zip(scores, names, strict=True))]
            with self.cluster.lock:
                attempt = self.attempts.of_uid(pod.key, pod.uid)
                if attempt is not None:
                    attempt.stands, attempt.best = stands, best
            if best:
                self._keep(pod, best[0], attempt)
                self._undecided = pod.uid, self.cluster.now()
        return answer

    def preempt(self, obj: objects.PodObject, given: Mapping[str, Victims]) -> dict[str, Victims]:
        """For each node on which evictions help the victims to evict; the other nodes are left out."""
        self._check()
        with self._questions, self.cluster.lock:
            pod = self._asked(obj)
            self.cluster.refresh()
            self._nominations.refresh()
            standing = self._nominations.of(pod)
            if standing is not None:
                self.note(pod, f"preemption: none, victims are leaving {standing.node} for it")
                return {}
            answer: dict[str, Victims] = {}
            offers: dict[str, Offer] = {}
            met = self._owners.met(pod, obj)
            measured = self.loads.judged(obj) if self.loads is not None else None
            if self.attempts.of_uid(pod.key, pod.uid) is None:
                # No node has enough in all, so the scheduler asked nothing before it looks for victims.
                self._remember(pod, list(given), 0, dict.fromkeys(given, SUMS), met=met, measured=measured)
            for name, asked in given.items():
                # What was measured stays until the next measurement, whoever is evicted.
                if measured is not None and (why := measured.refusal(name)):
                    self.note(pod, f"preemption on {name}: {why}")
                    continue
                try:
                    found = self._offer(pod, name, asked, met)
                except Exception as error:  # noqa: BLE001 - one node's fault costs that node
                    self.note(pod, f"preemption on {name}: {self.cluster.faults.note(name, error)}")
                    continue
                if found is not None:
                    answer[name], offer = found
                    offers |= {name: offer} if offer is not None else {}
            self._nominations.put(pod, offers)
            self.note(pod, f"preemption: {len(answer)} of {len(given)} nodes offered")
        return answer

    def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind the pod to `node`; empty when it is bound there, else why not. Asking twice does no harm."""
        if self._binder is None:
            return "this extender was started without a cluster to bind pods in"
        self._check()
        try:
            pod, candidate = self._to_bind(namespace, name, uid, node)
            if pod.node == node:
                return ""
            try:
                promise = self._reserve(pod, node, candidate)
            finally:
                self._decide(pod)
            self._binder.bind(pod, node, promise.annotations)
        except BindError as error:
            return self._unbound(f"{namespace}/{name}", uid, error)
        self._bound(pod, node, promise)
        return ""

    def warm(self, most: int) -> None:
        """Judge up to `most` shapes of pods that wait for a scheduler of ours before it asks about them, and compile
        the nodes that have changed."""
        cluster = self.cluster
        with cluster.lock:
            cluster.refresh()
            now = cluster.changes_before + len(cluster.changes)
            shapes = [
                shape
                for shape in dict.fromkeys(cluster.waiting.values())
                if (board := self._boards.get(shape)) is None or board.version < now
            ]
        for shape in shapes[:most]:
            with self._questions:
                board = self._board(shape)
                self._score(board, list(cluster.index))

    def _score(self, board: Board, names: Sequence[str]) -> list[int]:
        with self.cluster.lock:
            index, rows = self.cluster.index, self.cluster.rows
            unscored = [(name, rows[index[name]] if name in index else None) for name in board.unscored(names)]
        return board.scores(names, unscored)

    def not_ready(self) -> str:
        """Reason why nothing can be answered now; empty when it can. The text does not change while the reason
        stays."""
        age, most = self._age(), self.cluster.settings.max_age_seconds
        if age is None:
            return "koordlite scheduler-extender: not ready, the cluster has not been listed yet"
        old = f"koordlite scheduler-extender: what is known of the cluster is older than {most:g} s"
        return f"{old}; the API server does not answer" if age > most else ""

    def _check(self) -> None:
        """Nothing is answered from a picture that is too old: it says so instead."""
        if why := self.not_ready():
            raise NotReady(why)

    def _asked(self, obj: objects.PodObject) -> KnownPod:
        return pods.known(obj, self.cluster.shapes.of(obj))

    def _await_binding(self, pod: KnownPod) -> None:
        """Wait a moment for the binding of the pod that was answered before this one."""
        while self._undecided is not None and self._undecided[0] != pod.uid and self._expects_bindings:
            left = self._undecided[1] + BINDING_SECONDS - self.cluster.now()
            if left <= 0 or not self._decided.wait(left):
                self._undecided, self._expects_bindings = None, False

    def _decide(self, pod: KnownPod) -> None:
        """The pod's binding came, and counts: the next question may be answered."""
        with self.cluster.lock:
            if self._undecided is not None and self._undecided[0] == pod.uid:
                self._undecided = None
                self._decided.notify_all()

    def _board(self, shape: PodShape) -> Board:
        """The board of a shape, brought up to date. Nodes are judged without the cluster's lock: events are taken
        meanwhile, and count for the next question."""
        cluster = self.cluster
        with cluster.lock:
            cluster.refresh()
            if self.attempts.settings is not cluster.settings:
                # A policy was switched: nothing that was judged before counts.
                self._boards, self.attempts.settings = {}, cluster.settings
            board = self._boards.pop(shape, None) or Board(shape, cluster.settings, cluster.faults)
            self._boards[shape] = board
            while len(self._boards) > max(8, MOST_ENTRIES // max(1, len(cluster.rows))):
                del self._boards[next(iter(self._boards))]
            now, seen = cluster.changes_before + len(cluster.changes), board.version - cluster.changes_before
            rows: list[Row | None] = []
            if seen < 0:
                rows = list(cluster.rows)
            elif board.version < now:
                for name in set(cluster.changes[seen:]):
                    place = cluster.index.get(name)
                    board.forget(name) if place is None else rows.append(cluster.rows[place])
        board.judge(rows)
        board.version = now
        return board

    def _remember(
        self,
        pod: KnownPod,
        names: Sequence[str],
        passed: int,
        refused: dict[str, str],
        *,
        met: Met,
        measured: Judged | None,
    ) -> Attempt:
        reasons = collections.Counter(refused.values())
        with self.cluster.lock:
            self.refusals.update(reasons)
            index = self.cluster.index
            unknown = [name for name in names if name not in index]
            made = Attempt(
                pod=pod.key,
                uid=pod.uid,
                at=self._wall(),
                shape=pod.shape,
                rows=[met.rows.get(row.name, row) if row is not None else None for row in self.cluster.rows]
                if met.rows
                else list(self.cluster.rows),
                places=None if len(names) == len(index) else [index[name] for name in names if name in index],
                unknown=unknown,
                passed=passed,
                reasons=dict(reasons),
                candidate=met.candidate,
                measured=measured,
            )
            self.attempts.put(made)
        said = {"pod": pod.key, "flow": "filter", "nodes": len(names), "passed": passed, "why": dict(reasons)}
        LOG.debug("filter of pod %s: %d of %d nodes pass", pod.key, passed, len(names), extra=said)
        return made

    def _keep(self, pod: KnownPod, node: str, attempt: Attempt | None) -> None:
        """Count the pod on the node it will probably get."""
        candidate = attempt.candidate if attempt is not None else None
        promise = self._promised(pod, self.cluster.row(node), candidate)
        if attempt is not None:
            attempt.numa_nodes = promise.numa_nodes
        if pod.shape.exclusive or promise.annotations:
            self.cluster.reserve(pod, node, "tentative", promise.annotations)

    def _readmit(self, pod: KnownPod, passed: list[str], refused: dict[str, str]) -> None:
        """A node that was emptied for this pod is not refused because its report does not show it yet."""
        offer = self._nominations.of(pod)
        if offer is None:
            return
        if not passed:
            self._nominations.keep(pod, offer)
        if offer.node not in refused:
            return
        fits, waits = self._nominations.stands(pod, offer)
        if fits:
            del refused[offer.node]
            passed.append(offer.node)
        elif waits:
            refused[offer.node] = LEAVING
        else:
            self.note(pod, f"the room that was made on {offer.node} is taken")
            self._nominations.drop(pod.uid)
            self.cluster.assumed.end(pod.uid, "attempted again", self.cluster.now())

    def _offer(self, pod: KnownPod, node: str, asked: Victims, met: Met) -> tuple[Victims, Offer | None] | None:
        """The victims there; None: evictions do not help, or would displace what is reserved for others."""
        plain, state = self.cluster.row_as_expected(node), self.cluster.nodes.get(node)
        if plain is None or state is None:
            return (asked, None) if asked.uids else None  # Nothing is known against it.
        row = msgspec.structs.replace(met.rows[node], zones=plain.zones) if node in met.rows else plain
        if kept := victims.reserved_for_others(row, asked.uids):
            self.note(pod, f"preemption on {node}: {kept}")
            return None
        row = self._nominations.beside_others(pod, row)
        gone = state.pods.keys() - {each.uid for each in row.pods}
        given = [self.cluster.pods[uid] for uid in asked.uids if uid in self.cluster.pods and uid not in gone]
        choice = victims.choose(
            pod.shape,
            row,
            given,
            priority=pod.priority,
            returned=state.returned,
            settings=self.cluster.settings,
            is_leaving=bool(gone),
            exempt={each.uid for each in row.pods if each.uid not in state.pods},
        )
        if choice.dropped:
            self.note(pod, f"preemption on {node}: {choice.dropped}")
            return None
        uids = (*(each.uid for each in choice.victims), *(uid for uid in asked.uids if uid not in self.cluster.pods))
        if not uids:
            return None
        freed = victims.without(row, choice.victims, state.returned(choice.victims))
        takes = judge.takes(pod.shape, freed, self.cluster.settings)
        if self._nominations.is_disputed(pod, freed, takes):
            self.note(pod, f"preemption on {node}: it is being emptied for another pod, which may get the same room")
            return None
        returned = {each.uid: state.returned([each]) for each in choice.victims}
        offer = Offer(node, choice.victims, returned, takes)
        return Victims(uids, asked.violations), offer

    def _to_bind(self, namespace: str, name: str, uid: str, node: str) -> tuple[KnownPod, Candidate | None]:
        """The pod, from the watch, from its attempt, or from the API server, and as it looks for reservations."""
        key = f"{namespace}/{name}"
        with self.cluster.lock:
            known, attempt = self.cluster.pod_of(key), self.attempts.of_uid(key, uid)
            if known is None or known.uid != uid:
                known = KnownPod(namespace, name, uid, "", attempt.shape) if attempt is not None else None
            if attempt is not None:
                assert known is not None
                return known, attempt.candidate
            if known is not None and not self.cluster.reserved.of_node(node):
                return known, None
        assert self._binder is not None
        obj = self._binder.pod(namespace, name)
        if obj.metadata.uid != uid:
            raise BindError(f'pods "{name}" is another pod now: uid {obj.metadata.uid}, not {uid}', is_certain=True)
        with self.cluster.lock:
            found = pods.known(obj, self.cluster.shape(obj))
            return found, self._owners.met(found, obj).candidate

    def _reserve(self, pod: KnownPod, node: str, candidate: Candidate | None) -> Promise:
        """Count the pod on the node from now on, if it still fits: others may have come between."""
        cluster = self.cluster
        with cluster.lock:
            self._expects_bindings = True
            self._decide(pod)
            held = self.cluster.assumed.of_pod(pod.uid)
            if held is not None and held.stage in ("binding", "bound") and held.node == node:
                # The same request again: its first answer came too late for the scheduler.
                return Promise(dict(held.annotations))
            cluster.assumed.end(pod.uid, "attempted again", self.cluster.now())
        for _ in range(TRIES):
            row = cluster.row(node)
            found = self._promised(pod, row, candidate)
            with cluster.lock:
                if cluster.row(node) is row:
                    return self._reserved(pod, node, found)
        with cluster.lock:
            return self._reserved(pod, node, self._promised(pod, cluster.row(node), candidate))

    def _promised(self, pod: KnownPod, row: Row | None, candidate: Candidate | None) -> Promise:
        """Allocation of the pod on the node as it is now."""
        if row is None:
            return judge.PROMISED
        seen = row if candidate is None else self._owners.seen(pod.shape, candidate, row)
        return judge.promise(pod.shape, seen, self.cluster.settings, pod.uid)

    def _reserved(self, pod: KnownPod, node: str, promise: Promise) -> Promise:
        if promise.refusal and pod.uid not in self._nominations:
            raise BindError(f"{promise.refusal} (taken meanwhile by another pod)", is_certain=True)
        self.cluster.reserve(pod, node, "binding", promise.annotations)
        if self.loads is not None:
            self.loads.bound(pod.uid, node)
        return promise

    def _bound(self, pod: KnownPod, node: str, promise: Promise) -> None:
        with self.cluster.lock:
            self._nominations.drop(pod.uid)
            attempt = self.attempts.of_uid(pod.key, pod.uid)
            if attempt is not None and attempt.chosen != node:
                attempt.chosen, attempt.numa_nodes = node, promise.numa_nodes
                attempt.annotations = dict(promise.annotations)
                attempt.events.append(f"bound to {node}")
            if self.cluster.assumed.of_pod(pod.uid) is not None:
                self.cluster.reserve(pod, node, "bound", promise.annotations)

    def _unbound(self, key: str, uid: str, error: BindError) -> str:
        with self.cluster.lock:
            if error.is_certain:
                if self.loads is not None:
                    self.loads.remove_pod(key)
                self.cluster.assumed.end(uid, "bind failed", self.cluster.now())
            attempt = self.attempts.of_uid(key, uid)
            if attempt is not None:
                attempt.events.append(f"bind failed: {error}")
        LOG.warning("bind of pod %s failed: %s", key, error, extra={"pod": key, "flow": "bind"})
        return str(error)

    def note(self, pod: KnownPod, text: str) -> None:
        """Remember for people what became of the pod after its attempt."""
        with self.cluster.lock:
            attempt = self.attempts.of_uid(pod.key, pod.uid)
            if attempt is not None:
                attempt.events.append(text)


MOST_SCORE = 10
"""MaxExtenderPriority: the scheduler multiplies by the weight and by 10."""


def by_tenths(scores: Sequence[int]) -> Mapping[int, int]:
    """Rank of each score: its place among the different ones, in tenths.

    A tenth of the score itself would make 71 and 79 equal. Up to eleven different scores stay different; a higher
    score never stands below a lower one; equal ones are equal. One single score says nothing, and stands at 0.
    """
    places = sorted(set(scores))
    last = len(places) - 1
    return {score: place * MOST_SCORE // last if last else 0 for place, score in enumerate(places)}
