"""The eviction of a pod."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.model.change import Change
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="eviction",
    form="pod/%s/%s/%s",
    pattern=re.compile(r"pod/(?P<namespace>[^/]*)/(?P<name>[^/]*)/(?P<uid>[^/]*)"),
    metric=lambda parts: "eviction",
    metrics=frozenset({"eviction"}),
    update="",
)


class EvictPod(Change, msgspec.Struct, frozen=True):
    """Ask the cluster's Eviction API to evict one pod. What became of it, `Snapshot.evicted` says afterwards."""

    # What cannot be undone comes last, when all else has been tried.
    rank: ClassVar[int] = 90

    namespace: str
    name: str
    uid: str
    reason: str
    """One sentence for people: it becomes the event's message."""

    @property
    def place(self) -> Place:
        """What is changed."""
        return PLACE.place(self.namespace, self.name, self.uid)

    def describe(self) -> str:
        """The value in one line."""
        return f"evicted: {self.reason}"
