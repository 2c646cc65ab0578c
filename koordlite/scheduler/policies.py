"""The switches of the cluster as the scheduler's side goes by them: one document of the agents' ConfigMap."""

from __future__ import annotations

import logging

from koordlite.model.slo import config
from koordlite.model.slo.settings import SLO
from koordlite.model.wire import objects
from koordlite.scheduler.cluster import Cluster

LOG = logging.getLogger(__name__)
NAMESPACE, NAME, KEY = "koordinator-system", "slo-controller-config", "numa-policy-config"


class Policies:
    """Hands what holds on to the cluster. A document that cannot be used leaves the last good one in force."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: SLO | None = None

    def put(self, obj: objects.ConfigMapObject) -> None:
        """The ConfigMap came or changed."""
        data = obj.data or {}
        self._take({KEY: data[KEY]} if KEY in data else {})

    def gone(self, key: str) -> None:
        """There is no such ConfigMap: the defaults hold."""
        del key
        self._held = None
        self._take({})

    def _take(self, data: dict[str, str]) -> None:
        before = self._held
        self._held = held = config.effective(data, labels={}, annotations={}, previous=before)
        for problem in held.problems:
            if before is None or problem not in before.problems:
                LOG.warning("%s", problem)
        self._cluster.switch(held.numa_policy)
