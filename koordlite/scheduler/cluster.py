"""State of the cluster: nodes, reports, pods, and pods that are assumed on nodes, kept up to date by events.

An event makes the row of its node stale; the next question compiles that row again, and no other. Verdicts are kept by
shape of pod, and asked again only about rows that changed. So a question costs what has changed since the last one, and
one look-up for each node it names.
"""

from __future__ import annotations

import collections
import heapq
import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from koordlite.fault_guard import SubjectFaults
from koordlite.formulas.allocatable import node_room
from koordlite.kube.watch.sources import NODES, PODS, REPORTS, RESERVATIONS
from koordlite.model import keys
from koordlite.model import node as nodes
from koordlite.model.errors import InputError
from koordlite.model.node import parse_reservation
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.model.wire import crane, objects
from koordlite.model.wire.reservation import ReservationObject
from koordlite.reservation.placed import ReservationIndex
from koordlite.reservation.pods import ClusterPod, PodShape, Shapes
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.nodes import JudgeSettings, Report, Row
from koordlite.scheduler.node_state import NodeState

LOG = logging.getLogger(__name__)
_READ_GROUPS = ("koordinator.sh", "crane.io", "volcano.sh")
"""API groups in the names of annotations that the judgement may read; others are not kept."""


Stage = Literal["nominated", "tentative", "binding", "bound"]
End = Literal[
    "seen bound",
    "bound elsewhere",
    "deleted",
    "ended",
    "bind failed",
    "attempted again",
    "chosen elsewhere",
    "expired",
    "node gone",
]
REMEMBERED = 512
"""Ended ones, for people."""
PATIENCE_SECONDS = 10.0
"""A report that is behind for longer is taken as it is."""
BEHIND = "the report of its node has not counted all of its pods yet"


class AssumedPod(msgspec.Struct, frozen=True):
    """A pod assumed to be on a node that no report counts yet."""

    pod: ClusterPod
    node: str
    stage: Stage
    """nominated: victims are leaving for it; tentative: rated best, not bound yet; binding: the request is under way;
    bound: the API server has agreed."""
    since: float
    until: float
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The allocation that its Binding carries."""

    @property
    def as_bound(self) -> ClusterPod:
        """The pod as it will be when it is bound."""
        return self.pod.bound(self.node, self.annotations)


class Ended(msgspec.Struct, frozen=True):
    """An assumption that is over."""

    assumed: AssumedPod
    why: End
    at: float


class AssumedPods:
    """Assumed pods by uid. Nobody tells an extender of an end, so each has one of its own: the watch, or time, with a
    reason. `changed` is called with the node of every one that begins or ends. Not locked: its owner is."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._by_uid: dict[str, AssumedPod] = {}
        self._by_node: dict[str, dict[str, AssumedPod]] = {}
        self._changed = changed
        self.ended: collections.deque[Ended] = collections.deque(maxlen=REMEMBERED)
        self.ends: collections.Counter[str] = collections.Counter()
        """Number of ends, by reason."""

    def of_pod(self, uid: str) -> AssumedPod | None:
        """The pod's, if it has one."""
        return self._by_uid.get(uid)

    def of_node(self, node: str) -> Iterator[AssumedPod]:
        """Pods assumed on a node."""
        return iter(tuple(self._by_node.get(node, {}).values()))

    def __len__(self) -> int:
        return len(self._by_uid)

    def put(self, assumed: AssumedPod) -> None:
        """Begin, or replace the pod's earlier one."""
        before = self._by_uid.get(assumed.pod.uid)
        if before is not None and before.node != assumed.node:
            self.end(assumed.pod.uid, "chosen elsewhere", assumed.since)
        self._by_uid[assumed.pod.uid] = assumed
        self._by_node.setdefault(assumed.node, {})[assumed.pod.uid] = assumed
        self._changed(assumed.node)

    def end(self, uid: str, why: End, now: float) -> None:
        """It is over; nothing when there is none."""
        assumed = self._by_uid.pop(uid, None)
        if assumed is None:
            return
        of_node = self._by_node[assumed.node]
        del of_node[uid]
        if not of_node:
            del self._by_node[assumed.node]
        self.ended.append(Ended(assumed, why, now))
        self.ends[why] += 1
        self._changed(assumed.node)

    def expire(self, now: float) -> None:
        """End those whose time is over."""
        for assumed in [assumed for assumed in self._by_uid.values() if assumed.until <= now]:
            self.end(assumed.pod.uid, "expired", now)


class Board:
    """Verdicts about pods of one shape, by name of the node."""

    def __init__(self, shape: PodShape, settings: JudgeSettings, faults: SubjectFaults) -> None:
        self._shape, self._settings, self._faults = shape, settings, faults
        self.refused: dict[str, str] = {}
        """Reasons by node. A node that is unknown is not refused: nobody says no."""
        self.totals: dict[str, int] = {}
        """Scores by node, of those that were asked about."""
        self.version = -1
        """Up to which change of the cluster it is up to date; -1: it has not judged any node."""

    def judge(self, rows: Iterable[Row]) -> None:
        """Judge these nodes."""
        shape, settings, ask = self._shape, self._settings, judge.refusal
        refused, totals = self.refused, self.totals
        for row in rows:
            try:
                refusal = ask(shape, row, settings)
            except Exception as error:  # noqa: BLE001 - one node's fault costs that node
                refusal = self._faults.note(row.name, error)
            if refusal:
                refused[row.name] = refusal
            else:
                refused.pop(row.name, None)
            totals.pop(row.name, None)

    def forget(self, name: str) -> None:
        """The node is gone."""
        self.refused.pop(name, None)
        self.totals.pop(name, None)

    def scores(self, names: Sequence[str], unscored: Mapping[str, Row | None]) -> list[int]:
        """0 to 100 for each node; 0 for one that is unknown. `unscored` has the rows of those that have none yet."""
        totals, shape, settings, points = self.totals, self._shape, self._settings, judge.points
        for name, row in unscored.items():
            try:
                totals[name] = points(shape, row, settings) if row is not None else 0
            except Exception as error:  # noqa: BLE001 - one node's fault costs that node
                self._faults.note(name, error)
                totals[name] = 0
        return [totals[name] for name in names]


MOST_CHANGES = 10_000
MOST_VERDICTS = 300_000
"""Verdicts that are kept in all: at 5,000 nodes those of 60 shapes."""


class Cluster:
    """Safe to use from several threads: every method takes `lock`, which a caller may hold over several of them."""

    def __init__(self, settings: JudgeSettings, *, monotonic: Callable[[], float]) -> None:
        self.settings, self.now = settings, monotonic
        """`now`: seconds of the monotonic clock."""
        self.faults = SubjectFaults("judgement of a node")
        self.policies: NUMAPolicy | None = None
        """The switches of the cluster; None: not read yet, and what the settings began with holds."""
        self.lock = threading.RLock()
        self.shapes = Shapes()
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, ClusterPod] = {}
        """Pods by uid, bound or not."""
        self._uids: dict[str, str] = {}
        self.assumed = AssumedPods(self._touch)
        self.reserved = ReservationIndex(self._touch)
        """Koordinator's reservations."""
        self.rows: dict[str, Row] = {}
        """The nodes as they are judged, by name."""
        self._stale: dict[str, float] = {}
        """Time since which a node's report is stale."""
        self.version = 0
        """Number of changes of rows so far."""
        self._changed: dict[str, int] = {}
        """Number of the latest change of each node's row, in that order; also of nodes that are gone."""
        self.boards: dict[PodShape, Board] = {}
        """Boards by shape, the last used at the end."""
        self._looks: list[tuple[float, str]] = []
        """Times at which rows have to be compiled again although nothing happens; a heap."""
        self._synced = False
        self.unpromised: dict[str, None] = {}
        """uids of pods of our schedulers that are bound and have no allocation, in the order in which they came;
        `Promises` looks which of them need one."""
        self.resized: dict[str, None] = {}
        """uids of bound pods with a promise of Koordinator's whose request may be another than when it was made."""
        self.waiting: dict[str, PodShape] = {}
        """Shapes of pods that wait for a scheduler of ours, by uid."""
        self._placed_by_us: collections.OrderedDict[str, str] = collections.OrderedDict()
        """The node that each of the latest pods was kept on or bound to, by uid."""
        self.predicted_wrong = 0
        """Pods that kubelet refused for their topology on the node that this extender had chosen for them."""

    @property
    def takers(self) -> Mapping[str, tuple[Callable[[Any], None], Callable[[str], None]]]:
        """Takers of objects that came, and of keys that went, by name of their source."""
        return {
            NODES.name: (self.put_node, self.remove_node),
            PODS.name: (self.put_pod, self.remove_pod),
            REPORTS.name: (self.put_report, self.remove_report),
            RESERVATIONS.name: (self.put_reservation, self.remove_reservation),
        }

    def changed_since(self, version: int) -> dict[str, int]:
        """Number of the latest change of each node that has changed since change number `version`, in that order."""
        changes = itertools.takewhile(lambda change: change[1] > version, reversed(self._changed.items()))
        return dict(reversed(list(changes)))

    def synced(self) -> None:
        """Everything was listed once: pods that kubelet takes from now on are new."""
        with self.lock:
            self._synced = True

    def switch(self, policies: NUMAPolicy) -> None:
        """These policies hold from now on."""
        with self.lock:
            if self.policies is None or self.policies.distance != policies.distance:
                LOG.info("policy numadistance is %s", "open" if policies.distance else "close")
            self.policies = policies
            if self.settings.numa_distance != policies.distance:
                # Nothing that was judged before counts.
                self.settings, self.boards = msgspec.structs.replace(self.settings, numa_distance=policies.distance), {}

    def row(self, name: str) -> Row | None:
        """The node as it is judged now; None when it is unknown."""
        with self.lock:
            self.refresh()
            return self.rows.get(name)

    def board(self, shape: PodShape) -> Board:
        """Bring the verdicts about pods of a shape up to date. Nodes are judged without the lock: events are taken
        meanwhile, and count for the next question. One question at a time."""
        with self.lock:
            self.refresh()
            board = self.boards.pop(shape, None) or Board(shape, self.settings, self.faults)
            self.boards[shape] = board
            while len(self.boards) > max(8, MOST_VERDICTS // max(1, len(self.rows))):
                del self.boards[next(iter(self.boards))]
            now = self.version
            rows: list[Row] = []
            for name in self.changed_since(board.version):
                row = self.rows.get(name)
                board.forget(name) if row is None else rows.append(row)
        board.judge(rows)
        board.version = now
        return board

    def scores(self, shape: PodShape, names: Sequence[str]) -> list[int]:
        """Score nodes for pods of a shape, 0 to 100."""
        board = self.board(shape)
        with self.lock:
            unscored = {name: self.rows.get(name) for name in names if name not in board.totals}
        return board.scores(names, unscored)

    def row_as_expected(self, name: str) -> Row | None:
        """The node as it is when kubelet has taken the pods that are bound to it and not reported yet: each on the
        lowest NUMA node that has room. Nothing is kept for pods whose victims are leaving."""
        with self.lock:
            row, state = self.row(name), self.nodes.get(name)
            if row is None or state is None or state.report is None:
                return row
            coming = [each.as_bound for each in self.assumed.of_node(name) if each.stage != "nominated"]
            return msgspec.structs.replace(state.expected(row, coming, self.settings), reservations=row.reservations)

    def refresh(self) -> None:
        """Compile the rows of nodes that changed."""
        now = self.now()
        self.assumed.expire(now)
        while self._looks and self._looks[0][0] <= now:
            self._touch(heapq.heappop(self._looks)[1])
        if not self._stale:
            return
        changed, self._stale = self._stale, {}
        for name, since in changed.items():
            self._compile(name, now, since)

    def put_node(self, obj: objects.NodeObject) -> None:
        """A Node came or changed; heartbeats change nothing."""
        node = nodes.from_wire(obj)
        node = msgspec.structs.replace(
            node,
            labels={sys.intern(name): sys.intern(text) for name, text in node.labels.items()},
            annotations={
                name: text for name, text in node.annotations.items() if any(group in name for group in _READ_GROUPS)
            },
            capacity={},
        )
        with self.lock:
            state = self._state(obj.metadata.name)
            state.closed = bool(obj.spec.unschedulable) or any(
                taint.effect in ("NoSchedule", "NoExecute") for taint in obj.spec.taints or ()
            )
            if state.node == node:
                return
            state.node = node
            self._touch(state.name)
            try:
                written = parse_reservation(node.annotations.get(keys.RESERVATION, ""), f"node/{node.name}")
                state.limits = node_room.limits(node.allocatable, written)
            except InputError as error:
                # What it said before holds.
                LOG.warning("%s", error.problems[0])

    def remove_node(self, name: str) -> None:
        """A Node is gone, and what was reserved on it."""
        with self.lock:
            for each in self.assumed.of_node(name):
                self.assumed.end(each.pod.uid, "node gone", self.now())
            if (state := self.nodes.get(name)) is not None:
                state.node, state.limits, state.closed = None, {}, False
                self._forget(state)

    def put_report(self, obj: objects.NRTObject) -> None:
        """A NodeResourceTopology came or changed."""
        report, now = Report(obj, self.settings.max_numa_nodes), self.now()
        with self.lock:
            state = self._state(obj.metadata.name)
            first = state.report is None
            state.report, state.report_since = report, now
            state.settle(now, 0.0 if first and not self._synced else self.settings.settle_seconds)
            self._touch(state.name)

    def remove_report(self, name: str) -> None:
        """A NodeResourceTopology is gone."""
        with self.lock:
            if (state := self.nodes.get(name)) is not None:
                state.report = None
                self._forget(state)

    def put_crane(self, obj: crane.TopologyObject) -> None:
        """Crane's own topology of a node came or changed."""
        with self.lock:
            self._state(obj.metadata.name).crane = obj
            self._touch(obj.metadata.name)

    def remove_crane(self, name: str) -> None:
        """Crane's own topology of a node is gone."""
        with self.lock:
            if (state := self.nodes.get(name)) is not None:
                state.crane = None
                self._forget(state)

    def put_reservation(self, obj: ReservationObject) -> None:
        """A Reservation of Koordinator came or changed."""
        with self.lock:
            self.reserved.put(obj)

    def remove_reservation(self, name: str) -> None:
        """A Reservation of Koordinator is gone."""
        with self.lock:
            self.reserved.remove(name)

    def put_pod(self, obj: objects.PodObject) -> None:
        """A Pod came or changed."""
        with self.lock:
            self.put_cluster_pod(self.shapes.pod(obj))

    def put_cluster_pod(self, pod: ClusterPod) -> None:
        """The same with what was made of its object."""
        with self.lock:
            uid = self._uids.get(pod.key)
            if uid is not None and uid != pod.uid:
                self._drop(uid)
            before = self.pods.get(pod.uid)
            if before == pod:
                return
            self.pods[pod.uid], self._uids[pod.key] = pod, pod.uid
            self._placed(pod, before)

    def remove_pod(self, key: str) -> None:
        """The pod `namespace/name` is gone."""
        with self.lock:
            uid = self._uids.get(key)
            if uid is not None:
                self._drop(uid)

    def lacks(self, obj: objects.PodObject, name: str) -> str:
        """Reason why a pod could not go to the node of the Reservation `name` if its placeholders were gone; empty
        when it could, or nothing is known of it yet."""
        with self.lock:
            one = self.reserved.named(name)
            row = self.row(one.object.status.node_name) if one is not None else None
            if one is None or row is None:
                return ""
            shape, since = self.shapes.of(obj), self.nodes[row.name].dirty_since
        signed = row.report is not None and bool(row.report.fingerprint)
        if signed and shape.aligned and since is not None and self.now() - since < PATIENCE_SECONDS:
            return BEHIND
        texts = [judge.refusal(shape, each, self.settings) for each in judge.freed(judge.taking(row, one))]
        return "" if "" in texts else texts[0]

    def pod_of(self, key: str) -> ClusterPod | None:
        """The pod `namespace/name`."""
        with self.lock:
            return self.pods.get(self._uids.get(key, ""))

    def assume(
        self, pod: ClusterPod, node: str, stage: Stage, annotations: Mapping[str, str] | None = None
    ) -> AssumedPod:
        """Count `pod` on `node` from now on."""
        now = self.now()
        seconds = self.settings.tentative_seconds if stage == "tentative" else self.settings.assumed_seconds
        assumed = AssumedPod(pod, node, stage, now, now + seconds, annotations or {})
        with self.lock:
            self.assumed.put(assumed)
            if stage != "nominated":
                self._placed_by_us[pod.uid] = node
            if len(self._placed_by_us) > MOST_CHANGES:
                self._placed_by_us.popitem(last=False)
        return assumed

    def states(self) -> Iterator[NodeState]:
        """All nodes, with rows that are up to date. Only with `lock` held."""
        self.refresh()
        return iter(self.nodes.values())

    def _state(self, name: str) -> NodeState:
        state = self.nodes.get(name)
        if state is None:
            state = self.nodes[name] = NodeState(name)
        return state

    def _forget(self, state: NodeState) -> None:
        """Keep nothing of a node that is neither there, nor reported, nor has pods."""
        if state.node is None and state.report is None and state.crane is None and not state.pods:
            del self.nodes[state.name]
        self._touch(state.name)

    def _touch(self, name: str) -> None:
        self._stale.setdefault(name, self.now())

    def _compile(self, name: str, now: float, since: float) -> None:
        state = self.nodes.get(name)
        self.version += 1
        self._changed.pop(name, None)
        self._changed[name] = self.version
        if state is None or (state.node is None and state.report is None):
            self.rows.pop(name, None)
            if len(self._changed) > len(self.rows) + MOST_CHANGES:
                # Nodes that have gone are forgotten, and with them boards that may still refuse them.
                self._changed = {each: at for each, at in self._changed.items() if each in self.rows}
                self.boards = {}
            return
        self.rows[name] = self._row(state, now, since)
        if state.next_look is not None:
            heapq.heappush(self._looks, (state.next_look, name))

    def _row(self, state: NodeState, now: float, since: float) -> Row:
        """The node as it is judged. One that a fault of ours keeps from it is not used, and says so."""
        try:
            coming = [each.as_bound for each in self.assumed.of_node(state.name)]
            row = state.row(coming, self.settings, now, since)
            placed = self.reserved.of_node(state.name)
            if not placed:
                return row
            where = {one.uid: one.namespace for one in placed}
            freed = state.freed(where, row, coming, self.settings)
            pods = tuple(
                # Who says in another namespace that it is a placeholder is none.
                pod
                if where.get(pod.stands_for, pod.namespace) == pod.namespace
                else msgspec.structs.replace(pod, stands_for="")
                for pod in row.pods
            )
            reservations = self.reserved.on_node(placed, pods, freed)
            reservations = msgspec.structs.replace(reservations, is_behind=state.dirty_since is not None)
            return msgspec.structs.replace(row, pods=pods, reservations=reservations)
        except Exception as error:  # noqa: BLE001 - one node's fault costs that node
            return Row(state.name, {}, node=state.node, unusable=self.faults.note(state.name, error))

    def _placed(self, pod: ClusterPod, before: ClusterPod | None) -> None:
        """Count the pod on its node, and end what was assumed for it."""
        now, uid = self.now(), pod.uid
        if pod.node or pod.ended or pod.deleting or pod.scheduler not in self.settings.profiles:
            self.waiting.pop(uid, None)
        else:
            self.waiting[uid] = pod.shape
        if pod.ended:
            self.assumed.end(uid, "ended", now)
        elif pod.node and (assumed := self.assumed.of_pod(uid)) is not None:
            is_there = assumed.node == pod.node
            if is_there:
                self.reserved.remember(uid, assumed.as_bound.reservation_uid)
            self.assumed.end(uid, "seen bound" if is_there else "bound elsewhere", now)
        if before is not None and before.node and before.node != pod.node:
            self._leave(before, now)
        self._note_promise(pod, before)
        if pod.ended:
            ends_now = self._synced and not (before and before.ended)
            if pod.refused_by_kubelet and ends_now and self._placed_by_us.get(uid) == pod.node:
                self.predicted_wrong += 1
                LOG.warning("predicted wrong: kubelet refused pod %s on node %s: %s", pod.key, pod.node, pod.reason)
            if pod.node:
                self._leave(pod, now)
            return
        if not pod.node:
            return
        state = self._state(pod.node)
        ran_before = pod.started and not self._synced  # Before anything was known: the report counts it.
        if not ran_before and (uid not in state.pods or uid in state.fresh):
            state.fresh[uid] = (state.fresh.get(uid) or now) if pod.started else None
        state.pods[uid] = pod
        state.came.setdefault(uid, now)
        self._touch(pod.node)

    def _note_promise(self, pod: ClusterPod, before: ClusterPod | None) -> None:
        """Note pods for whose promise something may have to be done."""
        uid, is_bound = pod.uid, bool(pod.node) and not pod.ended
        was_unpromised = before is not None and before.node and not (before.resource_status or before.crane_result)
        if not is_bound or pod.resource_status or pod.crane_result:
            self.unpromised.pop(uid, None)
        elif pod.scheduler in self.settings.profiles and not was_unpromised:
            self.unpromised.setdefault(uid)
        if not is_bound or not pod.resource_status:
            self.resized.pop(uid, None)
        elif before is None or before.shape is not pod.shape:
            self.resized[uid] = None

    def _leave(self, pod: ClusterPod, now: float) -> None:
        """The pod holds nothing on its node any more; the node's report may count it for a while."""
        state = self.nodes.get(pod.node)
        if state is None:
            return
        if pod.uid in state.fresh and state.report is not None and pod.node in self._stale:
            state.cover(self.settings, now, self._stale[pod.node])  # Its report has come since anybody asked.
        is_in_report = pod.uid not in state.fresh or (state.report and state.report.places(pod.namespace, pod.name))
        if state.pods.pop(pod.uid, None) is not None and is_in_report:
            state.departed[pod.uid] = pod, now
        state.fresh.pop(pod.uid, None)
        state.came.pop(pod.uid, None)
        self._forget(state)

    def _drop(self, uid: str) -> None:
        now = self.now()
        self.assumed.end(uid, "deleted", now)
        self.unpromised.pop(uid, None)
        self.resized.pop(uid, None)
        self.waiting.pop(uid, None)
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        if self._uids.get(pod.key) == uid:
            del self._uids[pod.key]
        if pod.node:
            self._leave(pod, now)
