"""State of one node, and the row that is judged: the report as read, which pods it has counted, and what is taken from
it, or given back, for those it has not.

Source of the cache modes: scheduler-plugins NodeResourceTopologyMatch, cache (overreserve, discardReserved,
passthrough) and its resync by the fingerprint of the node's pods. Ours: which pods a fingerprint counted is worked out,
so that only those it has not counted are reserved on top.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.model import keys
from koordlite.model.node import Node
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.nrt import fingerprint
from koordlite.numa.nrt.filter import Amounts, Zones, add
from koordlite.reservation.placed import NO_RESERVATIONS
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.judgement import judge, koordinator, victims
from koordlite.scheduler.judgement.nodes import Container, JudgeSettings, Report, Row, beside_owners
from koordlite.scheduler.judgement.victims import NOTHING_OWED, settled

MOST_CASES = 16
"""Ways in which placeholders may be placed that are looked at."""
MOST_TRIES = 4
"""Pods that are tried in any combination."""
MOST_LATE = 16
"""Pods that came, and that went, that are tried in their order."""


class Coverage(msgspec.Struct, frozen=True):
    """Coverage of the known pods by a report."""

    is_known: bool
    """True where it could be worked out. If not, every pod that came since it last could is taken for not counted."""
    uncounted: tuple[ClusterPod, ...] = ()
    """Alive, and not in the report."""
    outlived: tuple[ClusterPod, ...] = ()
    """Pods in the report that are gone."""
    how: str = ""


ALL_COUNTED = Coverage(is_known=True)


class NodeState(msgspec.Struct):
    """One node. Changed only under its owner's lock."""

    name: str
    node: Node | None = None
    closed: bool = False
    """It is cordoned, or has a taint that keeps pods away."""
    limits: Amounts = msgspec.field(default_factory=dict)
    """See `Row.limits`."""
    report: Report | None = None
    crane: TopologyObject | None = None
    """Crane's own topology of the node."""
    report_since: float = 0.0
    """Time at which this version of the report came."""
    pods: dict[str, ClusterPod] = msgspec.field(default_factory=dict)
    """Bound to it and not ended, by uid."""
    fresh: dict[str, float | None] = msgspec.field(default_factory=dict)
    """Uids of pods that the report is not known to count, and since when kubelet has been seen to have taken them."""
    came: dict[str, float] = msgspec.field(default_factory=dict)
    """Time at which each of them was first seen bound, by uid."""
    departed: dict[str, tuple[ClusterPod, float]] = msgspec.field(default_factory=dict)
    """Ended or deleted a short while ago, and since when."""
    dirty_since: float | None = None
    """Time since which the report is not that of the pods."""
    dirty_why: str = ""
    covered: Coverage = ALL_COUNTED
    next_look: float | None = None
    """Time at which time alone changes the row; None when it does not."""

    def settle(self, now: float, seconds: float) -> None:
        """A new version of a report without fingerprint came: it counts pods that were started long enough before."""
        if self.report is not None and not self.report.fingerprint:
            self.fresh = {uid: at for uid, at in self.fresh.items() if at is None or now - at < seconds}

    def row(self, assumed: Iterable[ClusterPod], settings: JudgeSettings, now: float, since: float) -> Row:
        """The node as it is judged now, with pods `assumed` on it, as they will be when they are bound; it changed last
        at `since`."""
        coming = [pod for pod in assumed if pod.uid not in self.pods]
        allocatable = {name: q.nano for name, q in self.node.allocatable.items()} if self.node else {}
        alive = (*self.pods.values(), *coming)
        self.settle(now, settings.report_seconds)
        times = [at + settings.gone_seconds for _, at in self.departed.values()]
        if self.report is not None and not self.report.fingerprint:
            times += [at + settings.report_seconds for at in self.fresh.values() if at is not None]
        self.next_look = min((time for time in times if time > now), default=None)
        if self.report is None:
            self.dirty_since, self.dirty_why = None, ""
            return Row(self.name, allocatable, self.limits, node=self.node, pods=alive, crane=self.crane)
        self.cover(settings, now, since)
        uncounted = self._uncounted(settings)
        amounts = [self._takes(pod) for pod in (*uncounted, *coming)]
        overreserve = settings.cache == "overreserve"
        returned = self.returned(self.covered.outlived) if overreserve else {}
        at_most = _on_top(self.report, (), returned)
        zones, owed = at_most, NOTHING_OWED
        if overreserve and any(amounts):
            zones, owed = settled(_on_top(self.report, amounts, returned))
        row = Row(
            self.name,
            allocatable,
            self.limits,
            report=self.report,
            zones=zones,
            owed=owed,
            at_most=at_most,
            unusable=self._unusable(settings, coming, uncounted),
            node=self.node,
            pods=alive,
            crane=self.crane,
            is_plain=self.crane is None and keys.CPU_TOPOLOGY not in self.report.annotations,
        )
        return _beside_promises(row)

    def _takes(self, pod: ClusterPod) -> Amounts:
        """The most that the pod can hold on a NUMA node: no CPUs where kubelet gives none. Shares are no NUMA
        node's, and what Koordinator's scheduler promised is counted by its CPUs."""
        assert self.report is not None
        if not self.report.gives_no_cpus:
            return pod.shape.held
        return {name: amount for name, amount in pod.shape.held.items() if name != "cpu"}

    def expected(self, row: Row, assumed: Iterable[ClusterPod], settings: JudgeSettings) -> Row:
        """The row with each pod that the report has not counted on the NUMA node where kubelet will put it; where that
        is several, or none, it counts on every one."""
        assert self.report is not None
        coming = [pod for pod in assumed if pod.uid not in self.pods]
        overreserve = settings.cache == "overreserve"
        # A report without fingerprint that is older than the end of a pod still counts it.
        outlived = self.covered.outlived or [pod for pod, at in self.departed.values() if at >= self.report_since]
        zones = _on_top(self.report, (), self.returned(outlived) if overreserve else {})
        node = msgspec.structs.replace(
            row, zones=zones, at_most=zones, owed=NOTHING_OWED, pods=tuple(self.pods.values()), extra={}
        )
        for pod in (*(self._uncounted(settings) if overreserve else ()), *coming):
            node = admitted(node, pod, settings)
        return _beside_promises(node)

    def cover(self, settings: JudgeSettings, now: float, since: float) -> None:
        """Work out which pods the report has counted."""
        assert self.report is not None
        for uid in [uid for uid, (_, at) in self.departed.items() if now - at > settings.gone_seconds]:
            del self.departed[uid]
        departed = [pod for pod, _ in self.departed.values()]
        coverage = self.covered = _coverage(self.report, self.pods.values(), departed, self.fresh)
        if coverage.is_known and self.report.fingerprint:
            self.fresh = {pod.uid: self.fresh.get(pod.uid) for pod in coverage.uncounted}
        if coverage.is_known and not coverage.uncounted and not coverage.outlived:
            self.dirty_since, self.dirty_why = None, ""
        else:
            self.dirty_since = since if self.dirty_since is None else self.dirty_since
            missing = ", ".join(pod.key for pod in coverage.uncounted)
            outlived = ", ".join(pod.key for pod in coverage.outlived)
            differs = (missing and f"not counted yet: {missing}", outlived and f"gone: {outlived}")
            self.dirty_why = "; ".join(filter(None, differs)) if coverage.is_known else coverage.how

    def _uncounted(self, settings: JudgeSettings) -> list[ClusterPod]:
        """Pods that the report has not counted and that hold something of their own."""
        assert self.report is not None
        listed = self.report.resources
        ignored = settings.profiles if settings.foreign_pods == "ignore" else None
        return [
            pod
            for pod in self.covered.uncounted
            if has_exclusive(pod.shape.exclusive, listed) and (ignored is None or pod.scheduler in ignored)
        ]

    def _unusable(self, settings: JudgeSettings, coming: list[ClusterPod], uncounted: list[ClusterPod]) -> str:
        assert self.report is not None
        if self.report.problems:
            return str(self.report.problems[0])
        if settings.cache == "discardReserved" and (coming or uncounted):
            return "pods are reserved here that no report has counted"
        foreign = [pod for pod in uncounted if pod.scheduler not in settings.profiles]
        if foreign and settings.foreign_pods == "refuse":
            return f"{foreign[0].scheduler} bound a pod here that no report has counted: {foreign[0].key}"
        return ""

    def freed(
        self, namespaces: Mapping[str, str], row: Row, assumed: Iterable[ClusterPod], settings: JudgeSettings
    ) -> dict[str, tuple[Zones, ...]]:
        """Available amounts once the placeholders of a Reservation have gone, by its uid; `namespaces` says where they
        are. A case for each NUMA node on which pods may be, as far as nothing says; none where the row says as much.

        The report is older than the node, so what has happened since is replayed on it. That a pod went is seen after
        its end, that one was bound before its admission: whether an admission came before an end that was seen later
        is not known, and both are cases.
        """
        if self.report is None or self.report.problems or settings.cache != "overreserve":
            return {}
        # Pods that have gone and that the report counts: by its fingerprint, else when it is older than their end.
        signed, outlived = bool(self.report.fingerprint), self.covered.outlived
        departed = [
            (at, pod) for pod, at in self.departed.values() if (pod in outlived if signed else self.report_since <= at)
        ]
        bound = [(self.came.get(pod.uid, 0.0), pod) for pod in self._uncounted(settings)]
        coming = [pod for pod in assumed if pod.uid not in self.pods]
        alive = [pod for pod in self.pods.values() if pod not in self.covered.uncounted]
        where = self.whereabouts(pod for _, pod in departed)
        start = msgspec.structs.replace(
            row,
            zones=self.report.available,
            at_most={},
            owed=NOTHING_OWED,
            pods=(),
            reservations=NO_RESERVATIONS,
            extra={},
        )
        cases: dict[str, tuple[Zones, ...]] = {}
        for uid, namespace in namespaces.items():
            mine = [pod for pod in alive if (pod.stands_for, pod.namespace) == (uid, namespace)]
            theirs = [(at, pod) for at, pod in bound if (pod.stands_for, pod.namespace) != (uid, namespace)]
            if not mine and not departed and not theirs and not coming:
                continue
            in_order = sorted(
                [*((at, 0, pod) for at, pod in departed), *((at, 1, pod) for at, pod in theirs)],
                key=lambda event: event[:2],
            )
            ways = []
            for back in self._possible([*(pod for _, pod in departed), *mine], where):
                ends, begins = [(pod, back[pod.uid]) for _, pod in departed], [(pod, None) for _, pod in theirs]
                late = [(pod, None if kind else back[pod.uid]) for _, kind, pod in in_order]
                leaving, arriving = [(pod, back[pod.uid]) for pod in mine], [(pod, None) for pod in coming]
                for events in ([*late, *arriving, *leaving], [*ends, *begins, *leaving, *arriving]):
                    node = start
                    for pod, amounts in events:  # None: it comes.
                        node = (
                            admitted(node, pod, settings) if amounts is None else victims.without(node, [pod], amounts)
                        )
                    if node.zones not in ways:
                        ways.append(node.zones)
            cases[uid] = tuple(ways)
        return cases

    def _possible(
        self, pods: Sequence[ClusterPod], where: Mapping[Container, int]
    ) -> Iterator[Mapping[str, Mapping[int, Amounts]]]:
        """Amounts that each of the pods gives back by NUMA node, in each way in which kubelet may have placed those of
        which `where` says nothing."""
        assert self.report is not None
        report, certain = self.report, {pod.uid: _back([pod], where) for pod in pods}
        unknown = [
            (pod.uid, part)
            for pod in pods
            if has_exclusive(pod.shape.exclusive, report.resources)
            for part in pod.shape.request.of_scope(report.scope)
            if part.kind != "init" and part.usage
            if not any((pod.namespace, pod.name, each.name) in where for each in pod.shape.request.parts)
        ]
        places = [[zone for zone in report.available if self._may_hold(zone, part.usage)] for _, part in unknown]
        ways = 0
        if math.prod(map(len, places)) <= MOST_CASES:
            for zones in itertools.product(*places):
                back = dict(certain)
                for zone, (uid, part) in zip(zones, unknown, strict=True):
                    back[uid] = _together((back[uid], {zone: part.usage}))
                if not unknown or all(self._may_hold(*zone) for zone in _together(back.values()).items()):
                    ways += 1
                    yield back
        if not ways:
            yield certain  # Spread over several NUMA nodes, or too many ways: the next report says.

    def _may_hold(self, zone: int, amounts: Amounts) -> bool:
        """Tell whether so much of the NUMA node is taken by the report."""
        assert self.report is not None
        totals = self.report.totals[zone]
        return all(
            totals.get(name, free) - free >= amounts.get(name, 0) for name, free in self.report.available[zone].items()
        )

    def whereabouts(self, more: Iterable[ClusterPod] = ()) -> Mapping[Container, int]:
        """The NUMA node of containers, as far as the report says; `more`: pods that it counts besides those alive."""
        if self.report is None:
            return {}
        alive = [pod for pod in self.pods.values() if pod.uid not in self.fresh]
        listed = self.report.resources
        return self.report.whereabouts(
            [
                (pod.namespace, pod.name, part.name)
                for pod in (*alive, *more)
                for part in pod.shape.request.parts
                if part.kind != "init" and has_exclusive(part.usage, listed)
            ]
        )

    def returned(self, pods: Iterable[ClusterPod]) -> Mapping[int, Amounts]:
        """Amounts that pods give back when they go, by the NUMA node they were on; nothing for those of which nobody
        says."""
        leaving = tuple(pods)
        if not leaving:
            return {}
        return _back(leaving, self.whereabouts(pod for pod in leaving if pod.uid not in self.pods))

    def returned_each(self) -> dict[str, Mapping[int, Amounts]]:
        """The same for each of its pods alone, by uid."""
        where = self.whereabouts()
        return {uid: _back((pod,), where) for uid, pod in self.pods.items()}


def _back(pods: Iterable[ClusterPod], where: Mapping[Container, int]) -> Mapping[int, Amounts]:
    back: dict[int, dict[str, int]] = {}
    for pod in pods:
        for part in pod.shape.request.parts:
            zone = where.get((pod.namespace, pod.name, part.name))
            if zone is not None and part.kind != "init":
                add(back.setdefault(zone, {}), part.usage)
    return back


def admitted(row: Row, pod: ClusterPod, settings: JudgeSettings) -> Row:
    """The node with the pod where kubelet will put it; where that is on several NUMA nodes, or none, it counts on each
    of them."""
    takes: Mapping[int, Amounts] = judge.takes(pod.shape, row, settings)
    takes = takes or dict.fromkeys(row.zones, pod.shape.held)
    return victims.beside(victims.without(row, [pod], {}), pod, takes)


def _together(parts: Iterable[Mapping[int, Amounts]]) -> dict[int, dict[str, int]]:
    total: dict[int, dict[str, int]] = {}
    for zones in parts:
        for zone, amounts in zones.items():
            add(total.setdefault(zone, {}), amounts)
    return total


def _coverage(
    report: Report, alive: Collection[ClusterPod], departed: Collection[ClusterPod], fresh: Collection[str]
) -> Coverage:
    """Coverage by `report` of the pods `alive` on the node and of those recently `departed`.

    `fresh` are the uids of those that the report was not known to count so far. Without a fingerprint, all others are
    taken for counted, and those that it places by name.
    """
    if not report.fingerprint:
        uncounted = tuple(pod for pod in alive if pod.uid in fresh and not report.places(pod.namespace, pod.name))
        return Coverage(not uncounted, uncounted, (), "the report carries no fingerprint of its pods")
    old = [pod for pod in alive if pod.uid not in fresh]
    new = [pod for pod in alive if pod.uid in fresh]
    for with_new, with_gone in _guesses(report, new, list(departed)):
        if fingerprint.sign(_names(report, [*old, *with_new, *with_gone])) == report.fingerprint:
            uncounted = tuple(pod for pod in new if pod not in with_new)
            return Coverage(True, uncounted, tuple(with_gone), "by fingerprint")
    if fingerprint.sign(_names(report, [pod for pod in alive if pod.started])) == report.fingerprint:
        return Coverage(True, tuple(pod for pod in alive if not pod.started), (), "by fingerprint of the pods started")
    # What it places by name it has counted, whatever else it signed; of two pods of one name nobody knows which.
    names, before = {pod.key for pod in alive}, {pod.key for pod in departed}
    uncounted = tuple(pod for pod in new if pod.key in before or not report.places(pod.namespace, pod.name))
    outlived = tuple(pod for pod in departed if pod.key not in names and report.places(pod.namespace, pod.name))
    return Coverage(False, uncounted, outlived, "the report's fingerprint is that of other pods")


def _guesses(
    report: Report, new: list[ClusterPod], departed: list[ClusterPod]
) -> Iterable[tuple[list[ClusterPod], list[ClusterPod]]]:
    """Likely ones first: all is counted, nothing is, what the report places by name; then new pods in any combination,
    or, where those are too many, as they came and went one after the other."""
    for with_gone in ([], departed) if departed else ([],):
        yield new, with_gone
        yield [], with_gone
    placed = [pod for pod in new if report.places(pod.namespace, pod.name)]
    yield placed, [pod for pod in departed if report.places(pod.namespace, pod.name)]
    if len(new) + len(departed) <= MOST_TRIES:
        for with_gone in _subsets(departed):
            for with_new in _subsets(new):
                yield with_new, with_gone
    else:
        for went in range(min(len(departed), MOST_LATE) + 1):
            for came in range(min(len(new), MOST_LATE) + 1):
                yield new[:came], departed[len(departed) - went :]


def _subsets(pods: list[ClusterPod]) -> Iterable[list[ClusterPod]]:
    for size in range(len(pods) + 1):
        yield from map(list, itertools.combinations(pods, size))


def _names(report: Report, pods: Iterable[ClusterPod]) -> Iterable[tuple[str, str]]:
    listed, every = report.resources, not report.only_exclusive
    signed = (pod for pod in pods if every or has_exclusive(pod.shape.exclusive, listed))
    return ((pod.namespace, pod.name) for pod in signed)


def has_exclusive(exclusive: Amounts, listed: Collection[str]) -> bool:
    """Tell whether any of a pod's exclusive resources counts on a node that lists these: a device has to be listed.

    Source: scheduler-plugins resourcerequests/exclusive.go.
    """
    return any(name in listed or name in ("cpu", "memory") or name.startswith("hugepages-") for name in exclusive)


def _on_top(report: Report, reserved: Iterable[Amounts], returned: Mapping[int, Amounts]) -> Zones:
    """Available amounts when `reserved` is taken from every NUMA node, since nobody knows yet from which it will be
    taken, and `returned` is given back to the NUMA nodes it was on. Below nothing where more is taken than there is:
    `settled` tells both apart."""
    total: dict[str, int] = {}
    for amounts in reserved:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    if not total and not returned:
        return report.available
    return {
        node: {
            name: min(available + returned.get(node, {}).get(name, 0), most) - total.get(name, 0)
            for name, available, most in ((n, a, report.totals[node].get(n, a)) for n, a in zone.items())
        }
        for node, zone in report.available.items()
    }


def _beside_promises(row: Row) -> Row:
    """The row without the CPUs that its pods were promised by name, of which its report's amounts do not know."""
    report = row.report
    if report is None or not report.koordinator.machine.cpus or not any(pod.resource_status for pod in row.pods):
        return row
    # Not kept for the row: its reservations are not in it yet.
    free = koordinator.free_cpus(koordinator.node_of(row))
    zones = beside_owners(row.zones, report.koordinator, free)
    at_most = zones if row.at_most is row.zones else beside_owners(row.at_most, report.koordinator, free)
    return msgspec.structs.replace(row, zones=zones, at_most=at_most)
