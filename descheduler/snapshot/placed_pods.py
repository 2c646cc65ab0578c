"""Pods as they were read, by node, from one picture to the next: only those whose objects changed are read again."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import msgspec

from descheduler.framework import PodView
from descheduler.picture.templates import by_name
from descheduler.snapshot.files import Objects
from descheduler.snapshot.homes import Moves
from descheduler.snapshot.pack import PackedPod, Packer
from koordlite.fault_guard import SubjectFaults
from koordlite.model import times
from koordlite.model.errors import Problem

_Place = tuple[str, str]
"""Namespace and name."""

FAULTS = SubjectFaults("pods of the cluster")


class PlacedPods:
    """The pods of a cluster."""

    def __init__(self) -> None:
        self.by_node: dict[str, list[PodView]] = {}
        """By namespace and name; a node without pods is missing. Pods without a node are under the empty name."""
        self.moves: Mapping[str, Moves] = {}
        """Which pods left each node with the last reading, and which came; a node that keeps its pods is missing."""
        self._classes: Mapping[str, int] = {}
        self._log: list[_Place] | None = None
        """Of the objects that were read last, and how much of it was known then."""
        self._read = 0
        self._pods: dict[_Place, PodView] = {}
        self._left_out: dict[_Place, Problem] = {}
        """Why there is no value of an object: a fault of ours."""
        self._troubled: dict[_Place, PodView] = {}
        """Of those, the ones that could be read only in part."""

    @property
    def problems(self) -> Iterator[Problem]:
        """Problems of pods that cannot be read, or only in part."""
        yield from self._left_out.values()
        for where in sorted(self._troubled):
            yield from self._troubled[where].pod.problems

    def read(self, objects: Objects, classes: Mapping[str, int]) -> None:
        """Bring it up to date. `classes`: priorities by the names of their classes."""
        kept: dict[_Place, PackedPod] = objects.by_kind["Pod"]
        moves: dict[str, Moves] = defaultdict(lambda: ([], []))
        for where in self._touched(objects, again=classes != self._classes):
            before, obj = self._pods.get(where), kept.get(where)
            if before is not None and before.object is obj and classes == self._classes:
                continue
            self._left_out.pop(where, None)
            if before is not None:
                del self._pods[where]
                self._troubled.pop(where, None)
                moves[before.node][0].append(before)
            if obj is not None:
                try:
                    one = self._pods[where] = _pod(obj, objects.packer, classes)
                except Exception as error:  # noqa: BLE001 - one pod's fault costs that pod
                    self._left_out[where] = FAULTS.problem(f"pod/{'/'.join(where)}", error)
                    continue
                if one.pod.problems:
                    self._troubled[where] = one
                moves[one.node][1].append(one)
        self._classes, self.moves = classes, moves
        for name, (left, came) in moves.items():
            self._move(name, left, came)

    def _touched(self, objects: Objects, *, again: bool) -> Collection[_Place]:
        """Places of objects that may have changed since the last reading; with `again` wherever there are any."""
        log, read = objects.log("Pod"), self._read
        self._log, before = log, self._log
        self._read = len(log)
        if log is before and not again:
            return dict.fromkeys(log[read:])
        return {**self._pods, **objects.by_kind["Pod"]}

    def _move(self, node: str, left: list[PodView], came: list[PodView]) -> None:
        pods = self.by_node.setdefault(node, [])
        for one in left:
            del pods[bisect.bisect_left(pods, by_name(one), key=by_name)]
        if len(came) > len(pods):
            pods += came
            pods.sort(key=by_name)
        else:
            for one in came:
                bisect.insort(pods, one, key=by_name)
        if not pods:
            del self.by_node[node]


def _pod(obj: PackedPod, packer: Packer, classes: Mapping[str, int]) -> PodView:
    """One pod; what cannot be read in it is among the problems of its value."""
    priority = obj.spec.priority
    if priority is None:
        priority = classes.get(obj.spec.priority_class_name or "")
    value = packer.made(obj, priority)
    if not value.uid:
        value = msgspec.structs.replace(value, uid=value.key)
    started = times.parse_or_none(obj.status.start_time or obj.metadata.creation_timestamp)
    return PodView(value, obj, obj.spec.node_name, started, template=obj.template)
