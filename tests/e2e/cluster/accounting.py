"""Who holds which CPU, who was refused, and who was bound without a promise: counted as the watch brings it."""

from __future__ import annotations

import collections
import time

from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects


class Accounting:
    """A listener of `Nodes`. Times are seconds of its own beginning."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.pods: dict[str, objects.PodObject] = {}
        self.refused: collections.Counter[str] = collections.Counter()
        """Pods that kubelet did not admit, by reason."""
        self.bound_at: dict[str, float] = {}
        """When a pod was first seen bound, by uid."""
        self.without_promise: dict[str, str] = {}
        """Pods that were seen bound without the promise that they need, and their node, by uid."""
        self.promised_late: dict[str, float] = {}
        """How long after their binding these got it."""
        self.twice: list[str] = []
        """CPUs that were promised to two pods at a time."""
        self.deleted: list[str] = []
        self._failed: set[str] = set()
        self._cpus: dict[str, tuple[str, CPUSet]] = {}
        """Node and CPUs promised to each live pod, by uid."""

    def __call__(self, pod: objects.PodObject | None, key: str) -> None:
        """One event."""
        if pod is None:
            gone = self.pods.pop(key, None)
            if gone is not None:
                self.deleted.append(key)
                self._cpus.pop(gone.metadata.uid, None)
            return
        before = self.pods.get(key)
        if before is not None and before.metadata.uid != pod.metadata.uid:
            self._cpus.pop(before.metadata.uid, None)
        self.pods[key] = pod
        uid, node = pod.metadata.uid, pod.spec.node_name
        if node and uid not in self.bound_at:
            self.bound_at[uid] = time.monotonic() - self._start
        if pod.status.phase in ("Failed", "Succeeded"):
            self._cpus.pop(uid, None)
            if pod.status.phase == "Failed" and uid not in self._failed:
                self._failed.add(uid)
                self.refused[pod.status.reason or ""] += 1
        elif node and needs_promise(pod):
            self._promised(pod, uid, node, key)

    @property
    def placed(self) -> int:
        """Pods that are bound and not refused."""
        return sum(1 for pod in self.pods.values() if pod.spec.node_name and pod.status.phase != "Failed")

    @property
    def running(self) -> int:
        """Pods whose containers run."""
        return sum(1 for pod in self.pods.values() if pod.status.phase == "Running")

    @property
    def pending(self) -> list[str]:
        """Pods that no node has."""
        return [key for key, pod in self.pods.items() if not pod.spec.node_name]

    def _promised(self, pod: objects.PodObject, uid: str, node: str, key: str) -> None:
        text = (pod.metadata.annotations or {}).get(keys.RESOURCE_STATUS, "")
        if not text:
            self.without_promise.setdefault(uid, node)
            return
        if uid in self.without_promise:
            self.promised_late.setdefault(uid, time.monotonic() - self._start - self.bound_at[uid])
        cpus = pod_reader.parse_resource_status(text).cpuset
        for other, (at, taken) in self._cpus.items():
            if at == node and other != uid and taken & cpus:
                self.twice.append(f"{key} and {other} on {node}: CPUs {taken & cpus}")
        self._cpus[uid] = node, cpus


def needs_promise(pod: objects.PodObject) -> bool:
    """Whether the pod gets CPUs of its own from our agent: LSE and LSR of Koordinator's protocol."""
    return (pod.metadata.labels or {}).get(keys.QOS_CLASS) in ("LSE", "LSR")
