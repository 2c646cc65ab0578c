"""The verbs of an extender, without HTTP: filter, prioritize, preempt and bind.

One scheduler asks filter and prioritize one after the other; binds come up to twenty at a time and overlap with the
questions about the next pods (kube-scheduler 1.36, recorded). So the node that a pod will probably get is counted from
its last question on, and the node it does get from the entry of bind.
"""

from __future__ import annotations

import collections
import heapq
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from koordlite.model.errors import KoordliteError
from koordlite.model.wire import objects
from koordlite.reservation import capacity, matching
from koordlite.reservation.matching import Candidate
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.cluster import Board, Cluster
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.load import PodLoad
from koordlite.scheduler.judgement.nodes import JudgeSettings, Promise, Row
from koordlite.scheduler.loads import LoadJudgement, Loads
from koordlite.scheduler.nominations import Nominations, Offer, Victims

LOG = logging.getLogger(__name__)
BINDING_SECONDS = 0.05
"""Time for which a question waits for the binding of the pod before it. The scheduler sends both at the same moment,
and only the binding tells which of the nodes that passed it has chosen."""
SUMS = "too little in all for the pod, as kube-scheduler counts"
"""Refusal of nodes that the scheduler only asked about when it looked for victims."""
MOST_WAITING = 5_000
"""Pods that wait for a reservation whose time is remembered."""
MOST_REFUSED = 1_000
"""Pods that no node may have and that are remembered: when one of them is bound, kube-scheduler tries all others."""
MOST_PODS = 5_000
"""Pods whose latest attempt is remembered."""
MOST_ROWS = 300_000
"""Rows that all attempts together refer to."""
SAMPLES, LOOKED_AT = 10, 50
"""Nodes of each kind that stay of an attempt whose rows are let go, and nodes among which they are looked for."""
FEWEST_NODES = 100
"""kube-scheduler asks about all nodes that will do for it, or about so many of them at least, and not about the others:
the next attempt begins where this one ended (1.36, `numFeasibleNodesToFind`)."""
WARM_SHAPES = 4
"""Shapes that are judged at once before anybody asks."""
TRIES = 3
"""Times that a binding is judged anew, as its node changed meanwhile, before it is judged with the lock held."""


class NotReady(KoordliteError):
    """Nothing can be answered now; the text is the same each time, so that the scheduler does not take it for news."""


class Binder(Protocol):
    """Binds pods, and writes to pods that are bound; everything that is not good is a BindError."""

    def bind(self, pod: ClusterPod, node: str, annotations: Mapping[str, str]) -> None:
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


class RefusedPod(msgspec.Struct, eq=False):
    """A pod that no node may have, and what that depends on."""

    pod: ClusterPod
    at: float
    """Time of the attempt by the cluster's monotonic clock."""
    version: int
    """Up to which change of the cluster it was judged."""
    names: frozenset[str] | None
    """Nodes that were asked about; None: all."""
    reserved: frozenset[str]
    """Nodes with reservations that concern the pod."""
    candidate: Candidate | None
    """The pod as it looks for reservations; None where its annotations cannot be read."""
    until: float
    """Time until which the pod waits for its reservation and goes nowhere else."""
    busy: frozenset[str]
    """Nodes that are refused for their measured load alone."""
    load: PodLoad | None
    """The pod as its load is judged; None where none is against it."""
    load_version: int
    """Up to which change of loads it was judged."""
    elsewhere: str
    """A node that the scheduler did not ask about, and that does not refuse pods of this shape."""

    def may_have(self, node: str) -> bool:
        """Tell whether the scheduler asked about the node, and it was refused for more than its load."""
        return (self.names is None or node in self.names) and node not in self.busy


class Attempt(msgspec.Struct, kw_only=True):
    """The latest attempt of one pod, for people who ask later.

    It keeps the rows that were judged, which are shared with everything else that knows them, and no text: what is said
    about a node is worked out again when asked, by the function that said it then.
    """

    pod: str
    """`namespace/name`."""
    uid: str
    at: float
    """Wall clock, for people."""
    shape: PodShape
    rows: Sequence[Row]
    """The nodes that were asked about and known, as they were then."""
    unknown: Sequence[str] = ()
    """Nodes that were asked about and not known."""
    passed: int = 0
    times: int = 1
    """Attempts with this outcome in a row."""
    answers: Mapping[int, int] = msgspec.field(default_factory=dict)
    """Answers to the scheduler, 0 to 10, by score; empty: it did not ask."""
    best: Sequence[str] = ()
    """The nodes rated best."""
    chosen: str = ""
    """The node that the scheduler bound it to."""
    numa_nodes: tuple[int, ...] = ()
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    events: list[str] = msgspec.field(default_factory=list)
    """Later events, in order."""
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of refused nodes, by reason."""
    candidate: Candidate | None = None
    """The pod as it looks for reservations; None: none is for it."""
    load: LoadJudgement | None = None
    """The pod beside what nodes used then; None: that does not count here."""
    thinned: bool = False
    """True where only some of the nodes are left."""


class Attempts:
    """Latest attempts by pod. Bounded: old ones lose their nodes, then go. Not locked: its owner is."""

    def __init__(self) -> None:
        self._attempts: collections.OrderedDict[str, Attempt] = collections.OrderedDict()
        self._whole: dict[str, None] = {}
        """Pods whose attempts have all of their nodes, the oldest first."""
        self._rows = 0

    def put(self, attempt: Attempt, settings: JudgeSettings) -> None:
        """Take in the newest attempt of its pod; older ones are thinned by these settings."""
        before = self._attempts.pop(attempt.pod, None)
        if before is not None:
            self._rows -= len(before.rows)
            if before.uid == attempt.uid and before.reasons == attempt.reasons and before.passed == attempt.passed:
                attempt.times = before.times + 1
            if before.uid == attempt.uid:
                attempt.events = before.events[-SAMPLES:]
        self._attempts[attempt.pod] = attempt
        self._whole.pop(attempt.pod, None)
        self._whole[attempt.pod] = None
        self._rows += len(attempt.rows)
        while len(self._attempts) > MOST_PODS:
            name, oldest = self._attempts.popitem(last=False)
            self._whole.pop(name, None)
            self._rows -= len(oldest.rows)
        while self._rows > MOST_ROWS and self._whole:
            name = next(iter(self._whole))
            del self._whole[name]
            self._rows -= len(self._attempts[name].rows)
            thin(self._attempts[name], settings)
            self._rows += len(self._attempts[name].rows)

    def get(self, pod: str) -> Attempt | None:
        """The latest attempt of the pod `namespace/name`."""
        return self._attempts.get(pod)

    def of_uid(self, pod: str, uid: str) -> Attempt | None:
        """The same, unless it was about an earlier pod of that name."""
        attempt = self._attempts.get(pod)
        return attempt if attempt is not None and attempt.uid == uid else None

    def __len__(self) -> int:
        return len(self._attempts)


def thin(attempt: Attempt, settings: JudgeSettings) -> None:
    """Keep the chosen node, the best ones, and some of each reason."""
    attempt.thinned = True
    named = {attempt.chosen, *attempt.best}
    of_reason: collections.Counter[str] = collections.Counter()
    rows = []
    for place, row in enumerate(attempt.rows):
        if row.name in named:
            rows.append(row)
        elif place < LOOKED_AT:
            reason = judge.verdict(attempt.shape, row, settings).refusal
            of_reason[reason] += 1
            rows += [row] if of_reason[reason] <= SAMPLES else []
    attempt.rows = tuple(rows)
    if attempt.load is not None:
        attempt.load.keep({row.name for row in rows})


class Question(msgspec.Struct, frozen=True):
    """A pod and the nodes that are asked about, with those on which it may take a reservation, or goes by other rules
    because of one."""

    cluster: Cluster
    pod: ClusterPod
    obj: objects.PodObject
    names: Sequence[str]
    candidate: Candidate | None = None
    """None: the pod takes no reservation anywhere."""
    rows: Mapping[str, Row] = msgspec.field(default_factory=dict)
    """The nodes as the pod sees them: with the reservations that it may take."""
    waits: bool = False
    """Room is going to be made for it on one of them, so that it goes nowhere else."""

    def refusals(self, by_shape: Mapping[str, str]) -> Mapping[str, str]:
        """Refusals by node, starting from those of the pod's shape."""
        if not self.rows:
            return by_shape
        refused = {name: text for name, text in by_shape.items() if name not in self.rows}
        for name, row in self.rows.items():
            text = self.cluster.faults.guarded(name, judge.refusal, self.pod.shape, row, self.cluster.settings)
            if text := text or (judge.OCCUPIED if self.waits and judge.is_occupied(row) else ""):
                refused[name] = text
        own = {name for name, row in self.rows.items() if row.reservations.taking}
        if self.waits or any(name in own and name not in refused for name in self.names):
            refused |= {name: judge.ELSEWHERE for name in self.names if name not in own and name not in refused}
        return refused

    def scores(self, by_shape: Sequence[int]) -> list[int]:
        """Scores of the nodes: those of the pod's shape, and its own on nodes with a reservation for it."""
        if not self.rows:
            return list(by_shape)
        own, cluster = dict[str, int](), self.cluster
        for name in self.rows.keys() & self.names:
            points = cluster.faults.guarded(name, judge.points, self.pod.shape, self.rows[name], cluster.settings)
            own[name] = points if isinstance(points, int) else 0
        return [own.get(name, score) for name, score in zip(self.names, by_shape, strict=True)]


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
        self.attempts = Attempts()
        self.refusals: collections.Counter[str] = collections.Counter()
        """Nodes refused, by reason, over all questions."""
        self._waiting_since: collections.OrderedDict[str, float] = collections.OrderedDict()
        """Time since which a pod has been kept from other nodes for its reservation, by uid."""
        self.refused_pods: collections.OrderedDict[str, RefusedPod] = collections.OrderedDict()
        """Pods that no node may have, by uid; the latest last."""
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
        said.

        First the verdicts about its shape, then what concerns this pod alone: reservations that it may take, a node
        that is being emptied for it, and the measured load. What it was told is remembered, for people and `Retries`.
        """
        self._check()
        with self._questions:
            with self.cluster.lock:
                self._await_binding(obj.metadata.uid)
                pod = self.cluster.shapes.pod(obj)
                self._nominations.refresh()
                # What was kept for the pod by an earlier attempt is not in its own way.
                self.cluster.assumed.end(pod.uid, "attempted again", self.cluster.now())
            board = self.cluster.board(pod.shape)
            question = self._question(pod, obj, names)
            refusals = question.refusals(board.refused)
            passed = [name for name in names if name not in refusals]
            refused = {name: refusals[name] for name in names if name in refusals}
            with self.cluster.lock:
                if why := self._nominations.readmit(pod, passed, refused):
                    self.note(pod, why)
            load = self.loads.judge(obj) if self.loads is not None else None
            busy = load.refusals(passed) if load is not None else {}
            if busy:
                passed, refused = [name for name in passed if name not in busy], {**refused, **busy}
            attempt = self._remember_attempt(question, len(passed), refused, load)
            with self.cluster.lock:
                before = self.refused_pods.pop(pod.uid, None)
                if not passed:
                    self._remember_refusal(question, board, load, frozenset(busy), before)
            if len(passed) == 1:
                self._assume_for_now(pod, passed[0], attempt)
        return passed, refused

    def prioritize(self, obj: objects.PodObject, names: Sequence[str]) -> list[tuple[str, int]]:
        """0 to 10 for each of `names`; the best one is kept for the pod for a moment."""
        self._check()
        with self._questions:
            with self.cluster.lock:
                pod = self.cluster.shapes.pod(obj)
                attempt = self.attempts.of_uid(pod.key, pod.uid)
            scores = self._question(pod, obj, names).scores(self.cluster.scores(pod.shape, names))
            if self.loads is not None:
                load = (attempt.load if attempt is not None else None) or self.loads.judge(obj)
                scores = [load.scored(name, score) for name, score in zip(names, scores, strict=True)]
            ranks = by_tenths(scores)
            answer = [(name, ranks[score]) for name, score in zip(names, scores, strict=True)]
            best = [name for _, name in heapq.nlargest(SAMPLES, zip(scores, names, strict=True))]
            if attempt is not None:
                with self.cluster.lock:
                    attempt.answers, attempt.best = ranks, best
            if best:
                self._assume_for_now(pod, best[0], attempt)
        return answer

    def preempt(self, obj: objects.PodObject, victims: Mapping[str, Victims]) -> dict[str, Victims]:
        """Choose the victims of each node on which evictions help; the other nodes are left out."""
        self._check()
        with self._questions, self.cluster.lock:
            pod = self.cluster.shapes.pod(obj)
            self.cluster.refresh()
            self._nominations.refresh()
            emptied = self._nominations.of(pod)
            if emptied is not None:
                self.note(pod, f"preemption: none, victims are leaving {emptied.node} for it")
                return {}
            answer: dict[str, Victims] = {}
            offers: dict[str, Offer] = {}
            question = self._question(pod, obj, list(victims))
            load = self.loads.judge(obj) if self.loads is not None else None
            if self.attempts.of_uid(pod.key, pod.uid) is None:
                # No node has enough in all, so the scheduler asked nothing before it looks for victims.
                self._remember_attempt(question, 0, dict.fromkeys(victims, SUMS), load)
            for name, candidates in victims.items():
                # What was measured stays until the next measurement, whoever is evicted.
                why = load.refusal(name) if load is not None else ""
                try:
                    offer = why or self._nominations.offer(pod, name, candidates, question.rows.get(name))
                except Exception as error:  # noqa: BLE001 - one node's fault costs that node
                    offer = self.cluster.faults.note(name, error)
                if isinstance(offer, Offer):
                    answer[name], offers[name] = offer.answer, offer
                elif isinstance(offer, Victims):
                    answer[name] = offer
                elif offer:
                    self.note(pod, f"preemption on {name}: {offer}")
            self._nominations.put(pod, offers)
            self.note(pod, f"preemption: {len(answer)} of {len(victims)} nodes offered")
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
                promise = self._assume(pod, node, candidate)
            finally:
                self._note_binding(pod)
            self._binder.bind(pod, node, promise.annotations)
        except BindError as error:
            key = f"{namespace}/{name}"
            with self.cluster.lock:
                if error.is_certain:
                    if self.loads is not None:
                        self.loads.remove_pod(key)
                    self.cluster.assumed.end(uid, "bind failed", self.cluster.now())
                if (attempt := self.attempts.of_uid(key, uid)) is not None:
                    attempt.events.append(f"bind failed: {error}")
            LOG.warning("bind of pod %s failed: %s", key, error, extra={"pod": key, "flow": "bind"})
            return str(error)
        with self.cluster.lock:
            self._nominations.drop(uid)
            attempt = self.attempts.of_uid(pod.key, uid)
            if attempt is not None and attempt.chosen != node:
                attempt.chosen, attempt.numa_nodes = node, promise.numa_nodes
                attempt.annotations = dict(promise.annotations)
                attempt.events.append(f"bound to {node}")
            if self.cluster.assumed.of_pod(uid) is not None:
                self.cluster.assume(pod, node, "bound", promise.annotations)
        return ""

    def warm(self) -> None:
        """Judge shapes of pods that wait for a scheduler of ours before it asks about them, and compile the nodes that
        have changed."""
        cluster = self.cluster
        with cluster.lock:
            cluster.refresh()
            waiting = dict.fromkeys(
                (*cluster.waiting.values(), *(each.pod.shape for each in self.refused_pods.values()))
            )
            versions = {shape: board.version if (board := cluster.boards.get(shape)) else -1 for shape in waiting}
            stale = [shape for shape, version in versions.items() if version < cluster.version]
        # The oldest first: while nodes go on changing, the others have their turn in the next looks.
        for shape in sorted(stale, key=lambda shape: versions[shape])[:WARM_SHAPES]:
            with self._questions:
                cluster.scores(shape, list(cluster.rows))

    def _remember_refusal(
        self, of: Question, board: Board, load: LoadJudgement | None, busy: frozenset[str], before: RefusedPod | None
    ) -> None:
        """Remember what it depends on that no node may have the pod; `before`: its attempt before this one."""
        cluster, pod, names, node_names, elsewhere = self.cluster, of.pod, of.names, None, ""
        if len(names) < len(cluster.rows):
            node_names = frozenset(names)
            # Asked about the same nodes again, it left none out: no other will do for the pod.
            if len(names) >= FEWEST_NODES and (before is None or before.names != node_names):
                others = cluster.rows.keys() - board.refused.keys() - node_names
                elsewhere = min((name for name in others if not cluster.nodes[name].closed), default="")
        since = self._waiting_since.get(pod.uid) if of.waits else None
        self.refused_pods[pod.uid] = RefusedPod(
            pod,
            at=cluster.now(),
            version=board.version,
            names=before.names if before is not None and before.names == node_names else node_names,
            reserved=frozenset(of.rows),
            candidate=of.candidate or matching.candidate(of.obj, pod.requests),
            until=-math.inf if since is None else since + cluster.settings.hold_seconds,
            busy=busy,
            load=load.pod if load is not None and busy else None,
            load_version=load.version if load is not None else 0,
            elsewhere=elsewhere,
        )
        while len(self.refused_pods) > MOST_REFUSED:
            self.refused_pods.popitem(last=False)

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

    def _await_binding(self, uid: str) -> None:
        """Wait a moment for the binding of the pod that was answered before this one."""
        while self._undecided is not None and self._undecided[0] != uid and self._expects_bindings:
            remaining = self._undecided[1] + BINDING_SECONDS - self.cluster.now()
            if remaining <= 0 or not self._decided.wait(remaining):
                self._undecided, self._expects_bindings = None, False

    def _note_binding(self, pod: ClusterPod) -> None:
        """The pod's binding came, and counts: the next question may be answered."""
        with self.cluster.lock:
            if self._undecided is not None and self._undecided[0] == pod.uid:
                self._undecided = None
                self._decided.notify_all()

    def _question(self, pod: ClusterPod, obj: objects.PodObject, names: Sequence[str]) -> Question:
        """The question with the nodes on which the pod may take a reservation. Annotations that cannot be read take
        none: the refusal that says so is of its shape."""
        cluster, shape = self.cluster, pod.shape
        candidate = matching.candidate(obj, pod.requests) if cluster.reserved else None
        if candidate is None:
            return Question(cluster, pod, obj, names)
        own, waits = {}, False
        with cluster.lock:
            rows = [(node, cluster.row(node)) for node in cluster.reserved.nodes_for(candidate)]
        for node, row in rows:
            try:
                if row is None:
                    continue
                as_seen = judge.for_candidate(candidate, shape, row, cluster.settings)
                if as_seen is not row:
                    own[node] = as_seen
                    waits = waits or judge.waits_for(candidate, row)
            except Exception as error:  # noqa: BLE001 - one node's fault costs its reservations
                cluster.faults.note(node, error)
        if not own:
            return Question(cluster, pod, obj, names)
        if waits:
            # Not for longer than a reservation is expected to be made free.
            now = cluster.now()
            with cluster.lock:
                since = self._waiting_since.setdefault(pod.uid, now)
                while len(self._waiting_since) > MOST_WAITING:
                    self._waiting_since.popitem(last=False)
            waits = now - since < cluster.settings.hold_seconds
        return Question(cluster, pod, obj, names, candidate, _with_first(own), waits)

    def _remember_attempt(
        self, of: Question, passed: int, refused: Mapping[str, str], load: LoadJudgement | None
    ) -> Attempt:
        pod, names, reasons = of.pod, of.names, collections.Counter(refused.values())
        with self.cluster.lock:
            self.refusals.update(reasons)
            rows = {**self.cluster.rows, **of.rows} if of.rows else self.cluster.rows
            unknown = [name for name in names if name not in rows]
            is_about_all = len(names) - len(unknown) == len(rows)
            attempt = Attempt(
                pod=pod.key,
                uid=pod.uid,
                at=self._wall(),
                shape=pod.shape,
                rows=list(rows.values()) if is_about_all else [rows[name] for name in names if name in rows],
                unknown=unknown,
                passed=passed,
                reasons=dict(reasons),
                candidate=of.candidate,
                load=load,
            )
            self.attempts.put(attempt, self.cluster.settings)
        fields = {"pod": pod.key, "flow": "filter", "nodes": len(names), "passed": passed, "why": dict(reasons)}
        LOG.debug("filter of pod %s: %d of %d nodes pass", pod.key, passed, len(names), extra=fields)
        return attempt

    def _assume_for_now(self, pod: ClusterPod, node: str, attempt: Attempt | None) -> None:
        """Count the pod on the node it will probably get."""
        candidate = attempt.candidate if attempt is not None else None
        promise = self._promised(pod, self.cluster.row(node), candidate)
        if attempt is not None:
            attempt.numa_nodes = promise.numa_nodes
        if pod.shape.exclusive or promise.annotations:
            self.cluster.assume(pod, node, "tentative", promise.annotations)
        self._undecided = pod.uid, self.cluster.now()

    def _to_bind(self, namespace: str, name: str, uid: str, node: str) -> tuple[ClusterPod, Candidate | None]:
        """The pod, from the watch, from its attempt, or from the API server, and as it looks for reservations."""
        key = f"{namespace}/{name}"
        with self.cluster.lock:
            pod, attempt = self.cluster.pod_of(key), self.attempts.of_uid(key, uid)
            if pod is not None and pod.uid != uid:
                pod = None
            if attempt is not None:
                return pod or ClusterPod(namespace, name, uid, "", attempt.shape), attempt.candidate
            if pod is not None and not self.cluster.reserved.of_node(node):
                return pod, None
        assert self._binder is not None
        obj = self._binder.pod(namespace, name)
        if obj.metadata.uid != uid:
            raise BindError(f'pods "{name}" is another pod now: uid {obj.metadata.uid}, not {uid}', is_certain=True)
        with self.cluster.lock:
            pod = self.cluster.shapes.pod(obj)
            return pod, self._question(pod, obj, ()).candidate

    def _assume(self, pod: ClusterPod, node: str, candidate: Candidate | None) -> Promise:
        """Count the pod on the node from now on, if it still fits: others may have come between."""
        cluster = self.cluster
        with cluster.lock:
            self._expects_bindings = True
            self._note_binding(pod)
            assumed = self.cluster.assumed.of_pod(pod.uid)
            if assumed is not None and assumed.stage in ("binding", "bound") and assumed.node == node:
                # The same request again: its first answer came too late for the scheduler.
                return Promise(assumed.annotations)
            cluster.assumed.end(pod.uid, "attempted again", self.cluster.now())
        for _ in range(TRIES):
            row = cluster.row(node)
            promise = self._promised(pod, row, candidate)
            with cluster.lock:
                if cluster.row(node) is row:
                    return self._assume_if_it_fits(pod, node, promise)
        with cluster.lock:
            return self._assume_if_it_fits(pod, node, self._promised(pod, cluster.row(node), candidate))

    def _promised(self, pod: ClusterPod, row: Row | None, candidate: Candidate | None) -> Promise:
        """Allocation of the pod on the node as it is now."""
        if row is None:
            return Promise()
        if candidate is not None:
            row = judge.for_candidate(candidate, pod.shape, row, self.cluster.settings)
        return judge.promise(pod.shape, row, self.cluster.settings, pod.uid)

    def _assume_if_it_fits(self, pod: ClusterPod, node: str, promise: Promise) -> Promise:
        if promise.refusal and pod.uid not in self._nominations:
            raise BindError(f"{promise.refusal} (taken meanwhile by another pod)", is_certain=True)
        self.cluster.assume(pod, node, "binding", promise.annotations)
        if self.loads is not None:
            self.loads.bound(pod.uid, node)
        return promise

    def note(self, pod: ClusterPod, text: str) -> None:
        """Remember for people what became of the pod after its attempt."""
        with self.cluster.lock:
            if (attempt := self.attempts.of_uid(pod.key, pod.uid)) is not None:
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


def _with_first(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows, with a mark on the one whose reservation comes before all others by its label."""
    matching_rows = [(row, one.order) for row in rows.values() if (one := row.reservations.match) is not None]
    place = capacity.first_by_order([order for _, order in matching_rows])
    if place is None:
        return dict(rows)
    first, _ = matching_rows[place]
    reservations = msgspec.structs.replace(first.reservations, first=True)
    return {**rows, first.name: msgspec.structs.replace(first, reservations=reservations, extra={})}
