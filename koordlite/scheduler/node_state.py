"""What is known of one node, and the row that is judged: the report as read, with what it has not counted on top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.model import keys
from koordlite.model.node import Node
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.nrt.filter import Amounts, add
from koordlite.scheduler.judgement.coverage import Coverage, coverage, has_exclusive, on_top
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.judgement.pods import CRANE_RESULT, KnownPod
from koordlite.scheduler.judgement.reports import Container, Report
from koordlite.scheduler.judgement.settings import Settings
from koordlite.scheduler.reservations import Reservation

ALL_COUNTED = Coverage(is_known=True)


class NodeState(msgspec.Struct):
    """One node. Changed only under its owner's lock."""

    name: str
    node: Node | None = None
    report: Report | None = None
    crane: TopologyObject | None = None
    """Crane's own topology of the node."""
    report_since: float = 0.0
    """When this version of the report came."""
    pods: dict[str, KnownPod] = msgspec.field(default_factory=dict)
    """Bound to it and not ended, by uid."""
    fresh: dict[str, float | None] = msgspec.field(default_factory=dict)
    """Uids of pods that the report is not known to count, and since when kubelet has been seen to have taken them."""
    gone: dict[str, tuple[KnownPod, float]] = msgspec.field(default_factory=dict)
    """Ended or deleted a short while ago, and since when."""
    dirty_since: float | None = None
    """Since when the report is not that of the pods."""
    dirty_why: str = ""
    covered: Coverage = ALL_COUNTED

    def settle(self, now: float, seconds: float) -> None:
        """A new version of a report without fingerprint came: it counts pods that were started long enough before."""
        if self.report is not None and not self.report.fingerprint:
            self.fresh = {uid: at for uid, at in self.fresh.items() if at is None or now - at < seconds}

    def next_look(self, settings: Settings, now: float) -> float | None:
        """When time alone changes the row; None when it does not."""
        moments = [at + settings.gone_seconds for _, at in self.gone.values()]
        if self.report is not None and not self.report.fingerprint:
            moments += [at + settings.report_seconds for at in self.fresh.values() if at is not None]
        return min((moment for moment in moments if moment > now), default=None)

    def row(self, reservations: Iterable[Reservation], settings: Settings, now: float, since: float) -> Row:
        """The node as it is judged now; it changed last at `since`."""
        coming = [each for each in reservations if each.pod.uid not in self.pods]
        allocatable = {name: q.nano for name, q in self.node.allocatable.items()} if self.node else {}
        alive = (*self.pods.values(), *(with_promise(each) for each in coming))
        self.settle(now, settings.report_seconds)
        if self.report is None:
            self.dirty_since, self.dirty_why = None, ""
            return Row(self.name, allocatable, node=self.node, pods=alive, crane=self.crane)
        self._cover(settings, now, since)
        uncounted = self._reserved(settings)
        amounts = [pod.shape.held for pod in uncounted] + [each.pod.shape.held for each in coming]
        overreserve = settings.cache == "overreserve"
        returned = self.returned(self.covered.outlived) if overreserve else {}
        at_most = on_top(self.report, (), returned)
        return Row(
            self.name,
            allocatable,
            report=self.report,
            zones=on_top(self.report, amounts, returned) if overreserve and any(amounts) else at_most,
            at_most=at_most,
            unusable=self._unusable(settings, coming, uncounted),
            node=self.node,
            pods=alive,
            crane=self.crane,
            is_plain=self.crane is None and keys.CPU_TOPOLOGY not in self.report.annotations,
        )

    def _cover(self, settings: Settings, now: float, since: float) -> None:
        """Work out which pods the report has counted."""
        assert self.report is not None
        for uid in [uid for uid, (_, at) in self.gone.items() if now - at > settings.gone_seconds]:
            del self.gone[uid]
        gone = [pod for pod, _ in self.gone.values()]
        found = self.covered = coverage(self.report, self.pods.values(), gone, self.fresh)
        if found.is_known and self.report.fingerprint:
            self.fresh = {pod.uid: self.fresh.get(pod.uid) for pod in found.uncounted}
        if found.is_known and not found.uncounted and not found.outlived:
            self.dirty_since, self.dirty_why = None, ""
        else:
            self.dirty_since = since if self.dirty_since is None else self.dirty_since
            self.dirty_why = self._explained(found)

    def _explained(self, found: Coverage) -> str:
        if not found.is_known:
            return found.how
        missing = ", ".join(pod.key for pod in found.uncounted)
        outlived = ", ".join(pod.key for pod in found.outlived)
        return "; ".join(
            [*([f"not counted yet: {missing}"] if missing else []), *([f"gone: {outlived}"] if outlived else [])]
        )

    def _reserved(self, settings: Settings) -> list[KnownPod]:
        """Pods that the report has not counted and that hold something of their own."""
        assert self.report is not None
        listed = self.report.resources
        ignored = settings.profiles if settings.foreign_pods == "ignore" else None
        return [
            pod
            for pod in self.covered.uncounted
            if has_exclusive(pod.shape.exclusive, listed) and (ignored is None or pod.scheduler in ignored)
        ]

    def _unusable(self, settings: Settings, coming: list[Reservation], uncounted: list[KnownPod]) -> str:
        assert self.report is not None
        if not self.report.is_usable:
            return str(self.report.problems[0])
        if settings.cache == "discardReserved" and (coming or uncounted):
            return "pods are reserved here that no report has counted"
        foreign = [pod for pod in uncounted if pod.scheduler not in settings.profiles]
        if foreign and settings.foreign_pods == "refuse":
            return f"{foreign[0].scheduler} bound a pod here that no report has counted: {foreign[0].key}"
        return ""

    def whereabouts(self, more: Iterable[KnownPod] = ()) -> Mapping[Container, int]:
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
                if part.kind != "init" and has_exclusive(part.taken, listed)
            ]
        )

    def returned(self, pods: Iterable[KnownPod]) -> dict[int, Amounts]:
        """What pods give back when they go, by the NUMA node they were on; nothing for those of which nobody says."""
        leaving = tuple(pods)
        if not leaving:
            return {}
        where = self.whereabouts(pod for pod in leaving if pod.uid not in self.pods)
        back: dict[int, dict[str, int]] = {}
        for pod in leaving:
            for part in pod.shape.request.parts:
                zone = where.get((pod.namespace, pod.name, part.name))
                if zone is not None and part.kind != "init":
                    add(back.setdefault(zone, {}), part.taken)
        return dict(back)


def with_promise(reservation: Reservation) -> KnownPod:
    """The pod as it will be when it is bound: on its node, with the allocation of its Binding."""
    notes = dict(reservation.annotations)
    return msgspec.structs.replace(
        reservation.pod,
        node=reservation.node,
        resource_status=notes.get(keys.RESOURCE_STATUS, ""),
        crane_result=notes.get(CRANE_RESULT, ""),
        took=reservation.took,
    )
