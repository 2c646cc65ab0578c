"""Evictions asked of the cluster: what was accepted, what was refused, and when to ask again.

Only the Eviction API is used. A container that is merely stopped comes back, and is stopped again, for ever.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.formulas.eviction.evict_walk import LEAVING_SECONDS
from koordlite.model.errors import EvictionRefused, kernel_words
from koordlite.model.status import AppliedStep
from koordlite.ports import Clock, Cluster

FIRST_BACK_OFF_SECONDS = 10.0
LAST_BACK_OFF_SECONDS = 300.0
LAST_SILENCE_SECONDS = 20.0
"""Longest time nobody is asked for after an eviction that was not answered."""
ACCEPTED = "eviction accepted"


class _Failure(msgspec.Struct, frozen=True):
    """Failures in a row, of the evictions of one pod or of all: why the last one, until when nobody asks again, and how
    many."""

    why: str = ""
    until: float = float("-inf")
    count: int = 0

    def another(self, why: str, time: float, *, longest: float, least: float = 0.0) -> _Failure:
        """One more at `time`: twice as long after each, at most `longest` seconds, and never shorter than `least`."""
        wait = min(FIRST_BACK_OFF_SECONDS * 2.0 ** min(self.count, 10), longest)
        return _Failure(why, time + max(wait, least), self.count + 1)


class Evictions:
    """Asks, and knows what was answered in this run.

    A refusal concerns one pod, and another may go in its place. Silence concerns the cluster: the pod may be on its way
    out, so no other is asked for until there is an answer, or the back-off has passed.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._accepted: dict[str, float] = {}
        self._refusals: dict[str, _Failure] = {}
        self._silence = _Failure()

    def recent(self, time: float, uids: Collection[str]) -> tuple[dict[str, float], dict[str, str]]:
        """Split the pods with these uids: those that were let go of late, and when; and those that were refused, and
        why.

        What is over at `time`, and pods that are gone, are forgotten.
        """
        self._accepted = {uid: at for uid, at in self._accepted.items() if uid in uids and time - at < LEAVING_SECONDS}
        self._refusals = {uid: refusal for uid, refusal in self._refusals.items() if uid in uids}
        refused = {uid: refusal.why for uid, refusal in self._refusals.items() if time < refusal.until}
        return dict(self._accepted), refused

    def take(self, pods: Iterable[EvictPod], *, time: float) -> list[AppliedStep]:
        """Ask for each pod until the cluster fails to answer; a refusal is reported and does not stop the others."""
        silent = self._silence.why if time < self._silence.until else ""
        steps = []
        for pod in pods:
            if silent:
                steps.append(_failed(pod, f"not asked, the last eviction has no answer: {silent}"))
                continue
            started, error = self._clock.monotonic(), ""
            try:
                self._cluster.evict(pod)
                self._accepted[pod.uid], self._silence = time, _Failure()
                self._refusals.pop(pod.uid, None)
            except EvictionRefused as refused:
                error, self._silence = refused.why, _Failure()
                self._back_off(pod.uid, error, time, refused.retry_after_seconds)
            except OSError as failed:
                error = silent = kernel_words(failed)
                # What is still being asked (EINPROGRESS) is left to the next round, which fetches the answer.
                if failed.errno != errno.EINPROGRESS:
                    self._silence = self._silence.another(silent, time, longest=LAST_SILENCE_SECONDS)
                    self._back_off(pod.uid, silent, time, None)
            seconds = self._clock.monotonic() - started
            steps.append(_failed(pod, error, seconds) if error else AppliedStep(pod.place, ACCEPTED, seconds=seconds))
        return steps

    def _back_off(self, uid: str, why: str, time: float, asked_seconds: float | None) -> None:
        """Leave the pod alone for a while, as long as the cluster asks for and longer after each refusal."""
        before = self._refusals.get(uid, _Failure())
        self._refusals[uid] = before.another(why, time, longest=LAST_BACK_OFF_SECONDS, least=asked_seconds or 0.0)


def _failed(pod: EvictPod, error: str, seconds: float = 0.0) -> AppliedStep:
    return AppliedStep(pod.place, pod.describe(), False, error, seconds)
