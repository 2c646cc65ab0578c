"""Nodes as a pod meets them that may take reservations: answers about those differ from what its shape says."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from koordlite.kube.watch.sources import NODES, PODS, REPORTS, RESERVATIONS
from koordlite.model.errors import InputError
from koordlite.model.wire import objects
from koordlite.reservation import capacity, matching
from koordlite.reservation.matching import Candidate
from koordlite.reservation.pods import KnownPod, PodShape
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement import judge, reserved
from koordlite.scheduler.judgement.nodes import JudgeSettings, Row

MOST_WAITING = 5_000
PATIENCE_SECONDS = 10.0
"""A report that is behind for longer is taken as it is."""
BEHIND = "the report of its node has not counted all of its pods yet"


class Met(msgspec.Struct, frozen=True):
    """The nodes on which a pod may take a reservation, or goes by other rules because of one."""

    shape: PodShape
    settings: JudgeSettings
    candidate: Candidate | None = None
    """None: the pod takes no reservation anywhere."""
    rows: Mapping[str, Row] = msgspec.field(default_factory=dict)
    """Those of them that it may take, by node."""
    waits: bool = False
    """Room is going to be made for it on one of them, so that it goes nowhere else."""

    def refusals(self, by_shape: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
        """Reason why not, by node, after what is said of pods like it."""
        found = {name: text for name, text in by_shape.items() if name not in self.rows}
        for name, row in self.rows.items():
            try:
                text = judge.refusal(self.shape, row, self.settings)
            except Exception as error:  # noqa: BLE001 - one node's fault costs that node
                text = f"{type(error).__name__}: a fault of the program itself"
            if text := text or (reserved.OCCUPIED if self.waits and reserved.is_occupied(row) else ""):
                found[name] = text
        takes = any(row.reservations.taking and name in names and name not in found for name, row in self.rows.items())
        if takes or self.waits:
            own = {name for name, row in self.rows.items() if row.reservations.taking}
            found |= {name: reserved.ELSEWHERE for name in names if name not in own and name not in found}
        return found

    def scores(self, names: Sequence[str], by_shape: Sequence[int]) -> list[int]:
        """The scores of `names`, with those of nodes on which the pod takes a reservation."""
        found = list(by_shape)
        for place, name in enumerate(names):
            if name in self.rows:
                found[place] = judge.points(self.shape, self.rows[name], self.settings)
        return found


class Owners:
    """Works out what a pod meets, without holding the cluster's lock for longer than it takes to look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiting: collections.OrderedDict[str, float] = collections.OrderedDict()
        """Since when a pod has been kept from other nodes, by uid."""

    def met(self, pod: KnownPod, obj: objects.PodObject) -> Met:
        """The pod and the nodes on which it may take a reservation. Annotations that cannot be read take none: the
        refusal that says so is of its shape."""
        cluster, shape = self._cluster, pod.shape
        nothing = Met(shape, cluster.settings)
        if not cluster.reserved:
            return nothing
        try:
            candidate = matching.candidate(obj, shape.pod.requests)
        except InputError:
            return nothing
        rows, waits = {}, False
        with cluster.lock:
            known = [(node, cluster.row(node)) for node in cluster.reserved.nodes_for(candidate)]
        for node, row in known:
            try:
                if row is not None and (seen := self.seen(shape, candidate, row)) is not row:
                    rows[node] = seen
                    waits = waits or reserved.waits_for(candidate, row)
            except Exception as error:  # noqa: BLE001 - one node's fault costs its reservations
                cluster.faults.note(node, error)
        if not rows:
            return nothing
        return Met(shape, cluster.settings, candidate, _first(rows), waits and self._waits(pod))

    def seen(self, shape: PodShape, candidate: Candidate, row: Row) -> Row:
        """The node as it is for this pod."""
        settings = self._cluster.settings
        return reserved.as_met(candidate, row, lambda each: judge.verdict(shape, each, settings).passes)

    def lacks(self, obj: objects.PodObject, name: str) -> str:
        """Reason why a pod could not go to the node of the Reservation `name` if its placeholders were gone; empty
        when it could, or nothing is known of it yet."""
        cluster = self._cluster
        with cluster.lock:
            one = cluster.reserved.named(name)
            row = cluster.row(one.object.status.node_name) if one is not None else None
            shape, state = cluster.shapes.of(obj), cluster.nodes.get(row.name) if row is not None else None
            since = state.dirty_since if state is not None else None
        if one is None or row is None:
            return ""
        signed = row.report is not None and bool(row.report.fingerprint)
        if signed and shape.aligned and since is not None and cluster.now() - since < PATIENCE_SECONDS:
            return BEHIND
        rows = reserved.freed(reserved.taking(row, one))
        texts = [judge.refusal(shape, each, cluster.settings) for each in rows]
        return "" if "" in texts else texts[0]

    def _waits(self, pod: KnownPod) -> bool:
        """Tell whether the pod has not waited too long for its reservation to be made free."""
        now = self._cluster.now()
        with self._cluster.lock:
            since = self._waiting.setdefault(pod.uid, now)
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
        return now - since < self._cluster.settings.hold_seconds


class ReservationJudge:
    """Judge of the reservation controller. `is_fed`: a cluster that watches of its own, or another's, keep up to date
    already; else the controller's do."""

    def __init__(self, cluster: Cluster, *, is_fed: bool) -> None:
        self.lacks, self.synced, self.remove_pod = Owners(cluster).lacks, cluster.synced, cluster.remove_pod
        self._takers: dict[str, tuple[Callable[[Any], None], Callable[[str], None]]] = {
            NODES.name: (cluster.put_node, cluster.remove_node),
            PODS.name: (cluster.put_pod, cluster.remove_pod),
            REPORTS.name: (cluster.put_report, cluster.remove_report),
            RESERVATIONS.name: (cluster.put_reservation, cluster.remove_reservation),
        }
        self._is_fed = is_fed

    def taker(self, source: str) -> tuple[Callable[[Any], None], Callable[[str], None]] | None:
        """`koordlite.reservation.controller.Judge`."""
        return None if self._is_fed else self._takers[source]


def _first(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows, with a mark on the one whose reservation comes before all others by its label."""
    names = [name for name, row in rows.items() if row.reservations.taken is not None]
    taken = [rows[name].reservations.taken for name in names]
    place = capacity.first_by_order([one.order if one is not None else None for one in taken])
    if place is None:
        return dict(rows)
    chosen = rows[names[place]]
    marked = msgspec.structs.replace(
        chosen, reservations=msgspec.structs.replace(chosen.reservations, first=True), extra={}
    )
    return {**rows, names[place]: marked}
