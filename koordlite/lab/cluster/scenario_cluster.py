"""The cluster of a scenario: objects in memory that events change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.kube.folder.published import Published
from koordlite.lab.cluster import scenario_objects
from koordlite.model.change import ClusterChange
from koordlite.model.errors import EvictionRefused
from koordlite.model.wire import objects
from koordlite.ports import ClusterView

_INPUTS = ("node", "pods", "config", "kubelet")


class ScenarioCluster:
    """`ports.Cluster`. What is published is remembered; evictions are the sandbox's, see `sandbox.cluster.cluster`."""

    def __init__(self, first: ClusterView, node: objects.NodeObject) -> None:
        self._first, self._node = first, node
        self._pods = {_key(pod): pod for pod in first.pods}
        self._config = dict(first.config or {})
        self._published = Published(node.metadata.name, None)
        self._view: ClusterView | None = None

    def view(self) -> ClusterView:
        """The objects; the same ones until something changes."""
        if self._view is None:
            self._view = msgspec.structs.replace(
                self._first,
                node=self._published.over_node(self._node),
                pods=tuple(self._pods.values()),
                config=dict(self._config),
                topology=self._published.topology or self._first.topology,
                ages=dict.fromkeys(_INPUTS, 0.0),
            )
        return self._view

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Take them over."""
        if changes:
            self._published.publish(changes, node=self._node, topology=self._first.topology)
            self._view = None

    def evict(self, pod: EvictPod) -> None:
        """Not called: the runner of the scenario lets the sandbox carry evictions out."""
        raise EvictionRefused(f"pod/{pod.namespace}/{pod.name}", "the scenario's cluster has no Eviction API")

    def run(self, pods: Iterable[objects.PodObject]) -> None:
        """Pods arrive; one of the same name is replaced."""
        self._pods |= {_key(pod): pod for pod in pods}
        self._view = None

    def remove(self, beginning: str) -> int:
        """Pods NAMESPACE/NAME that begin so go; how many there were."""
        gone = [key for key in self._pods if key.startswith(beginning)]
        self._pods = {key: pod for key, pod in self._pods.items() if key not in gone}
        self._view = None
        return len(gone)

    def configure(self, changed: Mapping[str, object]) -> None:
        """Keys of the ConfigMap change; None takes one away."""
        kept = {key: text for key, text in self._config.items() if key not in changed}
        given = {key: value for key, value in changed.items() if value is not None}
        self._config = kept | scenario_objects.config(given)
        self._view = None

    def annotate(self, changed: Mapping[str, str | None]) -> None:
        """Annotations of the Node change; None takes one away."""
        self._node = scenario_objects.annotated(self._node, changed)
        self._view = None


def _key(pod: objects.PodObject) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
