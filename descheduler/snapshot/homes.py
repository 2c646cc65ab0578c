"""A node of the picture: its object, its report and its pods put together, and taken over while they are the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from descheduler.framework import NodeView, PodView, ReservedCPUs
from descheduler.snapshot import crane, promised_placement
from descheduler.snapshot.report import Report
from koordlite.model import cpuset, keys, node
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import objects as wire

T = TypeVar("T")
_ENDED = ("Succeeded", "Failed")


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
        self._pods: tuple[PodView, ...] | None = None
        self._made: list[PodView] = []
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

    def take(self, pods: tuple[PodView, ...], seen_at: float | None) -> None:
        """These are its pods now, by namespace and name, and then its agent saw them last. Pods that stay keep what was
        worked out for them: it follows from the pod, the node's object and the report."""
        if self._pods == pods:  # Equal items are found by identity; nearly all are the same objects.
            if self.view.placement_at != seen_at:
                self.view = dataclasses.replace(self.view, placement_at=seen_at)
            return
        known = {before.pod.uid: (before, made) for before, made in zip(self._pods or (), self._made, strict=True)}
        self._made = [self._kept(one, known.get(one.pod.uid)) for one in pods]
        self._pods = pods
        self.view = dataclasses.replace(
            self.view,
            placement_at=seen_at,
            reserved=self._reserved(pods),
            pods=tuple([one for one in self._made if one.pod.phase not in _ENDED]),
            ended=tuple([one for one in pods if one.pod.phase in _ENDED]),
        )

    def _kept(self, one: PodView, known: tuple[PodView, PodView] | None) -> PodView:
        return known[1] if known and known[0] is one else self._with_promises(one)

    def _with_promises(self, one: PodView) -> PodView:
        if one.pod.phase in _ENDED:
            return one
        containers, seen = promised_placement.of_pod(one, self.view, self._reported, crane.promise(one.pod))
        return dataclasses.replace(one, containers=containers, observed=seen) if containers else one

    def _reserved(self, pods: Iterable[PodView]) -> ReservedCPUs:
        written, notes = self._written, self.view.node.annotations
        return promised_placement.reserved_cpus(
            self._reported,
            written,
            self._system,
            unreadable=_unreadable(notes, written),
            pinned=_pinned(pods, self._reported) if written and written.reserved_cpus is None else EMPTY,
        )


def _unreadable(notes: Mapping[str, str], written: node.Reservation | None) -> bool:
    return written is None and notes.get(keys.RESERVATION, "") not in ("", "null")


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
