"""The cluster of a scenario: objects in memory that events change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from koordlite.changes.eviction import EvictPod
from koordlite.kube.folder.published import Published
from koordlite.lab.cluster.scenario import Node, Pod
from koordlite.lab.pods import pod_spec
from koordlite.model import keys
from koordlite.model.change import ClusterChange
from koordlite.model.errors import EvictionRefused
from koordlite.model.wire import objects
from koordlite.ports import ClusterView

CREATED = "2025-12-31T00:00:00Z"
"""Creation time of all pods: a day before the sandbox starts."""
_DEMANDS = {"cpu": pod_spec.CPU, "memory": pod_spec.MEMORY, "disk_read": pod_spec.DISK}


def node(written: Node, base: objects.NodeObject) -> objects.NodeObject:
    """`base` with the labels and annotations that are written."""
    notes = {**(base.metadata.annotations or {}), **written.annotations}
    if written.system_cpu:
        notes[pod_spec.SYSTEM_CPU] = written.system_cpu
    labels = {**(base.metadata.labels or {}), **written.labels}
    return structs.replace(base, metadata=structs.replace(base.metadata, labels=labels, annotations=notes))


def pods(written: Pod, node_name: str) -> Iterator[objects.PodObject]:
    """The pods that a short form means."""
    for number in range(1, written.count + 1):
        yield _pod(written, f"{written.name}-{number}" if written.count > 1 else written.name, node_name)


def config(data: Mapping[str, Any]) -> dict[str, str]:
    """data of the ConfigMap: text as it is, the rest as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}


def _pod(written: Pod, name: str, node_name: str) -> objects.PodObject:
    labels = {**({keys.QOS_CLASS: written.qos} if written.qos else {}), **written.labels}
    notes = {key: text for field, key in _DEMANDS.items() if (text := getattr(written, field))}
    if written.cpuset:
        notes[keys.RESOURCE_STATUS] = json.dumps({"cpuset": written.cpuset})
    metadata = objects.ObjectMeta(
        name=name,
        namespace=written.namespace,
        uid=f"{written.namespace}-{name}",
        labels=labels,
        annotations={**notes, **written.annotations},
        creation_timestamp=CREATED,
    )
    resources = objects.Resources(requests=dict(written.requests), limits=dict(written.limits))
    spec = objects.PodSpec(
        node_name=node_name,
        priority=written.priority,
        containers=(objects.Container(name="main", resources=resources),),
    )
    return objects.PodObject(metadata=metadata, spec=spec, status=objects.PodStatus(phase="Running"))


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
        """Refuse to evict, and never called: the runner of the scenario lets the sandbox carry evictions out."""
        raise EvictionRefused(f"pod/{pod.namespace}/{pod.name}", "the scenario's cluster has no Eviction API")

    def run(self, pods: Iterable[objects.PodObject]) -> None:
        """Pods arrive; one of the same name is replaced."""
        self._pods |= {_key(pod): pod for pod in pods}
        self._view = None

    def remove(self, beginning: str) -> int:
        """Pods NAMESPACE/NAME that begin so go; how many there were."""
        deleted = [key for key in self._pods if key.startswith(beginning)]
        self._pods = {key: pod for key, pod in self._pods.items() if key not in deleted}
        self._view = None
        return len(deleted)

    def configure(self, changed: Mapping[str, object]) -> None:
        """Keys of the ConfigMap change; None takes one away."""
        whole = {**self._config, **changed}
        self._config = config({key: value for key, value in whole.items() if value is not None})
        self._view = None

    def annotate(self, changed: Mapping[str, str | None]) -> None:
        """Annotations of the Node change; None takes one away."""
        whole = {**(self._node.metadata.annotations or {}), **changed}
        notes = {key: text for key, text in whole.items() if text is not None}
        metadata = structs.replace(self._node.metadata, annotations=notes)
        self._node = structs.replace(self._node, metadata=metadata)
        self._view = None


def _key(pod: objects.PodObject) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
