"""Pods that no node may have, given back to kube-scheduler when what refused them has changed.

kube-scheduler tries a pod that an extender refused again when a Pod or a Node changes, and else after five minutes
(1.36, recorded). It does not watch what else the extender judges by: a report that comes late, the measured load, the
end of the wait for a Reservation. Of a large cluster it looks at a part of the nodes, and gives up when the extender
refuses all of these. An annotation of the pod wakes that pod and no other.
"""

from __future__ import annotations

import collections
import logging
import math
from collections.abc import Callable, Mapping, Set

import msgspec

from koordlite.kube.client import backoff
from koordlite.model import keys, times
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.extender import BindError, Extender, RefusedPod
from koordlite.threads import Periodic

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
MOST_AT_ONCE = 10
"""Pods that are woken in one look: the first one that is bound wakes all others."""
LAST_PAUSE = 60.0
"""Maximum time in seconds until a pod is woken again: 1, doubled each time it was in vain."""
UNKNOWN_SECONDS = 10.0
"""Maximum delay in seconds of our watch behind the scheduler's."""


class _Wakes(msgspec.Struct, frozen=True):
    """Number of times a pod was woken, and when it may be woken again."""

    count: int = 0
    until: float = -math.inf


class Retries:
    """Looks for such pods while `worker` runs."""

    def __init__(
        self,
        extender: Extender,
        annotate: Callable[[ClusterPod, Mapping[str, str]], None],
        *,
        wall: Callable[[], float],
    ) -> None:
        """`annotate` writes to a pod; BindError when the API server does not take it."""
        self.worker = Periodic("retries", self.look, lambda: LOOK_SECONDS)
        self._extender, self._annotate, self._wall = extender, annotate, wall
        self._pods: dict[str, RefusedPod] = {}
        """The refused pods of the last look, by uid."""
        self._version = 0
        """Up to which change of the cluster it looked."""
        self._judged: dict[PodShape, int] = {}
        """Up to which change pods of this shape were judged in it."""
        self._due: dict[str, str] = {}
        """Change for a pod that has not been woken for it yet, by uid."""
        self._wakes: dict[str, _Wakes] = {}
        self.results: collections.Counter[str] = collections.Counter()
        """woken, failed (the API server refused)."""
        self._last_failure = ""

    def look(self) -> None:
        """Wake pods of which something that refused them has changed."""
        if self._extender.not_ready():
            return
        pods, now = self._waiting(), self._extender.cluster.now()
        # What changed before a later attempt was judged in it.
        due = {uid: why for uid, why in self._due.items() if uid in pods and pods[uid] is self._pods.get(uid)}
        self._due = due | self._changes(pods, now)
        self._pods = pods
        self._wakes = {uid: self._wakes.get(uid, _Wakes()) for uid in pods}
        ready = [uid for uid in self._due if self._wakes[uid].until <= now]
        for uid in ready[:MOST_AT_ONCE]:
            self.worker.beat()
            count = self._wakes[uid].count + 1
            # `min`: nothing is added at random.
            self._wakes[uid] = _Wakes(count, now + backoff.pause(count, min, last=LAST_PAUSE))
            if self._wake(pods[uid].pod, self._due[uid]):
                del self._due[uid]

    def _waiting(self) -> dict[str, RefusedPod]:
        """The pods that no node may have and that still wait, by uid."""
        cluster, refused = self._extender.cluster, self._extender.refused_pods
        with cluster.lock:
            now = cluster.now()
            for uid, each in list(refused.items()):
                pod = cluster.pods.get(uid)
                if (now - each.at > UNKNOWN_SECONDS) if pod is None else pod.node:
                    del refused[uid]
            return dict(refused)

    def _changes(self, pods: Mapping[str, RefusedPod], now: float) -> dict[str, str]:
        """Changes since the last look, by uid of the pods that have one."""
        cluster, loads = self._extender.cluster, self._extender.loads
        # Up to where each pod has been looked at: the last look, or its own attempt where that is a later one.
        since = {uid: self._version if self._pods.get(uid) is each else each.version for uid, each in pods.items()}
        with cluster.lock:
            cluster.refresh()
            earlier, self._judged = self._judged, {}
            for uid, each in pods.items():
                shape = each.pod.shape
                judged = self._judged.get(shape, earlier.get(shape, since[uid]))
                self._judged[shape] = min(judged, since[uid])
            changes = cluster.changed_since(min(self._judged.values(), default=cluster.version))
            boards = {shape: cluster.boards.get(shape) for shape in self._judged}
            with_reservations = {name for name in changes if cluster.reserved.of_node(name)}
            reserved = {uid: self._reserved(each, changes.keys(), with_reservations) for uid, each in pods.items()}
            self._version = cluster.version
        room: dict[PodShape, dict[str, int]] = {}
        for shape, board in boards.items():
            if board is not None and board.version > self._judged[shape]:
                names = (name for name, at in changes.items() if self._judged[shape] < at <= board.version)
                room[shape] = {n: changes[n] for n in names if n in cluster.rows and n not in board.refused}
                self._judged[shape] = board.version
        busy = {uid: (each.load, each.load_version, each.busy) for uid, each in pods.items() if each.load is not None}
        relieved, load_version = loads.relieved(busy) if loads is not None else ({}, 0)
        reasons = {}
        for uid, each in pods.items():
            each.load_version = load_version
            free = room.get(each.pod.shape, {}) if each.until <= now else {}
            name = next((name for name, at in free.items() if at > each.version and each.may_have(name)), "")
            reserved_node = next((name for name in reserved[uid] if changes[name] > since[uid]), "")
            if name:
                reasons[uid] = f"{name} has room for it now"
            elif uid in relieved:
                reasons[uid] = f"{relieved[uid]} is not too busy for it any more"
            elif reserved_node:
                reasons[uid] = f"{reserved_node}, where something is reserved for it, has changed"
            elif -math.inf < each.until <= now:
                each.until = -math.inf
                reasons[uid] = "it need not wait for its reservation any longer"
            elif each.elsewhere:
                reasons[uid] = f"{each.elsewhere}, which its scheduler did not ask about, may have room for it"
                each.elsewhere = ""
        return reasons

    def _reserved(self, pod: RefusedPod, changed: Set[str], with_reservations: Set[str]) -> Set[str]:
        """Nodes among those `changed` with reservations that concern the pod, or did at its attempt."""
        nodes = pod.reserved & changed
        if with_reservations and pod.candidate is not None:
            nodes |= self._extender.cluster.reserved.nodes_for(pod.candidate) & with_reservations
        return nodes

    def _wake(self, pod: ClusterPod, why: str) -> bool:
        """Write to the pod; False when the API server does not take it."""
        about = {"pod": pod.key, "flow": "retry"}
        try:
            self._annotate(pod, {keys.RETRY: f"{times.show(self._wall())}: {why}"})
        except BindError as error:
            self.results["failed"] += 1
            if str(error) != self._last_failure:
                self._last_failure = str(error)
                LOG.warning("pod %s cannot be given back to its scheduler: %s", pod.key, error, extra=about)
            return False
        self.results["woken"] += 1
        self._extender.note(pod, f"its scheduler was asked to try it again: {why}")
        LOG.info("pod %s: its scheduler is asked to try it again: %s", pod.key, why, extra=about)
        return True
