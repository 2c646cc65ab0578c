"""Watches of the extender: all Nodes, Pods, NodeResourceTopologies and Reservations, and the ConfigMap with the
cluster's switches; handed on to `Cluster` and not kept twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from koordlite.kube.client.access import Api
from koordlite.kube.watch import watcher
from koordlite.kube.watch.reflector import Source
from koordlite.kube.watch.sources import NODES, PODS, REPORTS, RESERVATIONS, config_map
from koordlite.model.slo import config
from koordlite.model.slo.settings import SLO
from koordlite.model.status import WatchState
from koordlite.model.wire import crane, metrics, objects
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.loads import Loads

LOG = logging.getLogger(__name__)
CRANE: Source[crane.TopologyObject] = Source(
    name="crane-topologies",
    kind="noderesourcetopology.topology.crane.io",
    shape=crane.TopologyObject,
    paths=(crane.PATH,),
    optional=True,
)
METRICS: Source[metrics.NodeMetricObject] = Source(
    name="node-metrics",
    kind="nodemetric",
    shape=metrics.NodeMetricObject,
    paths=(metrics.NODE_METRICS,),
    optional=True,
)
_OPTIONAL = {
    CRANE.name: ("Crane's own topologies", "noderesourcetopologies in topology.crane.io, or leave --crane out"),
    METRICS.name: ("measured load", "nodemetrics in slo.koordinator.sh, or leave --load-aware out"),
}


def both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def call(value: Any) -> None:
        try:
            first(value)
        finally:
            second(value)  # A fault of the first is noted by the feed, and does not cost the second its object.

    return call


class Watches:
    """Runs the watches, and says how old what they brought is."""

    def __init__(
        self,
        api: Api,
        cluster: Cluster,
        *,
        monotonic: Callable[[], float],
        with_reservations: bool = False,
        with_crane: bool = False,
        loads: Loads | None = None,
    ) -> None:
        """`with_reservations`: also Koordinator's Reservations; `with_crane`: also Crane's own topologies; `loads`:
        also NodeMetrics, for these."""
        self._cluster = cluster
        always: list[Source[Any]] = [NODES, PODS, REPORTS, *([RESERVATIONS] if with_reservations else [])]
        sources = [(source, *cluster.takers[source.name]) for source in always]
        if with_crane:
            sources.append((CRANE, cluster.put_crane, cluster.remove_crane))
        if loads is not None:
            sources[0] = NODES, both(cluster.put_node, loads.put_node), both(cluster.remove_node, loads.remove_node)
            sources[1] = PODS, both(cluster.put_pod, loads.put_pod), both(cluster.remove_pod, loads.remove_pod)
            sources.append((METRICS, loads.put_metric, loads.remove_metric))
        self._watches = [watcher.fed(api, *each, monotonic=monotonic) for each in sources]
        self._without: set[str] = set()
        """Lists that may not be read and that the extender does without."""
        switched = Policies(cluster)
        source = config_map(NAMESPACE, NAME)
        self._beside = watcher.fed(api, source, switched.put, switched.remove, monotonic=monotonic)
        """Watch of the ConfigMap of switches. Without it, or without permission for it, everything else is answered all
        the same."""
        self._synced = threading.Event()

    def start(self) -> None:
        """Begin; `ready` is true once everything was listed."""
        for watch in (*self._watches, self._beside):
            watch.start()

    def stop(self) -> None:
        """End."""
        for watch in (*self._watches, self._beside):
            watch.stop()

    def wait(self, seconds: float) -> bool:
        """Wait until every list was answered, well or not; False when that takes longer."""
        return all(watch.wait(seconds) for watch in self._watches) and self.age() is not None

    def age(self) -> float | None:
        """Seconds since the API server last vouched for the oldest of the lists; None until all were read once."""
        ages = [
            None if state.age_seconds is None and not state.absent else state.age_seconds or 0.0
            for state in (watch.state() for watch in self._watches)
            if not self._goes_without(state)
        ]
        listed = [age for age in ages if age is not None]
        if len(listed) < len(ages):
            return None
        if not self._synced.is_set():
            self._synced.set()
            self._cluster.synced()
        return max(listed)

    def _goes_without(self, state: WatchState) -> bool:
        """Tell whether it is a list of others, and may not be read: everything else is answered all the same."""
        if state.name not in _OPTIONAL:
            return False
        if state.denied and state.name not in self._without:
            what, do = _OPTIONAL[state.name]
            LOG.warning("the extender goes on without %s: %s; allow list and watch of %s", what, state.error, do)
        (self._without.add if state.denied else self._without.discard)(state.name)
        return state.denied

    def states(self) -> list[WatchState]:
        """One for each watch."""
        return [watch.state() for watch in (*self._watches, self._beside)]


NAMESPACE, NAME, KEY = "koordinator-system", "slo-controller-config", "numa-policy-config"


class Policies:
    """Hands what holds on to the cluster. A document that cannot be used leaves the last good one in force."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._slo: SLO | None = None

    def put(self, obj: objects.ConfigMapObject) -> None:
        """The ConfigMap came or changed."""
        data = obj.data or {}
        self._take({KEY: data[KEY]} if KEY in data else {})

    def remove(self, key: str) -> None:
        """There is no such ConfigMap: the defaults hold."""
        del key
        self._slo = None
        self._take({})

    def _take(self, data: dict[str, str]) -> None:
        before = self._slo
        self._slo = slo = config.effective(data, labels={}, annotations={}, previous=before)
        for problem in slo.problems:
            if before is None or problem not in before.problems:
                LOG.warning("%s", problem)
        self._cluster.switch(slo.numa_policy)
