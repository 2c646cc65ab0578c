"""The short forms of a scenario as Kubernetes objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import structs

from koordlite.lab.cluster.scenario import Node, Pod
from koordlite.lab.pods import pod_spec
from koordlite.model import keys
from koordlite.model.wire import objects

CREATED = "2025-12-31T00:00:00Z"
"""Of all pods: a day before the sandbox starts."""
_DEMANDS = {"cpu": pod_spec.CPU, "memory": pod_spec.MEMORY, "disk_read": pod_spec.DISK}


def node(written: Node, base: objects.NodeObject) -> objects.NodeObject:
    """`base` with the labels and annotations that are written."""
    notes = {**(base.metadata.annotations or {}), **written.annotations}
    if written.system_cpu:
        notes[pod_spec.SYSTEM_CPU] = written.system_cpu
    labels = {**(base.metadata.labels or {}), **written.labels}
    return structs.replace(base, metadata=structs.replace(base.metadata, labels=labels, annotations=notes))


def annotated(obj: objects.NodeObject, changed: Mapping[str, str | None]) -> objects.NodeObject:
    """`obj` with these annotations; None takes one away."""
    kept = {key: text for key, text in (obj.metadata.annotations or {}).items() if key not in changed}
    notes = kept | {key: text for key, text in changed.items() if text is not None}
    return structs.replace(obj, metadata=structs.replace(obj.metadata, annotations=notes))


def pods(written: Pod, node_name: str) -> Iterator[objects.PodObject]:
    """The pods that a short form means."""
    for number in range(1, written.count + 1):
        yield _pod(written, f"{written.name}-{number}" if written.count > 1 else written.name, node_name)


def config(data: Mapping[str, Any]) -> dict[str, str]:
    """data of the ConfigMap: text as it is, the rest as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}


def _pod(written: Pod, name: str, node_name: str) -> objects.PodObject:
    labels = {**({keys.QOS_CLASS: written.qos} if written.qos else {}), **written.labels}
    metadata = objects.ObjectMeta(
        name=name,
        namespace=written.namespace,
        uid=f"{written.namespace}-{name}",
        labels=labels,
        annotations=_annotations(written),
        creation_timestamp=CREATED,
    )
    resources = objects.Resources(requests=dict(written.requests), limits=dict(written.limits))
    spec = objects.PodSpec(
        node_name=node_name,
        priority=written.priority,
        containers=(objects.Container(name="main", resources=resources),),
    )
    return objects.PodObject(metadata=metadata, spec=spec, status=objects.PodStatus(phase="Running"))


def _annotations(written: Pod) -> dict[str, str]:
    demands = {key: getattr(written, field) for field, key in _DEMANDS.items()}
    notes = {key: text for key, text in demands.items() if text}
    if written.cpuset:
        notes[keys.RESOURCE_STATUS] = json.dumps({"cpuset": written.cpuset})
    return notes | dict(written.annotations)
