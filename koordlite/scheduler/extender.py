"""The verbs of an extender, without HTTP: filter, prioritize, preempt and bind.

One scheduler asks filter and prioritize one after the other; binds come up to twenty at a time and overlap with the
questions about the next pods (kube-scheduler 1.36, recorded). So the node that a pod will probably get is counted from
its last question on, and the node it does get from the entry of bind.
"""

from __future__ import annotations

import collections
import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from koordlite.formulas.reservation.matching import Candidate
from koordlite.model.errors import KoordliteError
from koordlite.model.wire import objects
from koordlite.scheduler.attempts import SAMPLES, Attempt, Attempts
from koordlite.scheduler.boards import Board, Boards
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement import judge, pods, rank, victims
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.judgement.pods import KnownPod, PodShape
from koordlite.scheduler.owners import Met, Owners

LOG = logging.getLogger(__name__)


class NotReady(KoordliteError):
    """Nothing can be answered now; the text is the same each time, so that the scheduler does not take it for news."""


class Binder(Protocol):
    """Posts Bindings; everything that is not good is a BindError."""

    def bind(self, pod: KnownPod, node: str, annotations: Mapping[str, str]) -> None:
        """Bind the pod. Returns also when it was bound to that node already."""

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        """The pod as the API server has it."""


class BindError(KoordliteError):
    """A pod was not bound. `is_certain`: it is known that it was not; else it may have been all the same."""

    def __init__(self, text: str, *, is_certain: bool) -> None:
        super().__init__(text)
        self.is_certain = is_certain


class Victims(msgspec.Struct, frozen=True):
    """What the scheduler would evict on one node."""

    uids: tuple[str, ...]
    violations: int = 0


class _Nomination(msgspec.Struct, frozen=True):
    """A node that victims are leaving for a pod, and what they give back there."""

    node: str
    victims: tuple[KnownPod, ...]
    version: str
    """Of the report that still counts them."""
    returned: Mapping[int, pods.Amounts]


class Extender:
    """Answers a scheduler. `wall` is the clock for people; everything else goes by the cluster's monotonic one."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        wall: Callable[[], float],
        binder: Binder | None = None,
        age: Callable[[], float | None] = lambda: 0.0,
    ) -> None:
        """`age`: seconds since what is known was last vouched for; None: it never was. Without `binder` pods cannot
        be bound here."""
        self.cluster, self._wall, self._binder, self._age = cluster, wall, binder, age
        self.attempts = Attempts(cluster.settings)
        self.refusals: collections.Counter[str] = collections.Counter()
        """Nodes refused, by reason, over all questions."""
        self._boards = Boards(cluster.settings)
        self._owners = Owners(cluster)
        self._nominations: collections.OrderedDict[str, _Nomination] = collections.OrderedDict()

    def filter(self, obj: objects.PodObject, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Those of `names` the pod may go to, and why not to the others. NotReady when nothing can be said."""
        self._check()
        with self.cluster.lock:
            pod = self._asked(obj)
            # What was kept for the pod by an earlier attempt is not in its own way.
            self.cluster.reservations.end(pod.uid, "attempted again", self._monotonic())
            refusals: Mapping[str, str] = self._board(pod.shape).refused
            met = self._owners.met(pod, obj)
            if met.rows:
                refusals = met.refusals(refusals, names)
            passed = [name for name in names if name not in refusals]
            refused = {name: refusals[name] for name in names if name in refusals}
            self._readmit(pod, passed, refused)
            attempt = self._remember(pod, names, len(passed), refused, met)
            if len(passed) == 1:
                self._keep(pod, passed[0], attempt)
        return passed, refused

    def prioritize(self, obj: objects.PodObject, names: Sequence[str]) -> list[tuple[str, int]]:
        """0 to 10 for each of `names`; the best one is kept for the pod for a moment."""
        self._check()
        with self.cluster.lock:
            pod = self._asked(obj)
            scores = self._board(pod.shape).scores(names, self.cluster.index, self.cluster.rows)
            scores = self._owners.met(pod, obj).scores(names, scores)
            stands = rank.by_tenths(scores)
            answer = [(name, stands[score]) for name, score in zip(names, scores, strict=True)]
            attempt = self.attempts.of_uid(pod.key, pod.uid)
            best = [name for _, name in heapq.nlargest(SAMPLES, zip(scores, names, strict=True))]
            if attempt is not None:
                attempt.stands, attempt.best = stands, best
            if best:
                self._keep(pod, best[0], attempt)
        return answer

    def preempt(self, obj: objects.PodObject, given: Mapping[str, Victims]) -> dict[str, Victims]:
        """For each node on which evictions help the victims to evict; the other nodes are left out."""
        self._check()
        with self.cluster.lock:
            pod = self._asked(obj)
            self.cluster.refresh()
            answer: dict[str, Victims] = {}
            met = self._owners.met(pod, obj)
            for name, asked in given.items():
                found = self._victims(pod, name, asked, met)
                if found is not None:
                    answer[name] = found
            self._note(pod, f"preemption: {len(answer)} of {len(given)} nodes offered")
        return answer

    def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind the pod to `node`; empty when it is bound there, else why not. Asking twice does no harm."""
        if self._binder is None:
            return "this extender was started without a cluster to bind pods in"
        try:
            pod, candidate = self._to_bind(namespace, name, uid, node)
            if pod.node == node:
                return ""
            annotations, numa_nodes = self._reserve(pod, node, candidate)
            self._binder.bind(pod, node, annotations)
        except BindError as error:
            return self._unbound(f"{namespace}/{name}", uid, error)
        self._bound(pod, node, annotations, numa_nodes)
        return ""

    def _monotonic(self) -> float:
        return self.cluster.now()

    def not_ready(self) -> str:
        """Why nothing can be answered now; empty when it can. The text does not change while the reason stays."""
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

    def _board(self, shape: PodShape) -> Board:
        """The board of a shape, brought up to date."""
        cluster = self.cluster
        cluster.refresh()
        if self._boards.settings is not cluster.settings:
            # A policy was switched: nothing that was judged before counts.
            self._boards, self.attempts.settings = Boards(cluster.settings), cluster.settings
        board = self._boards.of(shape, len(cluster.rows))
        now, seen = cluster.changes_before + len(cluster.changes), board.version - cluster.changes_before
        if seen < 0:
            board.judge(cluster.rows)
        elif board.version < now:
            for name in set(cluster.changes[seen:]):
                place = cluster.index.get(name)
                board.forget(name) if place is None else board.judge((cluster.rows[place],))
        board.version = now
        return board

    def _remember(self, pod: KnownPod, names: Sequence[str], passed: int, refused: dict[str, str], met: Met) -> Attempt:
        reasons = collections.Counter(refused.values())
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
        )
        self.attempts.put(made)
        said = {"pod": pod.key, "flow": "filter", "nodes": len(names), "passed": passed, "why": dict(reasons)}
        LOG.debug("filter of pod %s: %d of %d nodes pass", pod.key, passed, len(names), extra=said)
        return made

    def _keep(self, pod: KnownPod, node: str, attempt: Attempt | None) -> None:
        """Count the pod on the node it will probably get."""
        row = self._owners.row(pod.shape, node, attempt.candidate if attempt is not None else None)
        annotations: Mapping[str, str] = {}
        if row is not None:
            annotations = judge.promise(pod.shape, row, self.cluster.settings, pod.uid).annotations
            if attempt is not None:
                attempt.numa_nodes = judge.verdict(pod.shape, row, self.cluster.settings).numa_nodes
        if pod.shape.exclusive or annotations:
            self.cluster.reserve(pod, node, "tentative", annotations)

    def _readmit(self, pod: KnownPod, passed: list[str], refused: dict[str, str]) -> None:
        """A node that was emptied for this pod is not refused because its report does not show it yet."""
        nomination = self._nominations.get(pod.uid)
        if nomination is None or nomination.node not in refused:
            return
        row = self.cluster.row(nomination.node)
        alive = any(victim.uid in self.cluster.pods for victim in nomination.victims)
        if row is None or row.report is None or row.report.fingerprint or alive:
            return
        if row.report.version != nomination.version:
            return
        freed = victims.without(row, nomination.victims, nomination.returned)
        if judge.verdict(pod.shape, freed, self.cluster.settings).passes:
            del refused[nomination.node]
            passed.append(nomination.node)

    def _victims(self, pod: KnownPod, node: str, asked: Victims, met: Met) -> Victims | None:
        """None: evictions there do not help, or would displace what is reserved for others."""
        row, state = met.rows.get(node) or self.cluster.row(node), self.cluster.nodes.get(node)
        if row is None or state is None:
            return asked if asked.uids else None  # Nothing is known against it.
        if kept := victims.reserved_for_others(row, asked.uids):
            self._note(pod, f"preemption on {node}: {kept}")
            return None
        known = [self.cluster.pods[uid] for uid in asked.uids if uid in self.cluster.pods]
        strange = [uid for uid in asked.uids if uid not in self.cluster.pods]
        choice = victims.choose(
            pod.shape, row, known, priority=pod.priority, returned=state.returned, settings=self.cluster.settings
        )
        if choice.dropped:
            self._note(pod, f"preemption on {node}: {choice.dropped}")
            return None
        uids = (*(victim.uid for victim in choice.victims), *strange)
        if not uids:
            return None
        self._nominate(pod, node, row, choice.victims)
        return Victims(uids, asked.violations)

    def _nominate(self, pod: KnownPod, node: str, row: Row, chosen: tuple[KnownPod, ...]) -> None:
        state = self.cluster.nodes[node]
        version = row.report.version if row.report else ""
        self._nominations[pod.uid] = _Nomination(node, chosen, version, state.returned(chosen))
        while len(self._nominations) > 1024:
            self._nominations.popitem(last=False)

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

    def _reserve(
        self, pod: KnownPod, node: str, candidate: Candidate | None
    ) -> tuple[Mapping[str, str], tuple[int, ...]]:
        """Count the pod on the node from now on, if it still fits: others may have come between. What it was promised,
        and the NUMA nodes."""
        with self.cluster.lock:
            now = self._monotonic()
            held = self.cluster.reservations.of_pod(pod.uid)
            if held is not None and held.stage != "tentative" and held.node == node:
                # The same request again: its first answer came too late for the scheduler.
                return dict(held.annotations), ()
            self.cluster.reservations.end(pod.uid, "attempted again", now)
            row = self._owners.row(pod.shape, node, candidate)
            settings = self.cluster.settings
            found = judge.PROMISED if row is None else judge.promise(pod.shape, row, settings, pod.uid)
            if found.refusal and pod.uid not in self._nominations:
                raise BindError(f"{found.refusal} (taken meanwhile by another pod)", is_certain=True)
            numa_nodes = judge.verdict(pod.shape, row, settings).numa_nodes if row is not None else ()
            self.cluster.reserve(pod, node, "binding", found.annotations)
            return found.annotations, numa_nodes

    def _bound(self, pod: KnownPod, node: str, annotations: Mapping[str, str], numa_nodes: tuple[int, ...]) -> None:
        with self.cluster.lock:
            self._nominations.pop(pod.uid, None)
            attempt = self.attempts.of_uid(pod.key, pod.uid)
            if attempt is not None and attempt.chosen != node:
                attempt.chosen, attempt.numa_nodes = node, numa_nodes
                attempt.annotations = dict(annotations)
                attempt.events.append(f"bound to {node}")
            if self.cluster.reservations.of_pod(pod.uid) is not None:
                self.cluster.reserve(pod, node, "bound", annotations)

    def _unbound(self, key: str, uid: str, error: BindError) -> str:
        with self.cluster.lock:
            if error.is_certain:
                self.cluster.reservations.end(uid, "bind failed", self._monotonic())
            attempt = self.attempts.of_uid(key, uid)
            if attempt is not None:
                attempt.events.append(f"bind failed: {error}")
        LOG.warning("bind of pod %s failed: %s", key, error, extra={"pod": key, "flow": "bind"})
        return str(error)

    def _note(self, pod: KnownPod, text: str) -> None:
        attempt = self.attempts.of_uid(pod.key, pod.uid)
        if attempt is not None:
            attempt.events.append(text)
