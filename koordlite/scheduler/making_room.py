"""Reasons why a pod waits, by groups of nodes, and moves that would let it fit, by the extender's own judges.

The nodes are those of one moment; the cluster's lock is held only to copy them, and to look where the pods of a node
are. NUMA nodes, promised CPUs, what nodes keep back and Reservations count. What this program does not know of pods and
nodes is in `NOT_SEEN`: where that would matter, a pod counts as one that stays.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from koordlite.formulas import make_room
from koordlite.formulas.make_room import Cost, Room
from koordlite.model.cpuset import EMPTY
from koordlite.model.pod import pod_reader
from koordlite.numa.nrt.filter import NANO, Amounts, Zones
from koordlite.report import make_room as room_text
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.extender import Extender
from koordlite.scheduler.judgement import judge, victims
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.node_state import admitted
from koordlite.scheduler.report.documents import amounts_line, amounts_text

NOT_SEEN = (
    "disruption budgets, replicas, costs of evictions, tolerations and labels; pods whose spec narrows the choice of "
    "nodes and pods without a controller count as ones that stay, and nobody goes to a node that is cordoned or "
    "tainted. `descheduler explain` knows them"
)
MOST_MOVES = 3
_MOST_JUDGED = 60
"""Nodes that are judged for the places of a pod that moves."""
_MOST_EMPTIED = 400
"""Nodes on which a pod that moves may have room made for it by another move."""
_MOVE = "moves"
"""Stands for what a node lacks where no amount can be named."""


def document(extender: Extender, key: str, pause: Callable[[], None]) -> dict[str, Any] | None:
    """Reasons against a waiting pod, and moves that would make room; None when no such pod waits here. `pause` is
    called often, and lets other threads run."""
    pod = extender.cluster.pod_of(key)
    if pod is None or pod.node or not pod.alive:
        return None
    board = _Board(extender, pod, pause)
    groups, fits = board.groups()
    fits = board.kept or fits
    answer: dict[str, Any] = {
        "pod": key,
        "asks": amounts_text(board.waiting.shape.total),
        "priority": board.waiting.priority,
        "fits": fits[: make_room.WIDTH],
        "groups": groups,
    }
    if not fits:
        rooms = make_room.rooms(board, board.waiting, most_moves=MOST_MOVES)
        rooms = rooms._replace(exact=rooms.exact and not board.left_out)
        answer["makeRoom"] = shown_rooms = room_text.document(rooms, lambda pod: str(pod.shape.pod.kube_qos))
        for room, each in zip(rooms.rooms, shown_rooms["nodes"], strict=True):
            each["cost"] = {"priority": room.cost.priority}
            each["placed"], places = board.places_after(room)
            for move, place in zip(each["moves"], places, strict=True):
                move["about"] += f", {place}" if place else ""
        shown_rooms["notSeen"] = NOT_SEEN
    return answer


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The document for people."""
    asks = amounts_line(document["asks"])
    yield f"pod {document['pod']} waits for a node; it asks {asks}; priority {document['priority']}"
    for group in document["groups"]:
        numbers = f": {group['nearest']}" if group["nearest"] else ""
        yield f"  {group['nodes']} node{'s' if group['nodes'] > 1 else ''}: {group['why']}{numbers}"
    if document["fits"]:
        yield f"  it fits now, without a move: {', '.join(document['fits'])}"
        return
    for head, words in room_text.lines(document["makeRoom"]):
        yield f"  {head:<11}{words}"
    for room in document["makeRoom"]["nodes"]:
        if room["placed"]:
            yield f"  {'then':<11}{document['pod']} has {room['placed']} of {room['node']}"
    yield f"  {'not seen':<11}{document['makeRoom']['notSeen']}"


class _Board:
    """`make_room.Board` of the rows of one moment."""

    def __init__(self, extender: Extender, waiting: ClusterPod, pause: Callable[[], None]) -> None:
        cluster = self._cluster = extender.cluster
        self.waiting, self.left_out = waiting, False
        """`left_out`: some places of a pod were not looked at."""
        self._settings, self._pause, self._changed = cluster.settings, pause, dict[str, Row]()
        with cluster.lock:
            cluster.refresh()
            self._rows = dict(cluster.rows)
            self._closed = frozenset(state.name for state in cluster.nodes.values() if state.closed)
            assumed, attempt = cluster.assumed.of_pod(waiting.uid), extender.attempts.of_uid(waiting.key, waiting.uid)
            # Read here: rows of attempts are let go, too.
            whole = attempt if attempt is not None and not attempt.thinned else None
            self._feasible = frozenset(row.name for row in whole.rows) if whole is not None else None
            """Nodes that kube-scheduler asked about; None: that is not known."""
        self.kept = [assumed.node] if assumed is not None else []
        """The node on which the pod is counted already, on its way there."""
        self._candidate = attempt.candidate if attempt is not None else None
        self._load = attempt.load if attempt is not None else None
        self._undo: list[tuple[str, Row | None, str]] = []
        """Changes: node, its row before if that was changed already, and the uid of the pod that left."""
        self._moved: set[str] = set()
        self._movable: dict[str, list[ClusterPod]] = {}
        self._returned: dict[str, Mapping[str, Mapping[int, Amounts]]] = {}
        self._refusals: dict[tuple[PodShape, str], str] = {}
        """Refusals of nodes on which nothing has moved."""
        self._roomy: dict[PodShape, list[str]] = {}
        """Nodes that have enough in all for such a pod, where nothing has moved."""
        self._open = sorted(self._rows.keys() - self._closed, key=self._fullness)
        """Nodes that take pods whose tolerations are not known, most CPU left first."""

    def groups(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Nodes by what stands against the waiting pod, with the nearest to taking it; and those that take it."""
        counts: collections.Counter[str] = collections.Counter()
        nearest: dict[str, tuple[float, str]] = {}
        fits, shape, faults = [], self.waiting.shape, self._cluster.faults
        for name in (name for name in self._rows if name not in self.kept):
            against = self._against(name)
            why = against or self.refusal(self.waiting, name)
            if not why:
                fits.append(name)
                continue
            counts[why] += 1
            if not against:
                lacks = self._lacks(shape, name)
                distance = sum(lack / max(1, shape.total.get(resource, NANO)) for resource, lack in lacks.items())
                nearest[why] = min(nearest.get(why, (distance, name)), (distance, name))
        numbers = {why: faults.guarded(name, self._numbers, name) for why, (_, name) in nearest.items()}
        groups = [{"why": why, "nodes": count, "nearest": numbers.get(why, "")} for why, count in counts.most_common()]
        return groups, fits

    def _fullness(self, name: str) -> tuple[int, str]:
        self._pause()
        return -victims.free(self._rows[name]).get("cpu", 0), name

    def _against(self, name: str) -> str:
        """Reason that no move cures; empty when there is none."""
        self._pause()
        if self._feasible is None or name not in self._feasible:
            if name in self._closed:
                return "cordoned or tainted, and the pod's tolerations are not known here"
            if self._feasible is not None and not victims.lacking(self.waiting.shape, self._rows[name]):
                return "kube-scheduler did not ask about them: what it alone knows is against them"
        if self._rows[name].unusable and self.waiting.shape.aligned:
            return judge.INVALID
        return self._load.refusal(name) if self._load is not None else ""

    def _numbers(self, name: str) -> str:
        shape, row = self.waiting.shape, self._row(self.waiting, name)
        lacks = victims.lacking(shape, row)
        if not lacks:
            why = judge.verdict(shape, row, self._settings).why or "; ".join(judge.shortage(shape, row))
            return why and f"{name}: {why}"
        free = amounts_text({one: max(0, victims.free(row).get(one, 0)) for one in lacks})
        return f"most on {name}, which has {', '.join(f'{one} {amount} left' for one, amount in free.items())}"

    def places_after(self, room: Room[ClusterPod]) -> tuple[str, list[str]]:
        """NUMA nodes and CPUs that the waiting pod, and each that moves, would have after these moves."""
        mark = self.mark()
        for pod, _ in room.moves:
            self.leave(pod)
        own = self._place(self.waiting, room.node)
        self.settle(self.waiting, room.node)
        places = []
        for pod, home in room.moves:
            places.append(self._place(pod, home))
            self.settle(pod, home)
        self.back_to(mark)
        return own, places

    def _place(self, pod: ClusterPod, node: str) -> str:
        row = self._row(pod, node)
        numa = ", ".join(map(str, judge.verdict(pod.shape, row, self._settings).numa_nodes))
        text = self._promised(pod, node).resource_status
        cpus = pod_reader.parse_resource_status(text).cpuset if text else EMPTY
        return " ".join(filter(None, [numa and f"NUMA node {numa}", f"CPUs {cpus}" if cpus else ""]))

    def nodes(self, item: ClusterPod) -> Sequence[str]:
        """Large enough, and nothing that evictions do not cure is against it as far as this program sees."""
        if item is self.waiting:
            return [name for name in self._rows if not self._against(name) and self._is_large_enough(name)]
        self.left_out |= len(self._open) > _MOST_EMPTIED
        return [name for name in self._open[:_MOST_EMPTIED] if name != item.node]

    def _is_large_enough(self, name: str) -> bool:
        """Tell whether it could take the waiting pod if it were empty."""
        row, shape = self._rows[name], self.waiting.shape
        most = {**row.allocatable, **row.limits}
        if any(most.get(resource, 0) < amount for resource, amount in shape.total.items()):
            return False
        return not (row.report and _zones_lack(shape, row, row.report.totals))

    def refusal(self, item: ClusterPod, node: str) -> str:
        """Refusal by the sums of the node, else by its judges."""
        self._pause()
        is_kept = item is not self.waiting and node not in self._changed
        refusal = self._refusals.get((item.shape, node)) if is_kept else None
        if refusal is None:
            refusal = self._cluster.faults.guarded(node, self._refusal, item, node)
            if is_kept:
                self._refusals[item.shape, node] = refusal
        return refusal

    def _refusal(self, item: ClusterPod, node: str) -> str:
        row = self._row(item, node)
        if lacks := victims.lacking(item.shape, row):
            return f"too little {' and '.join(sorted(lacks))} in all"
        return judge.refusal(item.shape, row, self._settings)

    def lacking(self, item: ClusterPod, node: str) -> Mapping[str, int]:
        """Nano-units by resource, of the node as a whole or of its emptiest NUMA node; a move, where none can be
        named."""
        self._pause()
        return self._lacks(item.shape, node) or (
            {_MOVE: 1} if item is not self.waiting or self.refusal(item, node) else {}
        )

    def _lacks(self, shape: PodShape, node: str) -> dict[str, int]:
        row = self._changed.get(node) or self._rows[node]
        lacks = victims.lacking(shape, row)
        for name, amount in _zones_lack(shape, row, row.zones).items():
            lacks[name] = max(lacks.get(name, 0), amount)
        return lacks

    def places(self, item: ClusterPod) -> tuple[Sequence[str], bool]:
        """The emptiest nodes that take it; in large clusters a few."""
        roomy = self._roomy.get(item.shape)
        if roomy is None:
            self._pause()
            roomy = [name for name in self._open if not victims.lacking(item.shape, self._rows[name])]
            self._roomy[item.shape] = roomy
        fitting: list[str] = []
        changed = [name for name in self._changed if name not in self._closed]
        for name in dict.fromkeys((*roomy[:_MOST_JUDGED], *changed)):
            if len(fitting) > make_room.WIDTH:
                return fitting, False
            if name != item.node and not self.refusal(item, name):
                fitting.append(name)
        whole = len(roomy) <= _MOST_JUDGED
        self.left_out |= not (whole or fitting)
        return fitting, whole

    def residents(self, node: str) -> Sequence[ClusterPod]:
        """Pods that nothing seen here keeps, and that are not more important than the one that waits."""
        movable = self._movable.get(node)
        if movable is None:
            most = self.waiting.priority
            movable = [
                pod
                for pod in self._rows[node].pods
                # One that is on its way there cannot be evicted.
                if pod.priority <= most and pod.uid in self._returned_on(node)
                if not (pod.tied or pod.stands_for or pod.deleting)
            ]
            movable.sort(key=lambda pod: (pod.priority, pod.shape.total.get("cpu", 0), pod.key))
            self._movable[node] = movable
        return [pod for pod in movable if pod.uid not in self._moved] if self._moved else movable

    def amounts(self, item: ClusterPod) -> Mapping[str, int]:
        """Requests, one slot and one move."""
        return item.shape.once("amounts", lambda: {**victims.needs(item.shape), _MOVE: 1})

    def kind(self, item: ClusterPod) -> object:
        """Pods of one template on the same NUMA nodes; one with CPUs of its own is like no other."""
        if item.resource_status or item.crane_result:
            return item.uid
        return id(item.shape), item.priority, tuple(self._gives_back(item))

    def cost(self, item: ClusterPod) -> Cost:
        """Only the priority is known here."""
        return Cost(item.priority)

    def objection(self, items: Sequence[ClusterPod]) -> str:
        """None is known here beyond what keeps a pod from being a resident that moves."""
        return ""

    def leave(self, item: ClusterPod) -> None:
        """Take it off its node, with what it gives back by NUMA node."""
        row = self._changed.get(item.node) or self._rows[item.node]
        self._moved.add(item.uid)
        self._change(item.node, victims.without(row, [item], self._gives_back(item)), item.uid)

    def settle(self, item: ClusterPod, node: str) -> None:
        """Put it where kubelet will, or the agent of an allocator."""
        row = self._changed.get(node) or self._rows[node]
        self._change(node, admitted(row, self._promised(item, node), self._settings), "")

    def mark(self) -> int:
        """The number of changes."""
        return len(self._undo)

    def back_to(self, mark: int) -> None:
        """Undo the changes since then, the last one first."""
        while len(self._undo) > mark:
            node, row, uid = self._undo.pop()
            self._moved.discard(uid)
            if row is None:
                del self._changed[node]
            else:
                self._changed[node] = row

    def _change(self, node: str, row: Row, uid: str) -> None:
        self._undo.append((node, self._changed.get(node), uid))
        self._changed[node] = row

    def _row(self, item: ClusterPod, node: str) -> Row:
        """The node as this pod meets it: with the Reservations that it may take."""
        row = self._changed.get(node) or self._rows[node]
        if item is not self.waiting or self._candidate is None or not row.reservations.placed:
            return row
        return judge.for_candidate(self._candidate, item.shape, row, self._settings)

    def _promised(self, pod: ClusterPod, node: str) -> ClusterPod:
        """The pod on that node with what its Binding would carry."""
        promise = judge.promise(pod.shape, self._row(pod, node), self._settings, pod.uid)
        return pod.bound(node, promise.annotations)

    def _gives_back(self, pod: ClusterPod) -> Mapping[int, Amounts]:
        return self._returned_on(pod.node).get(pod.uid, {})

    def _returned_on(self, node: str) -> Mapping[str, Mapping[int, Amounts]]:
        """Amounts by NUMA node that each pod bound to this node gives back when it goes, by its uid."""
        if node not in self._returned:
            with self._cluster.lock:
                state = self._cluster.nodes.get(node)
                self._returned[node] = state.returned_each() if state is not None else {}
        return self._returned[node]


def _zones_lack(shape: PodShape, row: Row, zones: Zones) -> dict[str, int]:
    """Amounts that the emptiest of `zones` has too little of, where kubelet wants one NUMA node."""
    lacks: dict[str, int] = {}
    if row.is_plain and not shape.names_scheduler and row.report and row.report.policy == judge.SINGLE:
        for part in shape.request.of_scope(row.report.scope):
            for name, amount, is_aligned in part.requests:
                most = max((zone[name] for zone in zones.values() if name in zone), default=amount)
                if is_aligned and most < amount:
                    lacks[name] = max(lacks.get(name, 0), amount - most)
    return lacks
