"""Evictions on the emulated node: which are refused, and how long an evicted pod takes to go.

Annotations of a pod: `sandbox.koordlite.io/refuse-evictions: "true"` refuses every one, as a disruption budget that is
used up; `sandbox.koordlite.io/disruption-budget: NAME/2` shares a budget with the other pods of that name, of which two
at most may be on their way out at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import structs

from koordlite.changes.eviction import EvictPod
from koordlite.model.errors import EvictionRefused
from koordlite.model.wire import objects

REFUSE = "sandbox.koordlite.io/refuse-evictions"
BUDGET = "sandbox.koordlite.io/disruption-budget"
GRACE_SECONDS = 30.0
"""terminationGracePeriodSeconds of a pod that does not say; it runs to its end."""
SPENT = "Cannot evict pod as it would violate the pod's disruption budget."
"""The API server's words."""


class _Leaving(msgspec.Struct, frozen=True):
    gone_at: float
    """Monotonic seconds."""
    deleted_at: str
    """RFC 3339, as the pod shows it."""


class Evictions:
    """What the API server and the kubelet do with an eviction; `monotonic` is the emulated node's clock."""

    def __init__(self, monotonic: Callable[[], float], *, grace_seconds: float = GRACE_SECONDS) -> None:
        self._monotonic, self._grace = monotonic, grace_seconds
        self._leaving: dict[str, _Leaving] = {}
        self._shown: dict[str, tuple[objects.PodObject, objects.PodObject]] = {}

    def ask(self, asked: EvictPod, pods: Sequence[objects.PodObject], *, taken_at: str) -> None:
        """Let the pod go, EvictionRefused when its budget is used up. A pod that is gone or on its way is accepted."""
        pod = next((each for each in pods if each.metadata.uid == asked.uid), None)
        if pod is None or asked.uid in self._leaving:
            return
        if self._spent(pod, pods):
            raise EvictionRefused(f"pod/{asked.namespace}/{asked.name}", SPENT)
        own = pod.spec.termination_grace_period_seconds if pod.spec else None
        grace = self._grace if own is None else max(own, 0)
        self._leaving[asked.uid] = _Leaving(self._monotonic() + grace, taken_at)

    def remaining(self, pods: Sequence[objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods that are still there."""
        now = self._monotonic()
        gone = {uid for uid, leaving in self._leaving.items() if leaving.gone_at <= now}
        return tuple(each for each in pods if each.metadata.uid not in gone)

    def shown(self, pods: Sequence[objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods with a deletion time where they are on their way out; unchanged pods keep their identity."""
        return tuple(self._marked(each) for each in pods) if self._leaving else tuple(pods)

    def _marked(self, pod: objects.PodObject) -> objects.PodObject:
        uid = pod.metadata.uid
        leaving = self._leaving.get(uid)
        if leaving is None:
            return pod
        known = self._shown.get(uid)
        if known is None or known[0] is not pod:
            metadata = structs.replace(pod.metadata, deletion_timestamp=leaving.deleted_at)
            known = self._shown[uid] = (pod, structs.replace(pod, metadata=metadata))
        return known[1]

    def _spent(self, pod: objects.PodObject, pods: Sequence[objects.PodObject]) -> bool:
        notes = pod.metadata.annotations or {}
        if notes.get(REFUSE) == "true":
            return True
        budget = notes.get(BUDGET)
        if budget is None:
            return False
        allowed = budget.rpartition("/")[2]
        sharing = [each for each in pods if (each.metadata.annotations or {}).get(BUDGET) == budget]
        going = sum(each.metadata.uid in self._leaving for each in sharing)
        # A budget that cannot be read allows nothing: an eviction too few does no harm.
        return going >= (int(allowed) if allowed.isdecimal() else 0)
