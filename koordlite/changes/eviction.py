"""Pods that have to go: the eviction of one, and the kill of a container where nobody answers evictions."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from koordlite.model.change import Change, KernelChange
from koordlite.model.place import PlaceKind

PLACE = PlaceKind.of("eviction", "pod/{namespace}/{name}/{uid}", update="")
KILL = PlaceKind.of(
    "container kill",
    "kill/{namespace}/{pod}/{uid}/{container}",
    metrics=("cgroup.kill",),
    update="",
    container=".*",
)


class EvictPod(Change, msgspec.Struct, frozen=True):
    """Ask the cluster's Eviction API to evict one pod. What became of it, `Snapshot.evicted` says afterwards."""

    place_kind: ClassVar[PlaceKind] = PLACE
    # What cannot be undone comes last, when all else has been tried.
    rank: ClassVar[int] = 90

    namespace: str
    name: str
    uid: str
    reason: str
    """One sentence for people: it becomes the event's message."""

    def describe(self) -> str:
        """The eviction and its reason."""
        return f"evicted: {self.reason}"


class KillContainer(KernelChange, msgspec.Struct, frozen=True):
    """Kill all processes in the group of one container at once. Kubelet starts it again by the pod's restart policy."""

    place_kind: ClassVar[PlaceKind] = KILL
    # As evictions, and after them.
    rank: ClassVar[int] = 91

    namespace: str
    pod: str
    uid: str
    container: str
    group: str
    reason: str
    """One sentence for people: it becomes the event's message."""

    def describe(self) -> str:
        """The kill and its reason."""
        return f"killed: {self.reason}"
