"""Judge of the reservation controller: what the extender's cluster knows of NUMA nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordlite.kube.watch.sources import NODES, PODS, REPORTS, RESERVATIONS
from koordlite.model.wire import objects
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement import judge, reserved

PATIENCE_SECONDS = 10.0
"""A report that is behind for longer is taken as it is."""
BEHIND = "the report of its node has not counted all of its pods yet"


class ReservationJudge:
    """Judge of the reservation controller. `is_fed`: a cluster that watches of its own, or another's, keep up to date
    already; else the controller's do."""

    def __init__(self, cluster: Cluster, *, is_fed: bool) -> None:
        self._cluster, self.synced, self.remove_pod = cluster, cluster.synced, cluster.remove_pod
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
