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
from collections.abc import Callable, Mapping

import msgspec

from koordlite.model import keys, times
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.attempts import Refusal
from koordlite.scheduler.extender import BindError, Extender
from koordlite.threads import Periodic

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
MOST_SHAPES = 4
"""Shapes of pods that are judged anew in one look."""
MOST_AT_ONCE = 10
"""Pods that are woken in one look: the first one that is bound wakes all others."""
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0
"""Seconds until a pod is woken again, doubled each time it was in vain."""
UNKNOWN_SECONDS = 10.0
"""How much later than the scheduler's watch ours may be."""


class _Wake(msgspec.Struct, frozen=True):
    """The latest time that a pod was woken."""

    pause: float
    """Seconds until it may be again."""
    until: float


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
        self._due: dict[str, str] = {}
        """What has changed for a pod that has not been woken for it yet, by uid."""
        self._wakes: dict[str, _Wake] = {}
        self.results: collections.Counter[str] = collections.Counter()
        """woken, failed (the API server refused)."""
        self._last_failure = ""

    def look(self) -> None:
        """Wake pods of which something that refused them has changed."""
        if self._extender.not_ready():
            return
        refused, now = self._waiting(), self._extender.cluster.now()
        self._wakes = {uid: wake for uid, wake in self._wakes.items() if uid in refused}
        self._due = {uid: why for uid, why in {**self._due, **self._changes(refused)}.items() if uid in refused}
        ready = [uid for uid in self._due if (wake := self._wakes.get(uid)) is None or wake.until <= now]
        for uid in ready[:MOST_AT_ONCE]:
            self.worker.beat()
            pause = min(2 * self._wakes[uid].pause, LAST_PAUSE) if uid in self._wakes else FIRST_PAUSE
            self._wakes[uid] = _Wake(pause, now + pause)
            if self._wake(refused[uid].pod, self._due[uid]):
                del self._due[uid]

    def _waiting(self) -> dict[str, Refusal]:
        """The pods that no node may have and that still wait, by uid."""
        cluster, refused = self._extender.cluster, self._extender.refused
        with cluster.lock:
            now = cluster.now()
            for uid, refusal in list(refused.items()):
                pod = cluster.pods.get(uid)
                if (now - refusal.at > UNKNOWN_SECONDS) if pod is None else pod.node:
                    del refused[uid]
            return dict(refused)

    def _changes(self, refused: Mapping[str, Refusal]) -> dict[str, str]:
        """What has changed for a pod since its last attempt, by uid of those of which something has. It is said once:
        the next attempt says what the pod depends on from then on."""
        extender, cluster, loads = self._extender, self._extender.cluster, self._extender.loads
        with cluster.lock:
            cluster.refresh()
            stale = dict.fromkeys(r.pod.shape for r in refused.values() if r.board.version < cluster.version)
        boards = {shape: extender.board(shape) for shape in list(stale)[:MOST_SHAPES]}
        relieved = loads.relieved({uid: refusal.busy for uid, refusal in refused.items()}) if loads is not None else {}
        changes = {}
        with cluster.lock:
            for uid, refusal in refused.items():
                board = boards.get(refusal.pod.shape) or refusal.board
                node, version = board.freed
                rows = cluster.changes[max(0, refusal.version - cluster.changes_before) :] if refusal.reserved else ()
                reserved = next((name for name in rows if name in refusal.reserved), "")
                if version > refusal.version or board is not refusal.board:
                    why = f"{node or 'some node'} has room for it now"
                elif uid in relieved:
                    why = f"{relieved[uid]} is not too busy for it any more"
                elif reserved:
                    why = f"{reserved}, where something is reserved for it, has changed"
                elif cluster.now() >= refusal.until:
                    why = "it need not wait for its reservation any longer"
                elif refusal.elsewhere:
                    why = f"{refusal.elsewhere}, which its scheduler did not ask about, may have room for it"
                else:
                    continue
                if extender.refused.get(uid) is refusal:
                    changes[uid] = why
                    until = math.inf if cluster.now() >= refusal.until else refusal.until
                    extender.refused[uid] = msgspec.structs.replace(
                        refusal, board=board, version=board.version, until=until, elsewhere=""
                    )
        return changes

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
