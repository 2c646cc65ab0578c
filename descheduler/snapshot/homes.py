"""A node of the picture: its object, its report and its pods put together, and taken over while they are the same."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from descheduler.framework import NodeView, PodView
from descheduler.picture.templates import by_name
from descheduler.snapshot import crane, promised_placement
from descheduler.snapshot.report import Report
from koordlite.model import cpuset, keys, node
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import objects as wire

T = TypeVar("T")
_ENDED = ("Succeeded", "Failed")
Moves = tuple[list[PodView], list[PodView]]
"""Pods that left, and pods that came."""


class Home:
    """A node for one picture after the other, as long as its object and its report are the same objects."""

    def __init__(self, obj: wire.NodeObject, reported: Report) -> None:
        self._obj, self._reported = obj, reported
        value = node.from_wire(obj)
        self.problems = list(value.problems)
        """What cannot be read of it."""
        owner, notes = f"node/{value.name}", value.annotations
        self._written = _read(lambda: node.parse_reservation(notes.get(keys.RESERVATION, ""), owner), self.problems)
        by_node = _read(lambda: node.parse_system_qos(notes.get(keys.SYSTEM_QOS), owner), self.problems)
        self._system = reported.system_qos or by_node
        self.pods: list[PodView] = []
        """Its pods with what was promised to them, by namespace and name."""
        self.view = NodeView(
            node=value,
            object=obj,
            topology=reported.topology,
            zones=reported.zones,
            zone_totals=reported.zone_totals,
            distances=reported.distances,
            be_pool=reported.be_pool,
            topology_policy=reported.topology_policy,
            topology_scope=reported.topology_scope,
            cpu_manager=reported.cpu_manager,
            reservation=self._written,
            koordinator=reported.koordinator,
        )
        """The node with the pods that it took last."""

    def is_of(self, obj: wire.NodeObject, reported: Report) -> bool:
        """Whether it was made of these very objects."""
        return self._obj is obj and self._reported is reported

    def seen(self, at: float | None) -> None:
        """Then its agent saw its pods last, and these are the same."""
        if self.view.placement_at != at:
            self.view = msgspec.structs.replace(self.view, placement_at=at)

    def change(self, left: Iterable[PodView], came: Iterable[PodView], seen_at: float | None) -> Moves:
        """Some of its pods left, and others came, as they were read; then its agent saw them last. Returns the same
        pods with what was promised to them. Pods that stay keep that: it follows from the pod, the node's object and
        the report."""
        gone = [self.pods.pop(bisect.bisect_left(self.pods, by_name(one), key=by_name)) for one in left]
        new = [self._with_promises(one) for one in came]
        for one in new:
            bisect.insort(self.pods, one, key=by_name)
        written, notes = self._written, self.view.node.annotations
        self.view = self.view.with_pods(
            tuple(active(self.pods)),
            tuple(ended(self.pods)),
            moves=(gone, new),
            reserved=(
                promised_placement.reserved_cpus(
                    self._reported,
                    written,
                    self._system,
                    unreadable=written is None and notes.get(keys.RESERVATION, "") not in ("", "null"),
                    pinned=_pinned(self.pods, self._reported) if written and written.reserved_cpus is None else EMPTY,
                )
            ),
            placement_at=seen_at,
        )
        return gone, new

    def _with_promises(self, one: PodView) -> PodView:
        if one.pod.phase in _ENDED:
            return one
        containers, seen = promised_placement.of_pod(one, self.view, self._reported, crane.promise(one.pod))
        return msgspec.structs.replace(one, containers=containers, observed=seen) if containers else one


def active(pods: Iterable[PodView]) -> list[PodView]:
    """Those that have not ended."""
    return [one for one in pods if one.pod.phase not in _ENDED]


def ended(pods: Iterable[PodView]) -> list[PodView]:
    """Those that have Succeeded or Failed."""
    return [one for one in pods if one.pod.phase in _ENDED]


def _pinned(pods: Iterable[PodView], reported: Report) -> CPUSet:
    """CPUs that scheduler and kubelet gave to pods."""
    by_scheduler = [one.pod.resource_status.cpuset for one in pods if one.pod.active]
    return cpuset.union([*by_scheduler, *(alloc.cpuset for alloc in reported.allocs.values())])


def _read(parse: Callable[[], T], problems: list[Problem]) -> T | None:
    """What `parse` returns; None, with its problems noted, when it is refused."""
    try:
        return parse()
    except InputError as error:
        problems.extend(error.problems)
        return None
