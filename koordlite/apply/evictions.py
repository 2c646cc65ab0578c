"""Evictions asked of the cluster: what was accepted, what was refused, and when to ask again.

Only the Eviction API is used. A container that is merely stopped comes back, and is stopped again, for ever.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from koordlite.apply import writer
from koordlite.formulas.evict_past import LEAVING_SECONDS
from koordlite.model.decision import EvictPod
from koordlite.model.errors import EvictionRefused
from koordlite.model.outcome import AppliedStep
from koordlite.model.snapshot import Snapshot
from koordlite.ports import Clock, Cluster

FIRST_BACK_OFF_SECONDS = 10.0
LAST_BACK_OFF_SECONDS = 300.0
ACCEPTED = "eviction accepted"


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod may not go, and for how long it is left alone after so many refusals."""

    why: str
    until: float
    count: int


class Evictions:
    """Asks, and knows what was answered in this run."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._accepted: dict[str, float] = {}
        self._refusals: dict[str, Refusal] = {}

    def onto(self, seen: Snapshot) -> Snapshot:
        """The picture with the pods that were let go or refused of late; what is over is forgotten."""
        known = {pod.uid for pod in seen.pods}
        self._accepted = {
            uid: at for uid, at in self._accepted.items() if uid in known and seen.time - at < LEAVING_SECONDS
        }
        self._refusals = {uid: refusal for uid, refusal in self._refusals.items() if uid in known}
        refused = {uid: refusal.why for uid, refusal in self._refusals.items() if seen.time < refusal.until}
        return dataclasses.replace(seen, evicted=dict(self._accepted), refused_evictions=refused)

    def take(self, pods: Iterable[EvictPod], *, time: float) -> list[AppliedStep]:
        """Ask for each pod; a refusal or a cluster that does not answer is told and does not stop the others."""
        return [self._ask(pod, time) for pod in pods]

    @property
    def accepted(self) -> Mapping[str, float]:
        """By uid, when the cluster agreed."""
        return self._accepted

    def _ask(self, pod: EvictPod, time: float) -> AppliedStep:
        started, error = self._clock.monotonic(), ""
        try:
            self._cluster.evict(pod)
        except EvictionRefused as refused:
            error = refused.why
            self._back_off(pod.uid, error, time, refused.retry_after_seconds)
        except OSError as failed:
            error = writer.words(failed)
            self._back_off(pod.uid, error, time, None)
        else:
            self._accepted[pod.uid] = time
            self._refusals.pop(pod.uid, None)
        seconds = self._clock.monotonic() - started
        return AppliedStep(pod.place, writer.describe(pod) if error else ACCEPTED, not error, error, seconds)

    def _back_off(self, uid: str, why: str, time: float, wished_seconds: float | None) -> None:
        """Twice as long after each refusal, and never shorter than the cluster wishes."""
        count = self._refusals[uid].count + 1 if uid in self._refusals else 1
        own = min(FIRST_BACK_OFF_SECONDS * 2.0 ** min(count - 1, 10), LAST_BACK_OFF_SECONDS)
        self._refusals[uid] = Refusal(why, time + max(own, wished_seconds or 0.0), count)
