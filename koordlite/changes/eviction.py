"""The eviction of a pod."""

from __future__ import annotations

import dataclasses

from koordlite.model.change import Change


@dataclasses.dataclass(frozen=True, slots=True)
class EvictPod(Change):
    """Ask the cluster's Eviction API to evict one pod. What became of it, `Snapshot.evicted` says afterwards."""

    namespace: str
    name: str
    uid: str
    reason: str
    """One sentence for people: it becomes the event's message."""

    @property
    def place(self) -> str:
        """What is changed."""
        return f"pod/{self.namespace}/{self.name}/{self.uid}"
