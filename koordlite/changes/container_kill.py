"""All processes of a container, killed at once: the last resort where nobody answers an eviction."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from koordlite.model.change import KernelChange
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="container kill",
    form="kill/%s/%s/%s/%s",
    pattern=re.compile(r"kill/(?P<namespace>[^/]*)/(?P<pod>[^/]*)/(?P<uid>[^/]*)/(?P<container>.*)"),
    metric=lambda parts: "cgroup.kill",
    metrics=frozenset({"cgroup.kill"}),
    update="",
)


class KillContainer(KernelChange, msgspec.Struct, frozen=True):
    """Kill what runs in the group of one container. Kubelet starts it again by the pod's restart policy."""

    # As evictions, and after them.
    rank: ClassVar[int] = 91

    namespace: str
    pod: str
    uid: str
    container: str
    group: str
    reason: str
    """One sentence for people: it becomes the event's message."""

    @property
    def place(self) -> Place:
        """What is killed."""
        return PLACE.place(self.namespace, self.pod, self.uid, self.container)

    def describe(self) -> str:
        """The value in one line."""
        return f"killed: {self.reason}"
